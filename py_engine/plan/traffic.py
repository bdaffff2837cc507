"""What a dispatch must move and compute, from the plan alone; and the least time that a device needs for so many bytes.

Counted is what cannot be avoided: each byte of a matrix, of the cache's rows that are seen and of the batch's
activations once, however often a kernel loads it again. What a kernel takes beyond `floor_ns` of that is its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from py_engine.plan import kernels
from py_engine.plan.kernels import Device
from py_engine.plan.lists import EMBED, PREFILL
from py_engine.plan.plan import Buffer, Op, Plan, Weight

WRITABLE = "storage, read_write"
ATTENTION = ("attention", "attention_matrix", "attention_decode")
PRODUCTS = ("matvec", "matmul", "matmul_matrix")
IN_PLACE = ("add_scaled", "rope_append", "scale_by", "soft_cap")  # their y, or x, is read before it is written

Rates = Sequence[tuple[int, float]]  # (bytes, nanoseconds of one dispatch that reads them), fewest bytes first


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written, and floating-point operations (a multiplication and an addition are two)."""

    read: int = 0
    written: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        """All that is moved."""
        return self.read + self.written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.written + other.written, self.flops + other.flops)


def traffic(op: Op, device: Device, n: int, position: int, batch: int) -> Traffic:
    """Of one dispatch on `n` tokens at `position`; `batch`: the most that its list is for."""
    access = kernels.expand(op.kernel, op.params, device).bindings
    read = written = 0
    for name, bound in op.bindings.items():
        if isinstance(bound, Weight):
            read += _weight(op, name, bound, n)
            continue
        size = _buffer(op, name, bound, n, position, batch)
        if access[name] != WRITABLE:
            read += size
            continue
        written += size
        if name in ("x", "y") and _adds(op):
            read += size
        if name == "conv_cache":  # the tokens before the batch
            read += (int(op.params["TAPS"]) - 1) * bound.nbytes // bound.shape[0]
    return Traffic(read, written, _flops(op, n, position))


def of_list(plan: Plan, name: str, device: Device, n: int, position: int) -> list[Traffic]:
    """Of every dispatch of a list, in order."""
    batch = plan.batch if name in (PREFILL, EMBED) else 1
    return [traffic(op, device, n, position, batch) for op in plan.lists[name]]


def _adds(op: Op) -> bool:
    return (
        op.kernel in IN_PLACE
        or op.params.get("EPILOGUE") == "add"
        or bool(op.params.get("ADD") or op.params.get("COMBINE"))
    )


def _weight(op: Op, name: str, weight: Weight, n: int) -> int:
    """Bytes of a matrix that are read: of a table of embeddings the tokens' rows, of experts those that are chosen."""
    if name != "w":
        return weight.plane_bytes("w_qs")
    if op.kernel == "embed":
        rows = 1 if op.params["ROW"] == "first" else min(n, weight.rows)
        return rows * sum(weight.plane_row_bytes(plane) for plane in weight.layout.planes)
    if op.kernel == "experts":
        rows = min(weight.rows, n * int(op.params["USED"]) * int(op.params["ROWS"]))
        return weight.nbytes * rows // weight.rows
    return weight.nbytes


def _buffer(op: Op, name: str, b: Buffer, n: int, position: int, batch: int) -> int:
    """Bytes of a buffer that a dispatch has to do with."""
    row = b.nbytes // b.shape[0]
    if b.pool == "state":
        return 4 * n if name == "tokens" else b.nbytes // b.shape[0] if name == "rows" else b.nbytes
    if name in ("k_new", "v_new"):
        return n * row
    if b.pool == "kv":
        return (min(_seen(op, n, position), b.shape[0]) if op.kernel in ATTENTION else n) * row
    if name == "parts":  # (heads, shares, ...), of the shares that have positions
        return b.nbytes * _shares(op, position) // b.shape[1]
    if name == "y" and op.kernel in PRODUCTS:  # some columns of it
        rows = int(op.consts.get("q_rows", op.consts["rows"]))
        return 4 * n * (rows // 2 if op.params["EPILOGUE"] == "gated" else rows)
    if op.kernel == "matvec" and name == "x":
        return row
    return b.nbytes * n // batch if b.shape[0] % batch == 0 else b.nbytes


def _seen(op: Op, n: int, position: int) -> int:
    """Positions that the batch's tokens see together."""
    window = int(op.params.get("WINDOW", 0))
    return min(position + n, window + n - 1) if window else position + n


def _shares(op: Op, position: int) -> int:
    """Workgroups of a head that have something to do: attention_split.wgsl."""
    tile, split = int(op.params["TS"]), int(op.params["SPLIT"])
    seen = _seen(op, 1, position)
    tiles = -(-seen // tile)
    share = -(-tiles // split) * tile
    return -(-seen // share)


def _flops(op: Op, n: int, position: int) -> int:
    weight = op.bindings.get("w")
    if isinstance(weight, Weight) and op.kernel in PRODUCTS:
        return 2 * n * weight.rows * weight.cols
    if isinstance(weight, Weight) and op.kernel == "experts":
        return 2 * n * int(op.params["USED"]) * int(op.params["ROWS"]) * weight.cols
    if op.kernel in ATTENTION:
        heads = int(op.consts["n_head_kv"]) * int(op.params["G"])
        window = int(op.params["WINDOW"]) or position + n
        pairs = sum(min(position + i + 1, window) for i in range(n)) if op.params.get("CAUSAL", 1) else n * n
        return 4 * heads * int(op.params["HEAD_DIM"]) * pairs
    return 0


def floor_ns(rates: Rates, size: int) -> float:
    """Nanoseconds in which the device reads `size` bytes in one dispatch, between what was measured; beyond the largest
    at its rate.
    """
    (few, least), (most, longest) = rates[0], rates[-1]
    if size <= few:
        return least
    if size >= most:
        return longest * size / most
    for (a, low), (b, high) in pairwise(rates):
        if size <= b:
            return low + (high - low) * (size - a) / (b - a)
    raise AssertionError("rates are sorted")


def step_floor_ns(rates: Rates, size: int, dispatches: int) -> float:
    """The same of a whole step: its bytes at the device's rate, and beginning each dispatch after the one before."""
    return floor_ns(rates, size) + max(0, dispatches - 1) * rates[0][1]


def profiled(
    plan: Plan, device: Device, n: int, position: int, rates: Rates, times: dict[str, list[dict]], step_ns: float
) -> list[dict]:
    """What Engine.profile() says: the lists' `times` {kernel, ns}, each with its bytes, flops and floor_ns; then the
    whole as "step".
    """
    entries, whole = [], Traffic()
    for name, list_times in times.items():
        for time, moved in zip(list_times, of_list(plan, name, device, n, position), strict=True):
            whole += moved
            floor = floor_ns(rates, moved.bytes)
            entries.append({**time, "bytes": moved.bytes, "flops": moved.flops, "floor_ns": floor})
    floor = step_floor_ns(rates, whole.bytes, len(entries))
    step = {"kernel": "step", "ns": step_ns, "bytes": whole.bytes, "flops": whole.flops, "floor_ns": floor}
    return [*entries, step]
