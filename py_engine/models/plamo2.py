"""PLaMo 2: Mamba in most layers, attention in the others; norms before and after both blocks.

A layer's Mamba has Mamba-2's scan and Mamba's projections. The layers with 0 heads in the metadata are recurrent.
Source: llama.cpp's `plamo2` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import without_attention
from py_engine.models.recurrent import StateSpace

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(_with_one_head_count(header))
        recurrent = without_attention(header, base.block_count)
        states = replace(StateSpace.from_gguf(header), group_count=1, convolves_keys=False)
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
        )


def _with_one_head_count(header: Header) -> Header:
    """The header with the heads of the layers that attend, in place of those of all layers."""
    key = "attention.head_count"
    heads = header.arch(key)
    if not isinstance(heads, list):
        return header
    counts = {n for n in heads if n != 0} if all(type(n) is int for n in heads) else set()
    if len(counts) != 1:
        raise WispError(f"{key} must be the same for all layers that have attention.", "corrupt_header")
    return replace(header, metadata=header.metadata | {f"{header.architecture}.{key}": counts.pop()})


build = decoder.build
output = decoder.output
