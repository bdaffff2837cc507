"""Rotary position embedding: the frequency table, with whatever scaling the metadata asks for, made once on the host.

Frequencies go to the GPU as turns per position in units of 2^-32, so that position x frequency wraps exactly in 32-bit
integer arithmetic and sine and cosine only ever see one turn, however long the context.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log, pi

from py_engine.plan.plan import Buffer


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated: table (dim / 2,) u32 on the device, pairing, magnitude."""

    dim: int
    neox: bool
    freqs: Buffer
    scale: float = 1.0


@dataclass(frozen=True)
class RopeSpec:
    """What the metadata says of a layer's rotation. A `dim` of 0: positions are left alone."""

    dim: int
    base: float = 10000.0
    scaling: str = "none"  # or "linear", "yarn"
    factor: float = 1.0  # of the scaling
    original: int = 0  # the context length before it
    beta_fast: float = 32.0  # YaRN: rotations in the original context of pairs that stay as they are
    beta_slow: float = 1.0  # and of those that are interpolated
    attn_factor: float = 1.0
    stretched: bool = True  # by the divisors in the file, where it has them

    @property
    def magnitude(self) -> float:
        """What rotated queries and keys are multiplied with."""
        return self.attn_factor * (1 + 0.1 * log(max(1.0, self.factor)) if self.scaling == "yarn" else 1.0)

    def frequencies(self, factors: Sequence[float] | None) -> list[float]:
        """Radians a position for each pair, (dim / 2,). `factors`: divisors from the file, where it has them."""
        plain = frequencies(self.dim, self.base, factors if self.stretched else None)
        if self.scaling == "none":
            return plain
        keep = self._kept() if self.scaling == "yarn" else [0.0] * len(plain)
        return [f * k + f / self.factor * (1 - k) for f, k in zip(plain, keep, strict=True)]

    def _kept(self) -> list[float]:
        """YaRN (Peng et al. 2023): 1 for pairs that turn often in the original context, 0 for those that hardly do."""

        def pair(rotations: float) -> float:
            return self.dim * log(self.original / (rotations * 2 * pi)) / (2 * log(self.base))

        first = max(0, floor(pair(self.beta_fast)))
        last = min(self.dim - 1, ceil(pair(self.beta_slow)))
        return [1 - min(1.0, max(0.0, (i - first) / max(0.001, last - first))) for i in range(self.dim // 2)]


def frequencies(dim: int, base: float, factors: Sequence[float] | None = None) -> list[float]:
    """Radians a position for each pair, (dim / 2,): base^(-2i / dim) / factor[i]."""
    plain = [base ** (-2 * i / dim) for i in range(dim // 2)]
    return [f / d for f, d in zip(plain, factors, strict=True)] if factors else plain


def table(freqs: Sequence[float]) -> bytes:
    """The u32 table that rope.wgsl reads."""
    return struct.pack(f"<{len(freqs)}I", *(round(f / (2 * pi) * 2**32) % 2**32 for f in freqs))
