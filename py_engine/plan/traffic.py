"""The bytes and operations of a dispatch, from the plan alone, and the least time that a device needs for them.

Only unavoidable traffic counts: every byte of a matrix, of the visible rows of the cache and of the batch's activations
once, however often a kernel loads it. The time of a kernel beyond `floor_ns` of that traffic is the kernel's overhead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod
from typing import Any, Protocol

from py_engine.plan import kernels, panels
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE_STEP, EMBED, PREFILL
from py_engine.plan.pages import STATE_WORDS
from py_engine.plan.plan import MATRICES, Buffer, Op, Plan, Weight

ATTENTION = ("attention", "attention_matrix", "attention_decode", "attention_decode_tiles")
PRODUCTS = ("matvec", "matmul", "matmul_int8", "matmul_matrix")
IN_PLACE = (
    "add_direction",
    "add_expert_low_rank",
    "add_low_rank",
    "add_scaled",
    "altup_correct",
    "altup_predict",
    "gate_ngrams",
    "index_append",
    "laurel",
    "remix_streams",
    "rope_append",
    "scale_by",
    "soft_cap",
    "scale_queries",
    "spread_streams",
    "weighted_sum",
    "window_append",
)  # they read y, or x, before they write it
PER_POSITION = {"scores": 32, "index_mask": 1, "heap": 0}  # bits of an index's buffers, whose heap is mostly unused

Rates = Sequence[tuple[int, float]]  # (bytes, nanoseconds of one dispatch that reads them), ascending


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written, and floating-point operations (a multiply-add is two)."""

    read: int = 0
    written: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written together."""
        return self.read + self.written

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read + other.read, self.written + other.written, self.flops + other.flops)


def traffic(op: Op, device: Device, n: int, position: int, batch: int, *, panelled: bool = False) -> Traffic:
    """The traffic of one dispatch on `n` tokens at `position`. `batch`: the most tokens of its list.

    `panelled`: matrices are stored as the CPU engine has them (panels.py), not as a GPU.
    """
    if position >= float(op.params.get("UP_TO", inf)):  # its tokens are another kernel's (decode_tiles.py)
        return Traffic()
    shader = kernels.expand(op.kernel, op.params, device)
    read = written = 0
    for name, bound in op.bindings.items():
        if isinstance(bound, Weight):
            size = _weight_bytes(op, name, bound, n)
            if panelled and name == "w":
                size = size * panels.weight_bytes(bound.type, bound.rows, bound.cols) // bound.nbytes
            read += size
            continue
        if name == "v_cache" and bound == op.bindings.get("k_cache"):  # latents serve as keys and as values
            continue
        size = _buffer_bytes(op, name, bound, n, position, batch)
        if not shader.writes(name):
            read += size
            continue
        if op.kernel in ATTENTION and bound.pool == "kv":  # the newest position is stored, and not read
            stored = n * bound.nbytes // bound.shape[0]
            read, written = read + size - stored, written + stored
            continue
        written += size
        if name in ("x", "y") and _reads_output(op):
            read += size
        if name == "conv_cache":  # the tokens before the batch
            read += (int(op.params["KERNEL_SIZE"]) - 1) * bound.nbytes // bound.shape[0]
    return Traffic(read, written, _flops(op, n, position))


def of_list(plan: Plan, name: str, device: Device, n: int, position: int, *, panelled: bool = False) -> list[Traffic]:
    """The traffic of every dispatch of a list, in order."""
    batch = plan.batch if name in (PREFILL, EMBED) else 1
    return [traffic(op, device, n, position, batch, panelled=panelled) for op in plan.lists[name]]


def of_step(
    plan: Plan, names: Iterable[str], device: Device, n: int, position: int, *, panelled: bool = False
) -> list[tuple[Op, Traffic]]:
    """Every op that a step's lists have for n tokens at `position`, with its traffic."""
    return [
        pair
        for name in names
        for pair in zip(plan.lists[name], of_list(plan, name, device, n, position, panelled=panelled), strict=True)
        if pair[0].contexts.include(position + n)
    ]


def decode_bytes(plan: Plan, device: Device, position: int) -> int:
    """Bytes that one decode step reads and writes."""
    return sum(moved.bytes for _, moved in of_step(plan, DECODE_STEP, device, 1, position))


