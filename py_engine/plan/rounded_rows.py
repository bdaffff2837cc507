"""Rows of activations rounded to bytes by quantize_rows.wgsl, for integer products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from py_engine.plan import quants
from py_engine.plan.low_rank_input import LowRankInput
from py_engine.plan.op_list import OpList, strided
from py_engine.plan.plan import Buffer, Op, PerToken, Weight

THREADS = 256  # of a workgroup without a norm
# Ops that write no activations but y, or other bytes. After them, a product may share the bytes of an earlier rounding.
BETWEEN = ("experts", "matmul_int8", "matvec_small_batch", "quantize_rows", "route")


@dataclass(frozen=True)
class Rounding:
    """What is rounded: x (slots * n, cols), times `norm` or times `weights` (n, slots).

    `eps`: of the norm. `threads`: of a workgroup of the kernel that multiplies one token. It adds the squares for the
    norm in their order, and so does the rounding.
    `in_order`: a row's groups follow each other, as matmul_int8.wgsl loads them; else as the threads of a small batch's
    products do.
    """

    x: Buffer
    cols: int
    _: KW_ONLY
    norm: Weight | None = None
    eps: float = 0.0
    threads: int = THREADS
    slots: int = 1
    weights: Buffer | None = None
    in_order: bool = False


def rounded(ops: OpList, r: Rounding, beside: LowRankInput | None = None) -> dict[str, Buffer | Weight]:
    """Append the rounding of x to bytes, if the list has no such yet; return what products bind in place of x.

    `beside`: what else is computed of x or its norm.
    """
    op, bytes_of_x = _rounding(ops, r)
    if beside is not None:
        ops.ops.append(beside.beside(op))
    elif not _is_rounded_since(ops, op):
        ops.ops.append(op)
    return bytes_of_x


def _rounding(ops: OpList, r: Rounding) -> tuple[Op, dict[str, Buffer | Weight]]:
    """The op, and what it writes."""
    groups, rows = quants.groups(r.cols), ops.batch * r.slots
    bytes_of_x: dict[str, Buffer | Weight] = {
        "xq": ops.buffer(f"{ops.name}.bytes.{rows}x{r.cols}", (rows, groups, 8), "u32"),
        "xq_scale": ops.buffer(f"{ops.name}.scales.{rows}x{r.cols}", (rows, groups, 2)),
    }
    if r.norm:
        bytes_of_x["x_scale"] = ops.buffer(f"{ops.name}.norms.{rows}x{r.cols}", (rows,))
    lanes = 4 if ops.device.subgroup >= 4 else 1  # threads of a group
    threads = _threads(ops.device.subgroup, groups * lanes, r.threads) if r.norm else THREADS
    params = {
        "COLS": r.cols, "NORM": int(r.norm is not None), "WG": threads, "GATED": 0, "SLOTS": r.slots,
        "WEIGHTED": int(r.weights is not None), "X16": int(r.x.dtype == "f16"), "IN_ORDER": int(r.in_order),
    }  # fmt: skip
    bindings = {"state": ops.state, "x": r.x} | bytes_of_x | ({"norm": r.norm} if r.norm else {})
    bindings |= {"weights": r.weights} if r.weights else {}
    # all rows along y could exceed tiles.MAX_WORKGROUPS
    grid = (-(-groups * lanes // threads), PerToken(), r.slots)
    return Op("quantize_rows", {**params, **strided(r.x, r.cols)}, {"eps": r.eps}, bindings, grid), bytes_of_x


def _threads(subgroup: int, working: int, threads: int) -> int:
    """Threads of quantize_rows.wgsl that add a sum of squares in the order of `threads` threads.

    They may be fewer where no more than `working` of them have a term, and reduce.wgsl adds what is left of each
    subgroup in order: further zeros change nothing. Different matrices then share the rounded x.
    """
    if subgroup and working <= threads <= 16 * subgroup:
        return min(threads, max(THREADS // 4, 1 << (working - 1).bit_length()))
    return threads


def _is_rounded_since(ops: OpList, rounding: Op) -> bool:
    """Whether the list has this rounding, maybe with more beside it, and no later op changes x or its bytes."""
    x, xq = (rounding.bindings[name].name for name in ("x", "xq"))  # views of a buffer have its name
    for op in reversed(ops.ops):
        if op.kernel == "quantize_rows" and op.bindings["xq"].name == xq:
            pairs = (op.bindings, rounding.bindings), (op.params, rounding.params), (op.consts, rounding.consts)
            return all(_includes(*pair) for pair in pairs)
        if op.kernel not in BETWEEN or ("y" in op.bindings and op.bindings["y"].name == x):
            return False
    return False


def _includes(whole: Mapping[str, object], part: Mapping[str, object]) -> bool:
    return all(whole.get(name) == value for name, value in part.items())
