"""Times each op of a list by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_engine.cpu.device import Device

MEASURED_MS = 3.0  # of an op, about
MOST_TIMES = 50  # the engine leaves so many positions free: each run may take one


async def op_times(device: Device, ops: Sequence[tuple[int, int]], reset: Callable[[], None]) -> list[float]:
    """Nanoseconds of each op (address of its calls' addresses, their number). `reset` sets the state that they read."""
    return [await time_of(device, [op], reset) if op[1] else 0.0 for op in ops]


async def time_of(device: Device, lists: Sequence[tuple[int, int]], reset: Callable[[], None]) -> float:
    """Nanoseconds of lists, one after the other: the mean of several runs, after a first one."""
    reset()
    device.run(lists)
    first = (await device.read([])).ms
    times = max(1, min(MOST_TIMES, int(MEASURED_MS / max(first, 1e-3))))
    reset()
    device.run(lists, times)
    return 1e6 * (await device.read([])).ms / times