def label_of(op: Op) -> str:
    """An op's name in tables: kernel, type, columns, epilogue, rows."""
    shown = [str(op.params[k]) for k in ("QUANT", "QUANT_2", "COLS", "EPILOGUE") if k in op.params]
    return " ".join([op.kernel, *shown, *([f"x {_rows(op)}"] if "rows" in op.consts else [])])


def _rows(op: Op) -> int:
    """Rows of an op's matrix, or of both that are stacked."""
    return int(op.consts["rows"] + op.consts.get("rows_2", 0))


def _reads_output(op: Op) -> bool:
    return op.kernel in IN_PLACE or op.params.get("EPILOGUE") in ("add", "accumulate") or bool(op.params.get("ADD"))


def _weight_bytes(op: Op, name: str, weight: Weight, n: int) -> int:
    """Bytes read of a matrix: the tokens' rows of an embedding table, the chosen experts, else all."""
    if name not in MATRICES:
        return weight.plane_bytes("w_qs")
    if op.kernel in ("embed", "embed_ngrams"):
        each = int(op.params.get("HEADS", 1))
        rows = 1 if op.params.get("ROW") == "first" else min(n * each, weight.rows)
        return rows * sum(weight.plane_row_bytes(plane) for plane in weight.layout.planes)
    if op.params.get("EXPERTS"):
        return weight.nbytes * min(int(op.params["EXPERTS"]), n * int(op.params["USED"])) // int(op.params["EXPERTS"])
    return weight.nbytes


