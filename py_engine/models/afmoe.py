"""AFMoE (Arcee's Trinity): a mixture of experts with norms before and after each block and a gate of attention.

Layers with a sliding window use RoPE, the others do not. Source: llama.cpp's `afmoe` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import windowed_ropes, windows

NEOX = True
PERIOD = 4  # the last layer of so many rotates nothing


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        layers = windows(header, base.block_count, PERIOD)
        rotated = windowed_ropes(header, base.ropes, layers)
        ropes = (config.NO_ROPE if (i + 1) % PERIOD == 0 else rope for i, rope in enumerate(rotated))
        return replace(
            base,
            windows=layers,
            ropes=tuple(ropes),
            embedding_scale=base.embedding_length**0.5,
            scaled_media=True,
        )


build = decoder.build
output = decoder.output
