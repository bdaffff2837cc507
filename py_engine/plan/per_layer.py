"""Ops of models in which each layer has its own input in addition to the residual stream. Shapes as in ops.py."""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.quants import GROUP
from py_engine.plan.shared import THREADS


def group_norm(ops: Ops, x: Buffer, norm: Weight, groups: int, eps: float) -> Buffer:
    """The RMS norm of each of the `groups` parts of a row of x: (n, groups * norm.cols)."""
    if norm.cols % GROUP:
        raise WispError(f"Per-layer inputs must be a multiple of {GROUP} wide.", "unsupported_architecture")
    y = ops.buffer(f"{ops.name}.group_normed", x.shape)
    ops.add(
        "norm",
        {"COLS": norm.cols, "WG": 64, "MEAN": 0, "BIAS": 0, "ADD": 0, "Y16": 0},
        {"eps": eps},
        {"x": x, "norm": norm, "y": y},
        PerToken(),
        groups,
    )
    return y


def gate(
    ops: Ops, x: Buffer, up: Buffer, first: int, cols: int, activation: str, *, for_products: bool = False,
    span: int = 1, x_first: int = 0,
) -> Buffer:  # fmt: skip
    """activation(x) * up[:, first : first + cols]: (n, cols). `for_products`: nothing but products reads it.

    `span`: neighbouring columns that share a column of x. `x_first`: the first column of x.
    """
    y = ops.rows("gated_input", cols, ops.input_dtype) if for_products else ops.rows("gated", cols)
    ops.add(
        "gate",
        {"COLS": cols, "ACTIVATION": activation, "UP16": int(up.dtype == "f16"), "Y16": int(y.dtype == "f16")}
        | ({"SPAN": span} if span > 1 else {}),
        {"x_stride": x.shape[1], "x_first": x_first, "up_stride": up.shape[1], "first": first}
        | {"y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "up": up, "y": y},
        -(-cols // THREADS),
        PerToken(),
    )
    return y


def scale_by(ops: Ops, x: Buffer, factor: Weight | Buffer) -> None:
    """x *= factor, a single number."""
    ops.add(
        "scale_by",
        {"VECS": x.shape[1] // 4},
        {},
        {"state": ops.state, "factor": factor, "x": x},
        -(-x.shape[1] // (4 * THREADS)),
        PerToken(),
    )
