"""Rotary position embedding: the frequency table, with the metadata's scaling, computed once on the host.

Frequencies are stored as turns per position in units of 2^-32. Position x frequency then wraps exactly in 32-bit
integer arithmetic, so sine and cosine get angles within one turn only, however long the context is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log, pi

from py_engine.errors import WispError
from py_engine.plan.plan import Buffer


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated. `freqs`: the table on the device, u32 (dim / 2,)."""

    dim: int
    neox: bool  # the pairs are (i, i + dim / 2), not (2i, 2i + 1)
    freqs: Buffer
    scale: float = 1.0


@dataclass(frozen=True)
class RopeSpec:
    """A layer's rotation as the metadata describes it. A `dim` of 0: no rotation."""

    dim: int
    base: float = 10000.0
    scaling: str = "none"  # or "linear", "yarn"
    factor: float = 1.0  # of the scaling
    original_context: int = 0  # the context length before it
    beta_fast: float = 32.0  # YaRN: pairs with more rotations than this in the original context are not scaled
    beta_slow: float = 1.0  # YaRN: pairs with fewer rotations are scaled fully
    attn_factor: float = 1.0
    use_factors: bool = True  # divide by the file's frequency factors, if it has them

    @property
    def magnitude(self) -> float:
        """The factor of rotated queries and keys."""
        return self.attn_factor * (1 + 0.1 * log(max(1.0, self.factor)) if self.scaling == "yarn" else 1.0)

    def frequencies(self, factors: Sequence[float] | None) -> list[float]:
        """Radians per position for each pair, (dim / 2,). `factors`: the file's divisors, if it has them."""
        plain = frequencies(self.dim, self.base, factors if self.use_factors else None)
        if self.scaling == "none":
            return plain
        ramp = self._yarn_ramp() if self.scaling == "yarn" else [0.0] * len(plain)
        return [f * r + f / self.factor * (1 - r) for f, r in zip(plain, ramp, strict=True)]

    def _yarn_ramp(self) -> list[float]:
        """YaRN (Peng et al. 2023): from 1 for pairs that rotate often in the original context to 0 for slow ones."""

        def pair(rotations: float) -> float:
            return self.dim * log(self.original_context / (rotations * 2 * pi)) / (2 * log(self.base))

        first = max(0, floor(pair(self.beta_fast)))
        last = min(self.dim - 1, ceil(pair(self.beta_slow)))
        return [1 - min(1.0, max(0.0, (i - first) / max(0.001, last - first))) for i in range(self.dim // 2)]


def frequencies(dim: int, base: float, factors: Sequence[float] | None = None) -> list[float]:
    """Radians per position for each pair, (dim / 2,): base^(-2i / dim) / factors[i]."""
    plain = [base ** (-2 * i / dim) for i in range(dim // 2)]
    if not factors:
        return plain
    if len(factors) != len(plain) or not all(0 < d < inf for d in factors):
        raise WispError(
            f"The file's RoPE factors must be {len(plain)} positive numbers. Download the model again.",
            "corrupt_header",
        )
    return [f / d for f, d in zip(plain, factors, strict=True)]


def table(freqs: Sequence[float]) -> bytes:
    """The u32 table that rope.wgsl reads."""
    if not all(0 <= f < 2**40 for f in freqs):  # not NaN either
        raise WispError("The file's RoPE frequencies are damaged. Download the model again.", "corrupt_header")
    return struct.pack(f"<{len(freqs)}I", *(round(f / (2 * pi) * 2**32) % 2**32 for f in freqs))
