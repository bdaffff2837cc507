"""ALiBi (Press et al. 2022): attention scores fall linearly with the distance, with a slope per head."""

from __future__ import annotations

import struct

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer


def slopes(n_head: int, max_bias: float) -> list[float]:
    """The heads' slopes, a geometric series down to 2^-max_bias.

    If n_head is not a power of two, the remaining heads take every other slope of the series for twice as many heads.
    """
    power = 1 << n_head.bit_length() - 1  # the largest power of two up to n_head
    ratio, finer_ratio = 2 ** (-max_bias / power), 2 ** (-max_bias / 2 / power)
    return [ratio ** (h + 1) if h < power else finer_ratio ** (2 * (h - power) + 1) for h in range(n_head)]


def table(ops: Ops, n_head: int, max_bias: float) -> Buffer:
    """The slopes on the device, f32 (n_head)."""
    buffer = ops.buffer("alibi_slopes", (max(4, n_head),), "u32", "state")
    ops.plan.constants["alibi_slopes"] = struct.pack(f"<{n_head}f", *slopes(n_head, max_bias))
    return buffer
