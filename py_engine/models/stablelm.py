"""StableLM and Orion: layer norms, a gated SiLU network, a part of each head rotated.

A feed-forward network without its own norm runs in parallel with attention.
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
        return replace(super().from_gguf(header), parallel="blk.0.ffn_norm.weight" not in header.tensors)


build = decoder.build
output = decoder.output
