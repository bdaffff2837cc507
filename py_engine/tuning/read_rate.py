"""How fast a device reads: the time of one dispatch by the bytes it reads, from a few that stay in its caches to more
than fit there. On a device of its own, like tuning's measurements, so that the model's is left alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Plan
from py_engine.tuning.workloads import Work

if TYPE_CHECKING:
    from py_engine.tuning.measure import GpuBench

SIZES = [4 << 10, *((64 << 10) << shift for shift in range(0, 13, 2))]  # bytes: 4 KiB, 64 KiB, 256 KiB ... 256 MiB
MOST_SOFTWARE = 4 << 20
THREADS = 256
LOADS = (1, 4, 16)  # vectors of 16 bytes for each thread: whichever is the fastest
WARM_S = 0.3  # until a GPU that was idle has its clocks up


@dataclass(frozen=True)
class Stream(Work):
    """Reading `size` bytes."""

    size: int
    loads: int

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(1, 1, 1)
        return plan, [stream(Ops(plan, "test", 1, device), self.size, self.loads)]


def stream(ops: Ops, size: int, loads: int) -> Buffer:
    """The sums of a buffer "stream" of `size` bytes, one for each thread."""
    vecs = size // 16
    groups = -(-vecs // (THREADS * loads))
    x = ops.buffer("stream", (vecs, 4), "u32", "kv")
    y = ops.buffer("sums", (groups * THREADS,), "u32")
    across = min(groups, 65535)
    ops.add("read", {"WG": THREADS, "LOADS": loads}, {"vecs": vecs}, {"x": x, "y": y}, across, -(-groups // across))
    return y


async def read_rates(device: Device) -> list[tuple[int, float]]:
    """[(bytes, nanoseconds)], fewest bytes first; as far as the device's memory goes. WispError where there is none."""
    from py_engine.gpu.adapter import request_adapter, request_device
    from py_engine.tuning.measure import GpuBench

    adapter = await request_adapter()
    if adapter is None:
        raise WispError("The GPU is gone.", "device_lost", SERVER_ERROR)
    bench = GpuBench(await request_device(adapter))
    most = min(device.max_binding, device.max_buffer, MOST_SOFTWARE if device.software else SIZES[-1])
    sizes = [size for size in SIZES if size <= most]
    found: list[tuple[int, float]] = []
    try:
        begun = time.perf_counter()
        while not device.software and time.perf_counter() - begun < WARM_S:
            await _microseconds(bench, device, sizes[-3])
        for size in sizes:
            try:
                found.append((size, 1000 * await _microseconds(bench, device, size)))
            except WispError:
                if not found:
                    raise
                break  # no memory for more
    finally:
        bench.close()
    for i in range(len(found) - 1, 0, -1):  # fewer bytes take no longer
        found[i - 1] = found[i - 1][0], min(found[i - 1][1], found[i][1])
    return found


async def _microseconds(bench: GpuBench, device: Device, size: int) -> float:
    best = float("inf")
    for loads in LOADS:
        if best < float("inf") and 16 * THREADS * loads > size:
            continue  # less than one workgroup
        trial = await bench.trial(device, Stream("read", 1, 1, 0, 1, size, loads))
        try:
            best = min(best, await trial.microseconds(best))
        finally:
            trial.close()
    return best
