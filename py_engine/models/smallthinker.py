"""SmallThinker: a mixture of experts with ReLU gates whose router reads the layer's input, before attention.

With a sliding window, the first of every four layers attends to everything and does not rotate.
Source: llama.cpp's `smallthinker` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import natural, windowed_ropes

NEOX = True
WINDOW = 4096  # llama.cpp's, whatever the metadata says
PERIOD = 4


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = replace(super().from_gguf(header), activation="relu", routes_input=True)
        base.need_mixture("SmallThinker")
        if not natural(header, "attention.sliding_window"):
            return base
        layers = tuple(WINDOW if i % PERIOD else 0 for i in range(base.block_count))
        ropes = windowed_ropes(header, base.ropes, layers)
        if base.block_count != PERIOD:  # as llama.cpp has it: with so many layers, all rotate
            ropes = tuple(rope if window else config.NO_ROPE for window, rope in zip(layers, ropes, strict=True))
        return replace(base, windows=layers, ropes=ropes)


build = decoder.build
output = decoder.output
