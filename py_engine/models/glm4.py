"""GLM 4 (0414): norms before and after each block, q, k and v biases, gate and up in one tensor, half of each head
rotated. ChatGLM 3 and GLM-4-9B lack the norms after a block. Source: llama.cpp's `glm4` and `chatglm` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        sections = header.arch("rope.dimension_sections", [])
        if not isinstance(sections, list) or any(sections):
            raise WispError("GLM vision models are not supported yet.", "unsupported_architecture")
        return super().from_gguf(header)


build = decoder.build
output = decoder.output
