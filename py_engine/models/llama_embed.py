"""Llama as an encoder: every token attends to all others. NeoBERT differs in its tensors only.

Source: llama.cpp's `llama-embed` and `neo-bert` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture == "neo-bert":
            return replace(base, causal=False, output_norm="enc.output_norm")
        if base.causal:
            name = header.architecture
            raise WispError(
                f"Wisp runs {name} models in which every token sees all others. This file's metadata does not say so: "
                f"{name}.attention.causal must be false.",
                "unsupported_architecture",
            )
        return base


build = decoder.build
