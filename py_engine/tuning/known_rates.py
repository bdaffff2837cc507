"""The device's read rates, measured once and stored for later visits."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine import json_input
from py_engine.errors import WispError
from py_engine.plan.kernels import Device
from py_engine.plan.traffic import Rates

ROWS = (64, 512, 2048)  # of the square float32 matrices that the CPU multiplies: 16 KiB, 1 MiB, 16 MiB
REPEATS = 3
VERSION = 1  # of the measurement


async def known_rates(
    adapter: Any, device: Device | None, load_package: Callable[[str], Awaitable[Any]] | None = None
) -> Rates:
    """[(bytes, nanoseconds)] as read_rates() measures them; of numpy where `device` is None. Empty: not measurable."""
    key = f"read rates {VERSION} {_name(adapter)} {js.navigator.userAgent}"
    try:
        cached = await js.wispShards.getChoice(key)
        if cached is not None:
            return [(int(size), float(ns)) for size, ns in json_input.parse(str(cached))]
    except (JsException, ValueError, TypeError):  # no database, or another version's entry: measure
        pass
    try:
        rates = await _measure(device, load_package)
    except WispError:  # the GPU is lost or has no memory left
        return []
    with suppress(JsException):
        await js.wispShards.putChoice(key, json.dumps(rates))
    return rates


def _name(adapter: Any) -> str:
    if adapter is None:
        return "cpu"
    info = adapter.info
    return f"{info.vendor} {info.architecture} {info.device} {info.description}"


async def _measure(device: Device | None, load_package: Callable[[str], Awaitable[Any]] | None) -> Rates:
    if device is not None:
        from py_engine.tuning.read_rate import read_rates

        return await read_rates(device)
    if load_package is not None:
        await load_package("numpy")
    from py_engine.cpu.read_rate import product_ns

    clock = time.perf_counter_ns
    return [(4 * rows * rows, product_ns(rows, REPEATS, clock)) for rows in ROWS]
