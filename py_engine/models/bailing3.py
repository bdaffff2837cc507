"""Ling 3: Kimi's gated delta nets, whose decays have a lower bound, and latent attention with a gate for each head.

The layers with 0 key/value heads in the metadata are recurrent. Attention rotates, perhaps by M-RoPE. Source:
llama.cpp's `bailingmoe3` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import dimension, per_layer_limits, rope_sections, switch, without_attention
from py_engine.models.recurrent import StateSpace

NEOX = False


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    limits: tuple[tuple[float, float], ...] = ()  # of every layer: of the experts, of other networks; 0: none

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        recurrent = without_attention(header, base.block_count)
        heads, size = base.head_count, dimension(header, "kda.head_dim", times=base.head_count)
        kernel, bound = dimension(header, "ssm.conv_kernel"), decay_bound(header)
        names, sections = ("swiglu_clamp_exp", "swiglu_clamp_shexp"), rope_sections(header)
        return replace(
            base,
            ropes=tuple(replace(rope, sections=sections) for rope in base.ropes),
            limits=tuple(zip(*(per_layer_limits(header, name, base.block_count) for name in names), strict=True)),
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=StateSpace(kernel, heads * size, size, heads, heads, decay_bound=bound).checked(),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        routed, other = (f"silu<{limit}" if limit else "silu" for limit in self.limits[i])
        return replace(self, activation=other, expert_activation=routed)


def decay_bound(header: Header) -> float:
    """Read the smallest exponent of a decay. WispError corrupt_header if it is no negative number."""
    bound = header.arch("kda.gate_lower_bound")
    if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not -1e30 < bound < 0:
        raise WispError("kda.gate_lower_bound must be a negative number.", "corrupt_header")
    if not switch(header, "kda.safe_gate", True):
        raise WispError("Decays without a lower bound are not supported in Ling 3.", "unsupported_architecture")
    return float(bound)


build = decoder.build
output = decoder.output
