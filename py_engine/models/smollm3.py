"""SmolLM3: llama without RoPE in every fourth layer (Yang et al. 2025, "Rope to Nope")."""

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
        base = super().from_gguf(header)
        return replace(base, ropes=tuple(config.NO_ROPE if i % 4 == 3 else rope for i, rope in enumerate(base.ropes)))


build = decoder.build
output = decoder.output
