"""Granite: llama with scales of the embedding, the residual stream, attention and the logits in its metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.gguf_header import Header
from py_engine.models import decoder
from py_engine.models.common import number

NEOX = False


@dataclass(frozen=True)
class Config(decoder.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        return replace(
            base,
            embedding_scale=number(header, "embedding_scale", 1.0),
            residual_scale=number(header, "residual_scale", 1.0),
            attention_scale=number(header, "attention.scale", base.attention_scale),
            logit_scale=1 / number(header, "logit_scale", 1.0),
        )


build = decoder.build
output = decoder.output
