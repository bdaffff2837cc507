"""Llama as an encoder: every token attends to all others. NeoBERT differs in its tensors only.

Source: llama.cpp's `llama-embed` and `neo-bert` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        output_norm = "enc.output_norm" if header.architecture == "neo-bert" else "output_norm"
        return replace(super().from_gguf(header), causal=False, output_norm=output_norm)


build = decoder.build
