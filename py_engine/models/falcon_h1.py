"""Falcon-H1: attention and Mamba-2 side by side in every layer, added together.

Its multipliers are in the weights. Source: llama.cpp's `falcon-h1` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.recurrent import StateSpace

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        return replace(base, recurrent=(True,) * base.block_count, state_space=StateSpace.from_gguf(header))


build = decoder.build
output = decoder.output
