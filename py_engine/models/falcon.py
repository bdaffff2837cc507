"""Falcon: layer norms; an ungated GELU network in parallel with attention; few key/value heads.

From 40B on attention has its own norm. Source: llama.cpp's `falcon` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        two_norms = "blk.0.attn_norm_2.weight" in header.tensors
        return replace(
            super().from_gguf(header),
            parallel=True,
            activation="gelu",
            attn_norm="attn_norm_2" if two_norms else "attn_norm",
        )


build = decoder.build
output = decoder.output