def _buffer_bytes(op: Op, name: str, b: Buffer, n: int, position: int, batch: int) -> int:
    """Bytes of a buffer that a dispatch reads or writes."""
    row = b.nbytes // b.shape[0]
    if name == "state":
        return 4 * STATE_WORDS
    if name == "sums":  # of split attention: other attention has none
        return 0
    if b.pool == "state":
        if name in ("tokens", "embedded"):
            return 4 * n
        return b.nbytes // b.shape[0] if name in ("rows", "ring") else b.nbytes
    if name in ("k_new", "v_new"):
        return n * row
    if name == "c_cache" and op.kernel == "compressed_attention":  # keys of the whole context, fewer than positions
        return min(position + n, b.shape[0]) * row
    if b.pool == "kv":
        all_read = op.kernel in (*ATTENTION, "index_scores", "compressed_attention")
        return (min(_visible(op, n, position), b.shape[0]) if all_read else n) * row
    if name in PER_POSITION:
        return -(-n * _visible(op, n, position) * PER_POSITION[name] // 8)
    if name == "parts":  # (tokens, heads, splits, ...): the splits that have positions
        return b.nbytes // b.shape[0] * n * _used_splits(op, position) // b.shape[2]
    if name == "y" and op.kernel in PRODUCTS and not op.params.get("EXPERTS"):  # some of its columns
        rows = int(op.consts.get("q_rows", _rows(op)))
        return b.nbytes // prod(b.shape) * n * (rows // 2 if op.params["EPILOGUE"] == "gated" else rows)
    if op.kernel == "matvec" and name == "x":
        return row
    return b.nbytes * n // batch if b.shape[0] % batch == 0 else b.nbytes


def _visible(op: Op, n: int, position: int) -> int:
    """Positions that at least one of the batch's tokens attends to."""
    window = int(op.params.get("WINDOW", 0))
    if op.params.get("PART"):  # the encoder's half of a context, or the decoder's
        return -(-(position + n) // 2)
    return min(position + n, window + n - 1) if window else position + n


def _used_splits(op: Op, position: int) -> int:
    """Splits of the context that are not empty, as in attention_split.wgsl."""
    tile, split = int(op.params["TS"]), int(op.params["SPLIT"])
    visible = _visible(op, 1, position)
    tiles = -(-visible // tile)
    split_positions = -(-tiles // split) * tile
    return -(-visible // split_positions)


def _flops(op: Op, n: int, position: int) -> int:
    weight = op.bindings.get("w")
    if isinstance(weight, Weight) and op.params.get("EXPERTS"):
        return 2 * n * int(op.params["USED"]) * weight.rows // int(op.params["EXPERTS"]) * weight.cols
    if isinstance(weight, Weight) and op.kernel in (*PRODUCTS, "head_products", "head_products_transposed"):
        rows = sum(b.rows for name, b in op.bindings.items() if isinstance(b, Weight) and name in MATRICES)
        return 2 * n * rows * weight.cols
    if op.kernel == "index_scores":
        return 2 * int(op.params["HEADS"]) * int(op.params["SIZE"]) * sum(position + i + 1 for i in range(n))
    if op.kernel == "compressed_attention":
        window, ratio = int(op.params["WINDOW"]), int(op.params["RATIO"])
        seen = sum(min(at, window) + (at // ratio if ratio else 0) for at in range(position + 1, position + n + 1))
        return 4 * int(op.grid[0]) * int(op.params["SIZE"]) * seen  # type: ignore[arg-type]
    if op.kernel in ATTENTION:
        heads = int(op.consts["n_head_kv"]) * int(op.params["G"]) * int(op.params.get("SHARE", 1))
        window = int(op.params["WINDOW"]) or position + n
        pairs = sum(min(position + i + 1, window) for i in range(n)) if op.params.get("CAUSAL", 1) else n * n
        return 4 * heads * int(op.params["HEAD_DIM"]) * pairs
    return 0


def floor_ns(rates: Rates, size: int) -> float:
    """Nanoseconds in which the device reads `size` bytes in one dispatch.

    Interpolated between the measured sizes; above the largest, at its rate.
    """
    (smallest, shortest), (largest, longest) = rates[0], rates[-1]
    if size <= smallest:
        return shortest
    if size >= largest:
        return longest * size / largest
    for (size0, ns0), (size1, ns1) in pairwise(rates):
        if size <= size1:
            return ns0 + (ns1 - ns0) * (size - size0) / (size1 - size0)
    raise AssertionError("rates are sorted")


def step_floor_ns(rates: Rates, size: int, dispatches: int) -> float:
    """The floor of a whole step: its bytes at the device's rate, plus the start of each further dispatch."""
    return floor_ns(rates, size) + max(0, dispatches - 1) * rates[0][1]


class Limits(Protocol):
    """What a device can do at most."""

    @property
    def rates(self) -> Rates:
        """How fast it reads."""

    @property
    def multiply_rates(self) -> dict[str, float]:
        """Multiply-adds in a nanosecond, by the kind of their operands; of kinds that were measured."""

    def op_ns(self, op: Op, moved: Traffic) -> float:
        """The nanoseconds that a dispatch takes at least."""

    def step_ns(self, ops: Sequence[tuple[Op, Traffic]]) -> float:
        """The nanoseconds that all ops of a step take at least."""

    def expected_ns(self, ops: Sequence[tuple[Op, Traffic]]) -> float:
        """The nanoseconds that a decode step is expected to take."""


@dataclass(frozen=True)
class ReadLimits:
    """Limits of a GPU, by the rates at which it reads."""

    rates: Rates

    @property
    def multiply_rates(self) -> dict[str, float]:
        return {}

    def op_ns(self, op: Op, moved: Traffic) -> float:
        return floor_ns(self.rates, moved.bytes)

    def step_ns(self, ops: Sequence[tuple[Op, Traffic]]) -> float:
        return step_floor_ns(self.rates, sum(moved.bytes for _, moved in ops), len(ops))

    def expected_ns(self, ops: Sequence[tuple[Op, Traffic]]) -> float:
        return self.step_ns(ops)


def profile(
    ops: Sequence[tuple[Op, Traffic]], limits: Limits, times: Sequence[float], step_ns: float
) -> list[dict[str, Any]]:
    """The result of Engine.profile(): every dispatch as {kernel, ns, bytes, flops, floor_ns}, then the whole "step".

    `times`: nanoseconds of each dispatch; `step_ns`: of all, one after the other.
    """
    entries = [
        _entry(label_of(op), ns, moved, limits.op_ns(op, moved)) for ns, (op, moved) in zip(times, ops, strict=True)
    ]
    return [*entries, _entry("step", step_ns, sum((moved for _, moved in ops), Traffic()), limits.step_ns(ops))]


def _entry(kernel: str, ns: float, moved: Traffic, floor: float) -> dict[str, Any]:
    return {"kernel": kernel, "ns": ns, "bytes": moved.bytes, "flops": moved.flops, "floor_ns": floor}
