"""MiMo V2: value heads of another length than key heads, attention sinks, and other heads in layers with a window.

Source: llama.cpp's `mimo2` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import (
    block_count,
    dimension,
    natural,
    optional_number,
    rope_base,
    windows,
)

NEOX = True


@dataclass(frozen=True)
class Config(config.UnevenConfig):
    """The hyperparameters. Where layers differ: the largest."""

    @classmethod
    def value_length(cls, header: Header, head_dim: int) -> int:
        """Values may have another length."""
        return head_dim

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header) - natural(header, "nextn_predict_layers")
        base = cls.of_layers(header, blocks)
        value_dim = dimension(header, "attention.value_length", base.head_dim, base.head_count_kv)
        rope, local = base.ropes[0], base.ropes[0].unscaled(rope_base(header, "rope.freq_base_swa"))
        found = windows(header, blocks, 1)
        return replace(
            base,
            value_dim=value_dim,
            key_dim=base.head_dim if value_dim > base.head_dim else 0,
            head_dim=max(value_dim, base.head_dim),
            value_scale=optional_number(header, "attention.value_scale") or 1.0,
            windows=found,
            ropes=tuple(local if window else rope for window in found),
        )


build = decoder.build
output = decoder.output
