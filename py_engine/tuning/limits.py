"""Measures what a device can do at most, on a device of its own."""

from __future__ import annotations

from py_engine.cpu import limits as cpu_limits
from py_engine.cpu.device import BrowserDevice
from py_engine.plan.kernels import Device
from py_engine.plan.traffic import Limits, ReadLimits
from py_engine.tuning.read_rate import read_rates


async def measure(device: Device | None, threads: int = 0) -> Limits:
    """The limits of a GPU, or of so many threads of the CPU (0: all). WispError if there is no device or no memory."""
    if device is not None:
        return ReadLimits(await read_rates(device))
    machine = await BrowserDevice.open()
    try:
        return await cpu_limits.measure(machine, threads or machine.threads)
    finally:
        machine.close()
