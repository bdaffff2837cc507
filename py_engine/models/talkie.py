"""Talkie: norms without weights, queries and keys normalised after their rotation, and embeddings added in each layer.

Source: llama.cpp's `talkie` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        return replace(
            super().from_gguf(header),
            plain_norms=True,
            single_query_norm=True,
            unit_embeddings=True,
            adds_embeddings=True,
            logit_scale=number(header, "logit_scale"),
        )


build = decoder.build
output = decoder.output
