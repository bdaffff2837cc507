"""Qwen 2 and 3, with or without experts, and the text part of their vision models; OLMoE, Seed-OSS, GLM 4.5, dots.llm1.

Their tensors distinguish them: Qwen 2 has q, k and v biases; Qwen 3 and dots.llm1 instead an RMS norm of each query
and key head; OLMoE one across all heads. Seed-OSS and GLM 4.5 have another name for the norm before the feed-forward
network.
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
