"""Step 3.5: other numbers of heads in layers with a window, a gate for each head, and limits of the networks.

Layers without a window rotate half of the dimensions. Source: llama.cpp's `step35` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import (
    block_count,
    natural,
    per_layer_limits,
    rope_base,
    windowed_dimensions,
    windows,
)
from py_engine.plan.rope import Factors

NEOX = True


@dataclass(frozen=True)
class Config(config.UnevenConfig):
    """The hyperparameters. Where layers differ: the largest."""

    limits: tuple[tuple[float, float], ...] = ()  # of every layer: of the experts, of other networks; 0: none

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header) - natural(header, "nextn_predict_layers")
        base, window = cls.of_layers(header, blocks), windows(header, blocks, 1)
        rope = base.ropes[0]
        if rope.dim % 4:
            raise WispError("Step 3.5 with this rotation is not supported yet.", "unsupported_architecture")
        swa = rope.unscaled(rope_base(header, "rope.freq_base_swa"))
        local = replace(swa, dim=windowed_dimensions(header, rope.dim, base.head_dim), factors=Factors.NONE)
        whole = replace(rope, dim=rope.dim // 2, factors=Factors.FIRST)
        names = ("swiglu_clamp_exp", "swiglu_clamp_shexp")
        return replace(
            base,
            limits=tuple(zip(*(per_layer_limits(header, name, blocks) for name in names), strict=True)),
            windows=window,
            ropes=tuple(local if windowed else whole for windowed in window),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        routed, other = (f"silu<{limit}" if limit else "silu" for limit in self.limits[i])
        return replace(super().layer(i), activation=other, expert_activation=routed)


build = decoder.build
output = decoder.output
