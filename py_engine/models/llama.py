"""Llama: RMS norm, grouped-query attention with RoPE, SwiGLU.

Source: llama.cpp's `llama` architecture, which Mistral's models use, too. InternLM 2, XVERSE, Ernie 4.5, Baichuan 7B
and Mistral 3 differ only in name; LLaDA generates by diffusion. Arcee has an ungated network. Maincoder normalises
queries and keys after RoPE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number, original_context
from py_engine.plan.attention import Temperature

# Baichuan with 32 layers has RoPE, with 40 ALiBi. With any other number, llama.cpp gives tokens no positions.
LAYERS_7B, LAYERS_13B = 32, 40
ALIBI_MAX_BIAS = 8.0
NEOX = False  # GGUF's llama converter interleaves the rotated pairs


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        if name == "maincoder":
            return replace(base, norm_after_rope=True)
        if name == "arcee":
            return replace(base, activation="relu2")
        if name == "baichuan" and base.block_count != LAYERS_7B:
            alibi = ALIBI_MAX_BIAS if base.block_count == LAYERS_13B else 0.0
            return replace(base, ropes=(config.NO_ROPE,) * base.block_count, alibi_max_bias=alibi)
        if name == "mistral3" and (scale := optional_number(header, "attention.temperature_scale")):
            return replace(base, temperature=Temperature(original_context(header), scale))
        return base


build = decoder.build
output = decoder.output
