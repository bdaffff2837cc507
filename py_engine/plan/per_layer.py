"""Ops of models in which each layer has its own input in addition to the residual stream. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.ops import Ops, pad
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import Parts, copy_columns
from py_engine.plan.shared_constants import THREADS


def group_norm(ops: Ops, x: Buffer, norm: Weight, groups: int, eps: float) -> Buffer:
    """The RMS norm of each of the `groups` parts of a row of x: (n, groups * norm.cols)."""
    rows, width, padded = x, norm.cols, pad(norm.cols)
    if width != padded:  # the kernel's rows are padded: move the parts there and back
        rows = ops.rows("group_padded", groups * padded)
        copy_columns(ops, Parts(x, 0, width), Parts(rows, 0, padded, groups), width)
    y = ops.buffer(f"{ops.name}.group_normed", rows.shape)
    ops.add(
        "norm",
        {"COLS": width, "WG": 64, "MEAN": 0, "BIAS": 0, "ADD": 0, "Y16": 0},
        {"eps": eps},
        {"x": rows, "norm": norm, "y": y},
        PerToken(),
        groups,
    )
    if width != padded:
        copy_columns(ops, Parts(y, 0, padded), Parts(x, 0, width, groups), width)
        return x
    return y


@dataclass(frozen=True)
class Gates:
    """activation(x[:, first :]). `span`: neighbouring columns of the result that share a column of x."""

    x: Buffer
    activation: str
    first: int = 0
    span: int = 1


def gate(ops: Ops, gates: Gates, up: Buffer, first: int, cols: int, *, for_products: bool = False) -> Buffer:
    """gates * up[:, first : first + cols]: (n, cols). `for_products`: nothing but products reads it."""
    y = ops.rows("gated_input", cols, ops.input_dtype) if for_products else ops.rows("gated", cols)
    ops.add(
        "gate",
        {"COLS": cols, "ACTIVATION": gates.activation, "UP16": int(up.dtype == "f16"), "Y16": int(y.dtype == "f16")}
        | ({"SPAN": gates.span} if gates.span > 1 else {}),
        {"x_stride": gates.x.shape[1], "x_first": gates.first, "up_stride": up.shape[1], "first": first}
        | {"y_stride": y.shape[1]},
        {"state": ops.state, "x": gates.x, "up": up, "y": y},
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
