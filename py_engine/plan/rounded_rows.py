"""Rows of activations rounded to bytes by quantize_rows.wgsl, for integer products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from py_engine.plan import quants
from py_engine.plan.op_list import OpList, strided
from py_engine.plan.plan import Buffer, Op, PerToken, Weight

THREADS = 256  # of a workgroup without a norm
# Ops that write no activations but y, or other bytes. After them, a product may share the bytes of an earlier rounding.
BETWEEN = ("experts", "matvec_small_batch", "quantize_rows", "route")


@dataclass(frozen=True)
class LowRankInput:
    """h = x A^T, or of the norm of x, in a product's dispatch."""

    weight: Weight
    h: Buffer
    lanes: int  # threads that share a row

    def params(self, workgroups: int) -> dict[str, int | str]:
        """The #params of lib/low_rank_input.wgsl. `workgroups`: that compute it."""
        return {
            "BESIDE": workgroups, "QUANT_A": self.weight.layout.fragment, "A_ROWS": self.weight.rows,
            "A_LANES": self.lanes, "H_STRIDE": self.h.shape[-1],
        }  # fmt: skip

    def bindings(self) -> dict[str, Buffer | Weight]:
        """What it reads and writes besides x."""
        return {"lora_a": self.weight, "h": self.h}

    def workgroups(self, threads: int) -> int:
        """Workgroups of `threads` threads that compute one token's h."""
        return -(-self.weight.rows * self.lanes // threads)


@dataclass(frozen=True)
class Rounding:
    """What a small batch's products multiply: x (slots * n, cols), times `norm` or times `weights` (n, slots).

    `eps`: of the norm. `threads`: of a workgroup of the kernel that multiplies one token. It adds the squares for the
    norm in their order, and so does the rounding.
    """

    x: Buffer
    cols: int
    norm: Weight | None = None
    eps: float = 0.0
    threads: int = THREADS
    slots: int = 1
    weights: Buffer | None = None


def round_for_small_batch(ops: OpList, r: Rounding, beside: LowRankInput | None = None) -> dict[str, Buffer | Weight]:
    """Append the rounding of x to bytes, if the batch has no such yet; return what products bind in place of x.

    `beside`: what else is computed of x or its norm.
    """
    op, bytes_of_x = _of_small_batch(ops, r)
    if beside is None and _is_rounded_since(ops, op):
        return bytes_of_x
    if beside:
        workgroups, tokens, slots = op.grid
        assert isinstance(workgroups, int)
        first = beside.workgroups(int(op.params["WG"]))
        params, bindings = {**op.params, **beside.params(first)}, {**op.bindings, **beside.bindings()}
        op = replace(op, params=params, bindings=bindings, grid=(workgroups + first, tokens, slots))
    ops.ops.append(op)
    return bytes_of_x


def _is_rounded_since(ops: OpList, rounding: Op) -> bool:
    """Whether the list has this rounding, maybe with more beside it, and no later op changes x or its bytes."""
    x, xq = rounding.bindings["x"], rounding.bindings["xq"]
    for op in reversed(ops.ops):
        if op.kernel == "quantize_rows" and op.bindings["xq"] is xq:
            return _includes(op.bindings, rounding.bindings) and _includes(op.params, rounding.params)
        if op.kernel not in BETWEEN or op.bindings.get("y") is x:
            return False
    return False


def _includes(whole: Mapping[str, object], part: Mapping[str, object]) -> bool:
    return all(whole.get(name) == value for name, value in part.items())


def _of_small_batch(ops: OpList, r: Rounding) -> tuple[Op, dict[str, Buffer | Weight]]:
    groups, rows = quants.groups(r.cols), ops.batch * r.slots
    size = f"{r.slots}x{r.cols}" if r.slots > 1 else f"{r.cols}"
    bytes_of_x: dict[str, Buffer | Weight] = {
        "xq": ops.buffer(f"{ops.name}.bytes.{size}", (rows, groups, 8), "u32"),
        "xq_scale": ops.buffer(f"{ops.name}.scales.{size}", (rows, groups, 2)),
    }
    if r.norm:
        bytes_of_x["x_scale"] = ops.buffer(f"{ops.name}.norms.{size}", (rows,))
    lanes = _lanes(ops)
    threads = _threads(ops.device.subgroup, groups * lanes, r.threads) if r.norm else THREADS
    params: dict[str, int | float | str] = {"COLS": r.cols, "NORM": int(r.norm is not None), "WG": threads, "GATED": 0}
    params |= strided(r.x, r.cols)
    params |= {"SLOTS": r.slots} if r.slots > 1 else {}
    params |= {"WEIGHTED": 1} if r.weights else {}
    bindings = {"state": ops.state, "x": r.x} | bytes_of_x | ({"norm": r.norm} if r.norm else {})
    bindings |= {"weights": r.weights} if r.weights else {}
    grid = (-(-groups * lanes // threads), PerToken(), r.slots)
    return Op("quantize_rows", params, {"eps": r.eps}, bindings, grid), bytes_of_x


def _lanes(ops: OpList) -> int:
    """Threads of a group."""
    return 4 if ops.device.subgroup >= 4 else 1


def _threads(subgroup: int, working: int, threads: int) -> int:
    """Threads of quantize_rows.wgsl that add a sum of squares in the order of `threads` threads.

    They may be fewer where no more than `working` of them have a term, and reduce.wgsl adds what is left of each
    subgroup in order: further zeros change nothing. Different matrices then share the rounded x.
    """
    if subgroup and working <= threads <= 16 * subgroup:
        return min(threads, max(THREADS // 4, 1 << (working - 1).bit_length()))
    return threads


def rounded(ops: OpList, x: Buffer, cols: int, slots: int = 1) -> dict[str, Buffer | Weight]:
    """Append the rounding of x (slots * n, cols) to bytes; return what matmul_int8.wgsl binds in its place.

    Products with the same x that follow each other share it.
    """
    groups, rows = quants.groups(cols), ops.batch * slots
    bytes_of_x: dict[str, Buffer | Weight] = {
        "xq": ops.buffer(f"{ops.name}.int8.{rows}x{cols}", (rows, groups, 8), "u32"),
        "xq_scale": ops.buffer(f"{ops.name}.int8_scales.{rows}x{cols}", (rows, groups, 2)),
    }
    lanes = _lanes(ops)
    params: dict[str, int | float | str] = {
        "COLS": cols,
        "NORM": 0,
        "WG": THREADS,
        "GATED": 0,
        "IN_ORDER": 1,
        "SLOTS": slots,
    }
    op = Op(
        "quantize_rows",
        params | {"X16": int(x.dtype == "f16")},
        {"eps": 0.0},
        {"state": ops.state, "x": x, **bytes_of_x},
        (-(-groups * lanes // THREADS), PerToken(), slots),  # all rows along y could exceed tiles.MAX_WORKGROUPS
    )
    if not _is_rounded(ops, op):
        ops.ops.append(op)
    return bytes_of_x


def _is_rounded(ops: OpList, rounding: Op) -> bool:
    """Whether the last ops are this rounding and products of its result, which do not change x."""
    x = rounding.bindings["x"]
    for op in reversed(ops.ops):
        if op == rounding:
            return True
        if op.kernel != "matmul_int8" or op.bindings["y"] == x:
            return False
    return False
