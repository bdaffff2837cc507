"""Rows of activations rounded to bytes, for products of many tokens with matmul_int8.wgsl."""

from __future__ import annotations

from py_engine.plan import quants
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Op, PerToken, Weight

THREADS = 256  # of a workgroup


def rounded(ops: OpList, x: Buffer, cols: int, slots: int = 1) -> dict[str, Buffer | Weight]:
    """Append the rounding of x (slots * n, cols) to bytes; return what matmul_int8.wgsl binds in its place.

    Products with the same x that follow each other share it.
    """
    groups, rows = quants.groups(cols), ops.batch * slots
    bytes_of_x: dict[str, Buffer | Weight] = {
        "xq": ops.buffer(f"{ops.name}.int8.{rows}x{cols}", (rows, groups, 8), "u32"),
        "xq_scale": ops.buffer(f"{ops.name}.int8_scales.{rows}x{cols}", (rows, groups, 2)),
    }
    lanes = 4 if ops.device.subgroup >= 4 else 1  # threads of a group
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
