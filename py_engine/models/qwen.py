"""Qwen 2 (biases of q, k and v) and Qwen 3 (an RMS norm of each query and key head instead), with or without experts,
and the text half of those that see; OLMoE (an RMS norm of all queries and all keys): what they differ in, their tensors
tell. Seed-OSS and GLM 4.5 have another name for the norm before the net; dots.llm1 is a Qwen 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture in ("seed_oss", "glm4moe"):
            return replace(base, ffn_norm="post_attention_norm", post_norms=("", ""))
        return base


build = decoder.build
output = decoder.output
