"""DeepSeek V2 and V3, and models of their kind (GLM-4.7-Flash, Kimi K2, Mistral 4): latent attention, experts.

Older files have one matrix for a head's keys and values, newer ones two, the keys' transposed. PLM has no experts, and
an ungated network. Source: llama.cpp's `deepseek2`, `mistral4` and `plm` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, dimension, optional_number
from py_engine.plan.attention import Temperature
from py_engine.plan.latent_attention import LatentShape
from py_engine.plan.rope import RopeSpec

C = TypeVar("C", bound="Config")
NEOX = False
TEMPERED = ("deepseek2", "mistral4")  # architectures whose queries may have a temperature
SCALED_SCORES = (*TEMPERED, "glm-dsa", "deepseek32")  # whose scores depend on the scaling of the rotation
WITHOUT_MULTIPLIER = ("glm-dsa",)  # whose yarn_log_multiplier llama.cpp does not read


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def key_length(cls, header: Header, default: int, n_head: int) -> int:
        """The metadata may hold the length of the latent and the rotated part.

        All heads share that, so `n_head` times it need not fit a tensor.
        """
        return dimension(header, "attention.key_length", default)

    @classmethod
    def value_length(cls, header: Header, head_dim: int) -> int:
        """The metadata may hold the latent's length, or a value head's."""
        return head_dim

    @classmethod
    def from_gguf(cls: type[C], header: Header) -> C:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        rank, rope = dimension(header, "attention.kv_lora_rank"), base.ropes[0].dim
        suffix = "_mla" if header.arch("attention.key_length_mla", 0) else ""
        key = dimension(header, f"attention.key_length{suffix}", times=base.head_count)
        value = dimension(header, f"attention.value_length{suffix}", times=base.head_count)
        if rope < 4 or key <= rope or any(n % 4 for n in (rank, rope, key, value)):
            raise WispError("Wisp cannot run latent attention of these dimensions.", "corrupt_header")
        spec, scale = _scaled(header, base.ropes[0])
        temperature = None
        if header.architecture in TEMPERED and (growth := optional_number(header, "attention.temperature_scale")):
            temperature = Temperature(count(header, "attention.temperature_length"), growth)
        return replace(
            base,
            head_count_kv=1,
            head_dim=rank + rope,
            ropes=(spec,) * base.block_count,
            temperature=temperature,
            activation="relu2" if header.architecture == "plm" else "silu",
            attention_scale=scale**2 * key**-0.5,
            latent=LatentShape(base.head_count, rank, key - rope, rope, value),
        )


def _scaled(header: Header, rope: RopeSpec) -> tuple[RopeSpec, float]:
    """(the rotation, a factor of queries and of keys): with yarn_log_multiplier, YaRN's magnitude applies to scores.

    As llama.cpp has it: without YaRN, other scalings have the factor, too.
    """
    if header.architecture not in SCALED_SCORES:
        return rope, 1.0
    log_factor = 0.0 if rope.scaling == "none" or rope.factor <= 0 else log(rope.factor)
    multiplier = 0.0
    if header.architecture not in WITHOUT_MULTIPLIER:
        multiplier = optional_number(header, "rope.scaling.yarn_log_multiplier")  # llama.cpp's, with YaRN's 0.1 in it
    if rope.scaling == "yarn" and multiplier:
        divisor = 0.1 if header.architecture == "deepseek2" else multiplier
        rope = replace(rope, attn_factor=rope.attn_factor / (1 + divisor * max(0.0, log_factor)))
    magnitude = 1 + 0.1 * (max(0.0, log_factor) if rope.scaling == "yarn" else log_factor)  # YaRN's is never below 1
    return rope, rope.attn_factor * magnitude * (1 + multiplier * log_factor)


build = decoder.build
output = decoder.output
