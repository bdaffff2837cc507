"""Jamba: Mamba in most layers, attention without rotation in the others, then a feed-forward network or experts.

The layers with 0 key/value heads in the metadata are recurrent. Source: llama.cpp's `jamba` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import without_attention
from py_engine.models.recurrent import StateSpace

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        recurrent = without_attention(header, base.block_count)
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=StateSpace.from_gguf(header),
            ropes=(config.NO_ROPE,) * base.block_count,
        )


build = decoder.build
output = decoder.output
