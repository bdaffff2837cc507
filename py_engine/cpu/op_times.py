"""Times each op of a list by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py_engine.cpu.device import Device

MEASURED_MS = 3.0  # of an op, about
MOST_TIMES = 50  # runs of a measurement: each may take a position; profiling.PROFILED_STEPS of them are reserved


async def op_times(device: Device, ops: Sequence[tuple[int, int]], reset: Callable[[], None]) -> list[float]:
    """Time ops (address of their calls' addresses, number of calls), in nanoseconds. `reset` sets what they read."""
    return [await time_of(device, [op], reset) if op[1] else 0.0 for op in ops]


async def time_of(device: Device, lists: Sequence[tuple[int, int]], reset: Callable[[], None]) -> float:
    """Time lists, one after the other, in nanoseconds: the mean of several runs, after a first one."""
    reset()
    device.run(lists)
    first = (await device.read([])).ms
    times = max(1, min(MOST_TIMES, int(MEASURED_MS / max(first, 1e-3))))
    reset()
    device.run(lists, times)
    return 1e6 * (await device.read([])).ms / times
