"""Decoders with ALiBi in place of RoPE: BLOOM, MPT, Refact and Jais 1.

BLOOM normalises its embeddings. MPT may clamp queries, keys and values. Refact has RMS norms and a gated network, Jais
layer norms and a gated network. Source: llama.cpp's architectures of these names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number

NEOX = False
ALIBI_MAX_BIAS = 8.0  # of BLOOM and Refact, whose metadata has none


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        fixed = name in ("bloom", "refact")
        return replace(
            base,
            ropes=(config.NO_ROPE,) * base.block_count,
            alibi_max_bias=ALIBI_MAX_BIAS if fixed else optional_number(header, "attention.max_alibi_bias"),
            activation="gelu" if name in ("bloom", "mpt") else "silu",
            embedding_norm="token_embd_norm" if name == "bloom" else "",
            qkv_limit=optional_number(header, "attention.clamp_kqv") if name == "mpt" else 0.0,
            attention_scale=1 / base.head_dim if name == "jais" else base.attention_scale,
        )


build = decoder.build
output = decoder.output
