"""Qwen 1 to 3, with or without experts, and the text part of their vision models and of PaddleOCR-VL; OLMoE, Seed-OSS,
GLM 4.5, dots.llm1, openPangu, Hunyuan, HunyuanOCR, HY V3; the diffusion models Dream (Qwen 2), RND1 (Qwen 3 with
experts) and LLaDA-MoE.

Their tensors distinguish them: Qwen 1 and 2 have q, k and v biases; Qwen 3, dots.llm1 and HY V3 instead an RMS norm of
each query and key head; OLMoE one across all heads. Hunyuan normalises after RoPE. Seed-OSS and GLM 4.5 name the norm
before the feed-forward network otherwise. The vision models rotate by M-RoPE; from Qwen 3 on, its axes take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import optional_number, rope_sections
from py_engine.plan.rope import RopeSpec

NEOX = True
NORM_AFTER_ROPE = ("hunyuan-dense", "hunyuan-moe", "hunyuan_vl")
INTERLEAVED = ("qwen3vl", "qwen3vlmoe")


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture == "qwen":  # its metadata counts the gate's rows and the up's
            return replace(base, feed_forward_length=base.feed_forward_length // 2)
        if header.architecture in NORM_AFTER_ROPE:
            base = replace(base, norm_after_rope=True, ropes=_stretched(header, base))
        if header.architecture in ("seed_oss", "glm4moe"):
            base = replace(base, ffn_norm="post_attention_norm", post_norms=("", ""))
        if sections := rope_sections(header):
            turns = header.architecture in INTERLEAVED
            ropes = tuple(replace(rope, sections=sections, interleaved=turns) for rope in base.ropes)
            return replace(base, ropes=ropes)
        return base


def _stretched(header: Header, base: config.Config) -> tuple[RopeSpec, ...]:
    """Hunyuan's rotations, slower by `rope.scaling.alpha`: "NTK-aware" scaling of the frequencies' base."""
    alpha = optional_number(header, "rope.scaling.alpha")
    if not alpha:
        return base.ropes
    factor = alpha ** (base.head_dim / (base.head_dim - 2))
    return tuple(replace(rope, base=rope.base * factor) for rope in base.ropes)


build = decoder.build
output = decoder.output
