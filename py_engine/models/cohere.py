"""Command R and R7B (cohere2): layer norms without bias; attention and feed-forward network in parallel.

Command R+ also normalises each query and key head. In R7B only layers with a sliding window use RoPE.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number, windows

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base = replace(base, parallel=True, logit_scale=number(header, "logit_scale", 1.0))
        if header.architecture != "cohere2":
            return base
        layers = windows(header, base.block_count, 4)
        ropes = tuple(rope if window else config.NO_ROPE for window, rope in zip(layers, base.ropes, strict=True))
        return replace(base, windows=layers, ropes=ropes)


build = decoder.build
output = decoder.output
