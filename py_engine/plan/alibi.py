"""ALiBi (Press et al. 2022): attention's scores fall with the distance, for each head by a slope of its own."""

from __future__ import annotations

import struct

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer


def slopes(n_head: int, steepest: float) -> list[float]:
    """A geometric series down to 2^-steepest; where the heads are no power of two, every other member of the series
    for twice as many fills up.
    """
    whole = 1 << n_head.bit_length() - 1  # the largest power of two that is not more
    first, between = 2 ** (-steepest / whole), 2 ** (-steepest / 2 / whole)
    return [first ** (h + 1) if h < whole else between ** (2 * (h - whole) + 1) for h in range(n_head)]


def table(ops: Ops, n_head: int, steepest: float) -> Buffer:
    """The slopes on the device, f32 (n_head)."""
    buffer = ops.buffer("alibi_slopes", (max(4, n_head),), "u32", "state")
    ops.plan.constants["alibi_slopes"] = struct.pack(f"<{n_head}f", *slopes(n_head, steepest))
    return buffer
