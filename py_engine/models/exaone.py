"""EXAONE 3, a llama but for the pairs that rotate, and EXAONE 4: norms behind each part and of each query and key head;
in its 32B model three layers of four have a window, and only they rotate. Source: llama.cpp's architectures of these
names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, number

NEOX = True
BIG, WINDOW = 64, 4096  # layers of the 32B model, and the window where the metadata has none


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture == "exaone" or base.block_count != BIG:
            return base
        window = count(header, "attention.sliding_window", WINDOW)
        rope = base.ropes[0]
        local = replace(rope, base=number(header, "rope.freq_base_swa", rope.base))
        has = [i % 4 < 3 for i in range(base.block_count)]
        return replace(
            base,
            windows=tuple(window if w else 0 for w in has),
            ropes=tuple(local if w else config.NO_ROPE for w in has),
        )


build = decoder.build
output = decoder.output
