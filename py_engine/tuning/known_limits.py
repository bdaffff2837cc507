"""The device's limits, measured once and stored for later visits."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine import json_input
from py_engine.cpu.limits import Limits as CpuLimits
from py_engine.errors import WispError
from py_engine.plan.kernels import Device
from py_engine.plan.traffic import Limits, ReadLimits
from py_engine.tuning.limits import measure

VERSION = 3  # of the measurement


async def known_limits(adapter: Any, device: Device | None) -> Limits | None:
    """The limits of a GPU, or where `device` is None of the CPU. None: not measurable."""
    key = f"limits {VERSION} {_name(adapter)} {js.navigator.userAgent}"
    try:
        cached = await js.wispShards.getChoice(key)
        if cached is not None:
            return _read(json_input.parse(str(cached)), on_cpu=device is None)
    except (
        JsException,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ):  # no database, or another version's entry: measure
        pass
    try:
        limits = await measure(device)
    except WispError:  # the GPU is lost or there is no memory left
        return None
    with suppress(JsException):
        await js.wispShards.putChoice(key, json.dumps(asdict(limits)))  # type: ignore[call-overload]
    return limits


def _read(values: Any, *, on_cpu: bool) -> Limits:
    rates = [(int(size), float(ns)) for size, ns in values["rates"]]
    return (
        CpuLimits(rates, *(float(values[name]) for name in ("products", "madds", "matvec")))
        if on_cpu
        else ReadLimits(rates)
    )


def _name(adapter: Any) -> str:
    if adapter is None:
        return f"cpu {js.navigator.hardwareConcurrency if js.crossOriginIsolated else 1}"  # threads
    info = adapter.info
    return f"{info.vendor} {info.architecture} {info.device} {info.description}"
