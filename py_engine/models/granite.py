"""Granite and MiniCPM: llama with scales of embedding, residual stream, attention and logits in the metadata.

Older MiniCPM files lack these keys: they get the defaults below. In Granite 4 H (`granitehybrid`), the layers with 0
key/value heads in the metadata are Mamba-2, and attention may go without rotation. `granite_swa` has attention sinks;
the metadata says which layers have a sliding window, and which rotate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import deepstack, number, switch, windows, without_attention
from py_engine.models.recurrent import StateSpace
from py_engine.plan.rope import RopeSpec

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        embedding, residual, logits, scores = 1.0, 1.0, 1.0, base.attention_scale
        if header.architecture == "minicpm":
            embedding, residual, logits = 12.0, 1.4 / base.block_count**0.5, 256 / base.embedding_length
        else:
            scores = number(header, "attention.scale", scores)
            if header.architecture == "granite_swa":
                base = replace(base, windows=windows(header, base.block_count, 1), ropes=_rotated(header, base))
            elif not switch(header, "rope.scaling.finetuned", True):
                base = replace(base, ropes=(config.NO_ROPE,) * base.block_count)
        if header.architecture == "granitehybrid":
            recurrent = without_attention(header, base.block_count)
            base = replace(base, recurrent=recurrent, attending=tuple(not state for state in recurrent))
            if any(base.recurrent):
                base = replace(base, state_space=StateSpace.from_gguf(header))
        return replace(
            base,
            embedding_scale=number(header, "embedding_scale", embedding),
            scaled_media=not deepstack(header),
            residual_scale=number(header, "residual_scale", residual),
            attention_scale=scores,
            logit_scale=1 / number(header, "logit_scale", logits),
        )


def _rotated(header: Header, base: config.Config) -> tuple[RopeSpec, ...]:
    """Rotation of each layer; NO_ROPE where attention.rope_pattern is false."""
    pattern = header.arch("attention.rope_pattern", [True] * base.block_count)
    if not isinstance(pattern, list) or len(pattern) < base.block_count:
        raise WispError("attention.rope_pattern must have a truth value for each layer.", "corrupt_header")
    return tuple(rope if on else config.NO_ROPE for rope, on in zip(base.ropes, pattern, strict=False))


build = decoder.build
output = decoder.output
