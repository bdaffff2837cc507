"""Granite and MiniCPM: llama with scales of embedding, residual stream, attention and logits in the metadata.

Older MiniCPM files lack these keys: they get the defaults below. In Granite 4 H (`granitehybrid`), the layers with 0
key/value heads in the metadata are Mamba-2, and attention may go without rotation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number, switch, without_attention
from py_engine.models.recurrent import StateSpace

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
            if not switch(header, "rope.scaling.finetuned", True):
                base = replace(base, ropes=(config.NO_ROPE,) * base.block_count)
        if header.architecture == "granitehybrid":
            recurrent = without_attention(header, base.block_count)
            base = replace(base, recurrent=recurrent, attending=tuple(not state for state in recurrent))
            if any(base.recurrent):
                base = replace(base, state_space=StateSpace.from_gguf(header))
        return replace(
            base,
            embedding_scale=number(header, "embedding_scale", embedding),
            residual_scale=number(header, "residual_scale", residual),
            attention_scale=scores,
            logit_scale=1 / number(header, "logit_scale", logits),
        )


build = decoder.build
output = decoder.output
