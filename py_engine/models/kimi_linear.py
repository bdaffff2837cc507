"""Kimi Linear (Kimi Team 2025): gated delta nets in most layers, latent attention in the others; experts.

The delta nets' decay differs by the dimensions of a key. Attention does not rotate. The layers with 0 key/value heads
in the metadata are recurrent. Source: llama.cpp's `kimi-linear` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import dimension, without_attention
from py_engine.models.recurrent import StateSpace
from py_engine.plan.rope import RopeSpec

NEOX = False
LATER_TENSORS = ("attn_gate", "attn_res_norm", "ffn_latent_down")  # of models after Kimi Linear


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if any(f".{part}." in name for name in header.tensors for part in LATER_TENSORS):
            raise WispError("This model of Kimi's is not supported yet.", "unsupported_architecture")
        recurrent = without_attention(header, base.block_count)
        heads, size = base.head_count, dimension(header, "kda.head_dim", times=base.head_count)
        states = StateSpace(dimension(header, "ssm.conv_kernel"), heads * size, size, heads, heads)
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
            ropes=tuple(RopeSpec(rope.dim, rotates=False) for rope in base.ropes),
        )


build = decoder.build
output = decoder.output
