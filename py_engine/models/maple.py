"""Maple: a mixture of experts whose gates are limited before SiLU. Only layers with a sliding window rotate.

Source: llama.cpp's `maple` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import per_layer_limits, windowed_dimensions, windowed_ropes, windows

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    limits: tuple[float, ...] = ()  # of every layer's experts; 0: none

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        header.arch("swiglu_clamp_exp")  # must be there
        layers = windows(header, base.block_count, 1)
        size = windowed_dimensions(header, base.ropes[0].dim, base.head_dim)
        ropes = zip(layers, windowed_ropes(header, base.ropes, layers), strict=True)
        return replace(
            base,
            windows=layers,
            ropes=tuple(replace(rope, dim=size) if window else config.NO_ROPE for window, rope in ropes),
            limits=per_layer_limits(header, "swiglu_clamp_exp", base.block_count),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        limit = self.limits[i]
        return replace(self, expert_activation=f"clamped_silu<{limit}" if limit else "silu")


build = decoder.build
output = decoder.output
