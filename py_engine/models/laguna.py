"""Laguna: experts, norms of queries and keys, and gates of attention by softplus, of each head or of each value.

Layers with a sliding window may have other heads, and rotate other dimensions, which YaRN does not scale.
Source: llama.cpp's `laguna` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, rope_base, windowed_dimensions, windows

NEOX = True
PERIOD = 4  # the first layer of so many has no window


@dataclass(frozen=True)
class Config(config.UnevenConfig):
    """The hyperparameters. Where layers differ: the largest."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        base, found = cls.of_layers(header, blocks), windows(header, blocks, PERIOD, first=True)
        rope = base.ropes[0]
        local = replace(
            rope.unscaled(rope_base(header, "rope.freq_base_swa", rope.base)),
            dim=windowed_dimensions(header, rope.dim, base.head_dim),
            attn_factor=1.0,
        )
        if found[0]:  # as in llama.cpp, the other layers then rotate as many dimensions as the first
            rope = replace(rope, dim=local.dim)
        return replace(
            base,
            windows=found,
            ropes=tuple(local if window else rope for window in found),
            gate_activation="softplus",
        )


build = decoder.build
output = decoder.output
