"""GLM 5 and DeepSeek V3.2: DeepSeek's latent attention, with an index that chooses the positions a token attends to.

The index chooses `attention.indexer.top_k` positions. A context of at most so many has no others, so every token
attends to all of it, and the index is not computed: longer contexts are not supported. Source: llama.cpp's
architectures `glm-dsa` and `deepseek32`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import count

NEOX = False


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        return replace(base, context_length=min(base.context_length, count(header, "attention.indexer.top_k")))


build = decoder.build
output = decoder.output
