"""Rotary position embedding: the frequency table, with the metadata's scaling, computed once on the host.

Frequencies are stored as turns per position in units of 2^-32. Position x frequency then wraps exactly in 32-bit
integer arithmetic, so sine and cosine get angles within one turn only, however long the context is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from math import ceil, floor, inf, log, pi

from py_engine.errors import WispError
from py_engine.plan.plan import Buffer

TEXT_AXES = 3  # axes of tokens of text; axis 3 is a picture's number (HunyuanOCR)
NO_AXIS = 4  # of a pair that M-RoPE does not rotate


class Pairs(IntEnum):
    """Which dimensions rotate together, as the kernels' #param NEOX has it."""

    NEIGHBOURS = 0  # 2i and 2i + 1
    HALVES = 1  # i and i + dim / 2, as in GPT-NeoX
    IN_EACH_HALF = 2  # each half of the dimensions has pairs of its own, half of it apart


@dataclass(frozen=True)
class Rope:
    """How queries and keys are rotated. `freqs`: the table on the device, u32 (dim / 2,)."""

    dim: int
    pairs: Pairs
    freqs: Buffer
    scale: float = 1.0
    shifts: int | None = None  # M-RoPE: index of the sequences' shifts in the state buffer's tables
    per_token: bool = False  # `freqs` has the turns of each token of a batch, (n, dim / 2): any number of axes
    anchor: int = 0  # not 0: index in the state buffer's tables of the sequences' anchors (models/gemma4_assistant.py)

    @property
    def params(self) -> dict[str, int]:
        """The #params of the kernels that rotate."""
        mrope = {} if self.shifts is None else {"MROPE": 1, "SHIFTS": self.shifts}
        turns = {"TURNS": 1} if self.per_token else {}
        anchor = {"ANCHOR": self.anchor} if self.anchor else {}
        return {"ROPE_DIM": self.dim, "NEOX": int(self.pairs)} | mrope | turns | anchor


class Factors(Enum):
    """Which of a file's divisors of frequencies a layer's pairs have."""

    NONE = "none"
    FIRST = "first"  # the file has them for more pairs than these
    ALL = "all"


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
    factors: Factors = Factors.ALL  # which of the file's divisors of frequencies count, if it has them
    sections: tuple[int, ...] = ()  # M-RoPE: pairs for each axis: time, down, across, a picture's number
    rotates: bool = True  # False: queries and keys keep the layout of rotated ones, but no angle is ever other than 0
    interleaved: bool = False  # of M-RoPE: the axes take turns, pair by pair; else the sections follow each other

    @property
    def magnitude(self) -> float:
        """The factor of rotated queries and keys."""
        return self.attn_factor * (1 + 0.1 * log(max(1.0, self.factor)) if self.scaling == "yarn" else 1.0)

    def unscaled(self, base: float) -> RopeSpec:
        """The rotation in layers with a sliding window, whose positions are not scaled, with another base.

        attn_factor stays: of llama.cpp's graphs, only those of OLMo 3, Mellum 2 and Laguna do without it there. They
        divide it by YaRN's magnitude before a layer multiplies by it; here, this cancels but for a factor below 1.
        """
        divided = 1 + 0.1 * min(0.0, log(self.factor)) if self.scaling == "yarn" else 1.0
        return replace(self, base=base, scaling="none", factor=1.0, attn_factor=self.attn_factor / divided)

    def frequencies(self, divisors: Sequence[float] | None, axes: int = TEXT_AXES) -> list[float]:
        """Radians per position for each pair, (dim / 2,). `divisors`: the file's, if it has them.

        M-RoPE: pairs of the first so many axes; others are not rotated.
        """
        if not self.rotates:
            return [0.0] * (self.dim // 2)
        own = divisors[: self.dim // 2] if divisors and self.factors is Factors.FIRST else divisors
        plain = frequencies(self.dim, self.base, own if self.factors is not Factors.NONE else None)
        if self.sections:
            plain = [f if axis < axes else 0.0 for f, axis in zip(plain, self.axes, strict=True)]
        if self.scaling == "none":
            return plain
        ramp = self._yarn_ramp() if self.scaling == "yarn" else [0.0] * len(plain)
        return [f * r + f / self.factor * (1 - r) for f, r in zip(plain, ramp, strict=True)]

    def in_quads(self, *, neox: bool, zeros: bool = False) -> tuple[int, bool]:
        """(dimensions that kernels rotate, whether their pairs are half of these apart).

        Kernels rotate two pairs at once. An odd number of neighbouring pairs gets one more, which has no angle.
        `zeros`: its values are zeros, after the other pairs or after each half.
        """
        if self.dim % 4 == 0:
            return self.dim, neox
        if neox and self.dim > 2 and zeros:
            return self.dim + 2, True
        if (neox and self.dim > 2) or self.sections or (self.magnitude != 1 and not zeros):
            raise WispError(f"Wisp cannot rotate {self.dim} dimensions in this way.", "unsupported_architecture")
        return self.dim + 2, False  # the only pair that is half of the dimensions apart is of neighbours

    @property
    def axes(self) -> list[int]:
        """M-RoPE: the axis of each pair's position: 0 time, 1 down, 2 across, 3 number; NO_AXIS: it is not rotated.

        Source: ggml's rope with the modes mrope and imrope.
        """
        time, down, across, *_ = self.sections
        cycle = sum(self.sections)
        ends = (time, time + down, time + down + across)
        axes = []
        for pair in range(self.dim // 2):
            at = pair % cycle
            if self.interleaved:
                axes.append(at % 3 if at < 3 * self.sections[at % 3] else NO_AXIS)
            else:
                axes.append(sum(at >= end for end in ends))
        return axes

    def _yarn_ramp(self) -> list[float]:
        """YaRN (Peng et al. 2023): from 1 for pairs that rotate often in the original context to 0 for slow ones."""

        def pair(rotations: float) -> float:
            return self.dim * log(self.original_context / (rotations * 2 * pi)) / (2 * log(self.base))

        first = max(0, floor(pair(self.beta_fast)))
        last = min(self.dim - 1, ceil(pair(self.beta_slow)))
        return [1 - min(1.0, max(0.0, (i - first) / max(0.001, last - first))) for i in range(self.dim // 2)]


def media_table(name: str) -> str:
    """Name of the frequency table for batches with media, which also rotates by a picture's number."""
    return f"{name}.media"


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


def table(freqs: Sequence[float], axes: Sequence[int] = ()) -> bytes:
    """The u32 table that rope.wgsl reads: frequencies, then the axes of M-RoPE."""
    if not all(0 <= f < 2**40 for f in freqs):  # not NaN either
        raise WispError("The file's RoPE frequencies are damaged. Download the model again.", "corrupt_header")
    turns = [round(f / (2 * pi) * 2**32) % 2**32 for f in freqs]
    return struct.pack(f"<{len(turns) + len(axes)}I", *turns, *(axis % NO_AXIS for axis in axes))
