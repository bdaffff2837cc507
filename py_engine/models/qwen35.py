"""Qwen 3.5 and Qwen3-Next: gated delta nets in most layers, attention with a gate in the others; dense or with experts.

Every `full_attention_interval`-th layer attends, unless the metadata lists the recurrent ones. Source: llama.cpp's
architectures `qwen35`, `qwen35moe` and `qwen3next`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, rope_sections
from py_engine.models.recurrent import StateSpace

C = TypeVar("C", bound="Config")
NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls: type[C], header: Header) -> C:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        sections = rope_sections(header) or ()
        recurrent = recurrent_layers(header, base.block_count)
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=StateSpace.from_gguf(header),
            ropes=tuple(replace(rope, sections=sections, interleaved=bool(sections)) for rope in base.ropes),
            ffn_norm="post_attention_norm",
            post_norms=("", ""),
        )


def recurrent_layers(header: Header, blocks: int, default: int = 4) -> tuple[bool, ...]:
    """Which layers are recurrent: those that the metadata lists, or all but the last of so many."""
    listed = header.arch("attention.recurrent_layers", None)
    if listed is None:
        interval = count(header, "full_attention_interval", default)
        return tuple((i + 1) % interval != 0 for i in range(blocks))
    if not isinstance(listed, list) or len(listed) < blocks or not all(type(value) is bool for value in listed):
        raise WispError("attention.recurrent_layers must be true or false for each layer.", "corrupt_header")
    return tuple(listed[:blocks])


build = decoder.build
output = decoder.output
