"""PLaMo: llama whose attention and feed-forward network read the same norm. PLaMo 3: one after the other, more norms.

PLaMo 3 also normalises query and key heads, and may have a sliding window in seven layers of eight. The converter puts
PLaMo's heads in the order that llama has, and adds what PLaMo 3 adds to its norms' weights.
Source: llama.cpp's `plamo` and `plamo3` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import natural, rope_base, windows

NEOX = True
PERIOD = 8  # layers; the last of them attends to everything


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture == "plamo":
            return replace(base, parallel=True)
        if not natural(header, "attention.sliding_window"):
            return base
        layers, rope = windows(header, base.block_count, PERIOD), base.ropes[0]
        local = rope.unscaled(rope_base(header, "rope.freq_base_swa"))
        return replace(base, windows=layers, ropes=tuple(local if window else rope for window in layers))


build = decoder.build
output = decoder.output
