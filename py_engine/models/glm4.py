"""GLM 4 (0414): norms before and after each block, q, k and v biases, gate and up in one tensor, half of each head
rotated. ChatGLM 3 and GLM-4-9B lack the norms after a block. The text part of GLM-4.1V rotates by M-RoPE.
Source: llama.cpp's `glm4` and `chatglm` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import rope_sections

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        sections = rope_sections(header) if header.architecture == "glm4" else ()
        return replace(base, ropes=tuple(replace(rope, sections=sections) for rope in base.ropes))


build = decoder.build
output = decoder.output
