"""Measure a device's read rate: the time of a dispatch by the bytes it reads, within the caches and beyond.

It uses a device of its own, like measure.py, and leaves the model's alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Plan
from py_engine.tuning.workloads import Workload

if TYPE_CHECKING:
    from py_engine.tuning.measure import GpuBench

SIZES = [4 << 10, *((64 << 10) << shift for shift in range(0, 13, 2))]  # bytes: 4 KiB, 64 KiB, 256 KiB ... 256 MiB
MAX_SOFTWARE_BYTES = 4 << 20
THREADS = 256
LOADS = (1, 4, 16)  # 16-byte vectors per thread; the fastest counts
WARM_UP_S = 0.3  # until an idle GPU has raised its clocks


@dataclass(frozen=True)
class Stream(Workload):
    """A workload that reads `size` bytes."""

    size: int
    loads: int

    def planned(self, device: Device) -> tuple[Plan, list[Buffer]]:
        plan = Plan(1, 1, 1)
        return plan, [stream(Ops(plan, "test", 1, device), self.size, self.loads)]


def stream(ops: Ops, size: int, loads: int) -> Buffer:
    """Sum a buffer "stream" of `size` bytes: one sum per thread."""
    vecs = size // 16
    workgroups = -(-vecs // (THREADS * loads))
    x = ops.buffer("stream", (vecs, 4), "u32", "kv")
    y = ops.buffer("sums", (workgroups * THREADS,), "u32")
    across = min(workgroups, 65535)
    ops.add("read", {"WG": THREADS, "LOADS": loads}, {"vecs": vecs}, {"x": x, "y": y}, across, -(-workgroups // across))
    return y


async def read_rates(device: Device) -> list[tuple[int, float]]:
    """[(bytes, nanoseconds)], ascending, up to the device's memory. WispError if there is no device."""
    from py_engine.gpu.adapter import request_adapter, request_device
    from py_engine.tuning.measure import GpuBench

    adapter = await request_adapter()
    if adapter is None:
        raise WispError("The GPU was lost.", "device_lost", SERVER_ERROR)
    bench = GpuBench(await request_device(adapter))
    max_size = min(device.max_binding, device.max_buffer, MAX_SOFTWARE_BYTES if device.software else SIZES[-1])
    sizes = [size for size in SIZES if size <= max_size]
    rates: list[tuple[int, float]] = []
    try:
        started = time.perf_counter()
        while not device.software and time.perf_counter() - started < WARM_UP_S:
            await _microseconds(bench, device, sizes[-3])
        for size in sizes:
            try:
                rates.append((size, 1000 * await _microseconds(bench, device, size)))
            except WispError:
                if not rates:
                    raise
                break  # out of memory
    finally:
        bench.close()
    for i in range(len(rates) - 1, 0, -1):  # fewer bytes cannot take longer
        rates[i - 1] = rates[i - 1][0], min(rates[i - 1][1], rates[i][1])
    return rates


async def _microseconds(bench: GpuBench, device: Device, size: int) -> float:
    best = float("inf")
    for loads in LOADS:
        if best < float("inf") and 16 * THREADS * loads > size:
            continue  # less than one workgroup
        trial = await bench.trial(device, Stream("read", n=1, checked=1, pos=0, copies=1, size=size, loads=loads))
        try:
            best = min(best, await trial.microseconds(best))
        finally:
            trial.close()
    return best
