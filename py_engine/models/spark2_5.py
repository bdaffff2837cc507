"""Spark 2.5: GELU gates, and a gate for each head of attention. Layers with a window have other heads and rotations.

Source: llama.cpp's `spark2_5` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, windowed_dimensions, windowed_ropes, windows

NEOX = True


@dataclass(frozen=True)
class Config(config.UnevenConfig):
    """The hyperparameters. Where layers differ: the largest."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        base, found = cls.of_layers(header, blocks), windows(header, blocks, 1)
        size = windowed_dimensions(header, base.ropes[0].dim, base.head_dim)
        ropes = zip(found, windowed_ropes(header, base.ropes, found), strict=True)
        return replace(
            base,
            windows=found,
            ropes=tuple(replace(rope, dim=size) if window else rope for window, rope in ropes),
            activation="gelu",
        )


build = decoder.build
output = decoder.output
