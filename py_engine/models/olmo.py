"""OLMo 1: layer norms without weights; queries, keys and values may be clamped.

Source: llama.cpp's `olmo` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        limit = optional_number(header, "attention.clamp_kqv")
        return replace(super().from_gguf(header), plain_norms=True, qkv_limit=limit)


build = decoder.build
output = decoder.output
