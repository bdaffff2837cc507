"""MiniMax-M3: leading dense layers, then experts beside a shared one, and an index that chooses blocks of positions.

The index chooses `attention.indexer.top_k` blocks of `attention.indexer.block_size` positions. As in GLM 5
(glm_dsa.py), contexts are limited to as many positions, of which it would choose all, and it is not computed. Source:
llama.cpp's `minimax-m3` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("MiniMax-M3")
        chosen = count(header, "attention.indexer.top_k") * count(header, "attention.indexer.block_size")
        return replace(base, context_length=min(base.context_length, chosen), activation="swiglu_oai")


build = decoder.build
output = decoder.output
