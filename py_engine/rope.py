"""Rotary position embedding: the frequency table, with whatever scaling the metadata asks for, made once on the host.

Frequencies go to the GPU as turns per position in units of 2^-32, so that position x frequency wraps exactly in 32-bit
integer arithmetic and sine and cosine only ever see one turn, however long the context.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

from py_engine.plan import Buffer


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated: table (dim / 2,) u32 on the device, pairing, magnitude."""

    dim: int
    neox: bool
    freqs: Buffer
    scale: float = 1.0


def frequencies(dim: int, base: float, factors: Sequence[float] | None = None, linear: float = 1.0) -> list[float]:
    """Radians a position for each pair, (dim / 2,): base^(-2i / dim) / (factor[i] * linear).

    `factors` is the GGUF tensor rope_freqs (Llama 3's long-context scaling), `linear` the factor of linear scaling.
    """
    plain = [base ** (-2 * i / dim) / linear for i in range(dim // 2)]
    return [f / d for f, d in zip(plain, factors, strict=True)] if factors else plain


def table(freqs: Sequence[float]) -> bytes:
    """The u32 table that rope.wgsl reads."""
    return struct.pack(f"<{len(freqs)}I", *(round(f / (2 * pi) * 2**32) % 2**32 for f in freqs))
