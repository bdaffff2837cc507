"""GPT-2 and its descendants: layer norms, biases and an ungated GELU network.

GPT-2 and StarCoder add position embeddings instead of RoPE. Phi-2 and, optionally, GPT-NeoX run attention and
feed-forward network in parallel. Nemotron uses squared ReLU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number, switch

NEOX = True
ACTIVATIONS = {"nemotron": "relu2", "jais2": "relu2", "dbrx": "silu"}


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, name = super().from_gguf(header), header.architecture
        return replace(
            base,
            activation=ACTIVATIONS.get(name, "gelu"),
            parallel=name == "phi2" or (name == "gptneox" and switch(header, "use_parallel_residual", True)),
            ffn_norm="attn_output_norm" if name == "dbrx" else base.ffn_norm,
            qkv_limit=optional_number(header, "attention.clamp_kqv") if name == "dbrx" else 0.0,
            ropes=(config.NO_ROPE,) * base.block_count if name in ("gpt2", "starcoder") else base.ropes,
        )


build = decoder.build
output = decoder.output
