"""MiniCPM 3: latent attention in a dense model whose embeddings, residual stream and logits are scaled.

Source: llama.cpp's `minicpm3` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2

NEOX = True


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata. The scales are not in it."""
        base = super().from_gguf(header)
        return replace(
            base,
            embedding_scale=12.0,
            scaled_media=True,
            residual_scale=1.4 / base.block_count**0.5,
            logit_scale=256 / base.embedding_length,
        )


build = decoder.build
output = decoder.output
