"""Matrices whose input and output stay within limits that the file has beside them (Gemma 4)."""

from __future__ import annotations

from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product


def is_clipped(s: Stages, name: str) -> bool:
    """Whether the matrix has limits: all four, or none."""
    return any(f"{name}.{side}_{end}" in s.w for side in ("input", "output") for end in ("max", "min"))


def limits(s: Stages, name: str, side: str) -> Weight:
    """The largest and the smallest value of the matrix's "input" or "output"."""
    return s.w.vector(*((f"{name}.{side}_{end}", 1) for end in ("max", "min")))


def clipped_input(s: Stages, x: Buffer, name: str, cols: int) -> Buffer:
    """x within the limits of the matrix's input, if it has any."""
    if not is_clipped(s, name):
        return x
    y = s.ops.rows("clipped", cols, s.ops.input_dtype)
    rows.clamp(s.ops, x, limits(s, name, "input"), y, cols)
    return y


def project(
    s: Stages, x: Buffer, name: str, weight: Weight, y: Buffer, row0: int = 0, bias: Weight | None = None
) -> None:
    """y[:, row0 : row0 + rows] = x times the matrix of this name + bias, within the limits if it has any."""
    products.append(s.ops, Product(clipped_input(s, x, name, weight.cols), weight, y, bias, row0=row0))
    if is_clipped(s, name):
        rows.clamp(s.ops, y, limits(s, name, "output"), y, weight.rows, row0)


def halves_swapped(s: Stages, tensor: str, count: int, cols: int) -> Weight:
    """A matrix whose second half of rows comes first: the gate, where other models have it."""
    whole = s.w.matrix(tensor, count, cols)
    del s.plan.weights[tensor]
    half = count // 2
    swapped = Weight(f"{tensor} (swapped)", whole.type, count, cols, ((tensor, half, half), (tensor, 0, half)))
    return s.plan.weights.setdefault(swapped.name, swapped)
