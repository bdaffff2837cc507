"""Convolutions that halve frames and bins of sound, as products of matrices."""

from __future__ import annotations

from py_engine.models.projectors.stages import Stages
from py_engine.plan.plan import Buffer


def halved(size: int) -> int:
    """Places of a convolution with stride 2 and a kernel of 3, padded by 1."""
    return (size + 1) // 2


def convolved(s: Stages, x: Buffer, name: str, cols: int, activation: str = "gelu_erf") -> Buffer:
    """activation(x times the kernel + bias), f32 (n, width). x (n, cols): unfolded."""
    w, ops = s.w, s.ops
    width = w.rows(name + ".weight")
    bias = w.optional_vector((name + ".bias", width))
    y = ops.project("convolved", x, w.matrix(name + ".weight", width, cols), bias)
    return ops.activate(y, ops.rows("activated", width), width, activation, gated=False)
