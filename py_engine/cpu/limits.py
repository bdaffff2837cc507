"""What the processor can do at most, measured by the module: how fast it reads memory, and how fast it multiplies.

Beside them, the times of kernels say how good they are. Measured on a machine (device.py) of its own.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from py_engine.cpu.call_layouts import WORD, pack
from py_engine.cpu.calls import NO_SCALES
from py_engine.cpu.device import Copy, Device
from py_engine.cpu.memory import STACK_BYTES
from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.panels import FORMATS, GROUP, ROUNDED_GROUP_BYTES
from py_engine.plan.plan import Op, Weight
from py_engine.plan.traffic import Rates, Traffic, floor_ns

SIZES = (64 << 10, 1 << 20, 8 << 20, 64 << 20)  # bytes: within the caches and beyond
READ_BYTES = 64 << 20  # of one measurement: smaller sizes are read several times
TIMES = 400_000  # of a measurement of products
PRODUCTS, MADDS = 8 * 16, 8 * 4  # multiply-adds each time, of bytes and of floats
PRODUCT_TIMES = 50
REPEATS = 4  # the fastest counts
RESULT_BYTES = 16 * 4096  # more than chunks can write
X_BYTES = 16384
SIDE = 1024  # rows and columns of the matrix of a measured product: 576 KiB, which the second cache holds


@dataclass(frozen=True)
class Limits:
    """Bytes by the nanoseconds in which they are read; multiply-adds of bytes and of floats in a nanosecond.

    `matvec`: multiply-adds in a nanosecond that a product of a matrix and one row reaches, with all that belongs to it.
    """

    rates: Rates
    products: float
    madds: float
    matvec: float

    @property
    def multiply_rates(self) -> dict[str, float]:
        return {"bytes": self.products, "floats": self.madds}

    def op_ns(self, op: Op, moved: Traffic) -> float:
        """The nanoseconds that an op takes at least, where its operands may be in a cache."""
        smallest, shortest = self.rates[0]
        read = shortest * moved.bytes / smallest if moved.bytes < smallest else floor_ns(self.rates, moved.bytes)
        return max(read, self._multiply_ns(op, moved))

    def step_ns(self, ops: Iterable[tuple[Op, Traffic]]) -> float:
        """The nanoseconds that a step takes at least whose operands are in no cache."""
        return sum(max(self._read_ns(moved), self._multiply_ns(op, moved)) for op, moved in ops)

    def expected_ns(self, ops: Iterable[tuple[Op, Traffic]]) -> float:
        """The nanoseconds that a decode step is expected to take."""
        rate = min(self.madds, self.matvec)
        return sum(
            max(self._read_ns(moved), moved.flops / 2 / (self.matvec if _rounds(op) else rate)) for op, moved in ops
        )

    def _read_ns(self, moved: Traffic) -> float:
        largest, longest = self.rates[-1]
        return moved.bytes * longest / largest

    def _multiply_ns(self, op: Op, moved: Traffic) -> float:
        return moved.flops / 2 / (self.products if _rounds(op) else self.madds)


def _rounds(op: Op) -> bool:
    """Whether an op is a product with rows that are rounded to bytes."""
    weight = op.bindings.get("w")
    return isinstance(weight, Weight) and FORMATS[weight.type].kind != "FLOATS"


async def measure(device: Device, threads: int) -> Limits:
    """The limits of so many threads of a device, which must be new. Sizes for which there is no memory are left out."""
    stacks = device.base
    x = stacks + threads * STACK_BYTES
    results = x + X_BYTES
    calls = results + RESULT_BYTES
    region = calls + X_BYTES
    await device.grow(region + SIDE * SIDE)
    device.start(threads, stacks, STACK_BYTES, results, 0)
    rates: list[tuple[int, float]] = []
    for size in SIZES:
        try:
            await device.grow(region + size)
        except WispError:
            if not rates:
                raise
            break
        half = size // 2  # memory that was never written is the same page everywhere
        device.copy([(region, region + half, half), (region + half, region, half)])
        call = pack("read", {"x": region // WORD, "bytes": size, "y": results // WORD})
        rates.append((size, await _nanoseconds(device, call, calls, READ_BYTES // size)))
    for i in range(len(rates) - 1, 0, -1):  # fewer bytes cannot take longer
        rates[i - 1] = rates[i - 1][0], min(rates[i - 1][1], rates[i][1])
    found = []
    for floats, each in ((0, PRODUCTS), (1, MADDS)):
        call = pack("multiply", {"floats": floats, "times": TIMES, "x": x // WORD, "y": results // WORD})
        found.append(TIMES * each / await _nanoseconds(device, call, calls))
    state = x // WORD
    device.write(struct.pack("<4I", 0, 1, 0, 0), [Copy(x, 0, 16)])  # a batch of one token
    row = SIDE // GROUP * ROUNDED_GROUP_BYTES
    call = pack(
        "product",
        {"state": state, "last": 0, "exact": 0, "x": state + 16, "x_row": row, "w": region // WORD, "type": Q.Q4_0}
        | {"rows": SIDE, "cols": SIDE, "row0": 0, "factor": 0, "bias": 0, **NO_SCALES}
        | {"y": results // WORD, "y_stride": SIDE},
    )
    found.append(SIDE * SIDE / await _nanoseconds(device, call, calls, PRODUCT_TIMES))
    return Limits(rates, *found)


async def _nanoseconds(device: Device, call: bytes, at: int, times: int = 1) -> float:
    """The time of a call: the fastest of some measurements of `times` calls."""
    data = array("I", [(at + WORD) // WORD]).tobytes() + call
    device.write(data, [Copy(at, 0, len(data))])
    device.run([(at, 1)])
    await device.read([])
    found = []
    for _ in range(REPEATS):
        device.run([(at, 1)], times)
        found.append(1e6 * (await device.read([])).ms / times)
    return max(1.0, min(found))
