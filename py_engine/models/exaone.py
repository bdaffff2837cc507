"""EXAONE 3, a llama with NeoX pairs, EXAONE 4, and K-EXAONE, a mixture of experts.

EXAONE 4 has norms after each block and of each query and key head. In its 32B model three layers of four have a sliding
window, and only they use RoPE, as in K-EXAONE, which has its norms before the blocks.
Source: llama.cpp's architectures `exaone`, `exaone4` and `exaone-moe`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, rope_base, windows

NEOX = True
LAYERS_32B = 64
DEFAULT_WINDOW = 4096


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        if header.architecture == "exaone-moe":
            layers = windows(header, base.block_count, 4)
            ropes = tuple(rope if w else config.NO_ROPE for w, rope in zip(layers, base.ropes, strict=True))
            return replace(base, windows=layers, ropes=ropes)
        if header.architecture == "exaone" or base.block_count != LAYERS_32B:
            return base
        window = count(header, "attention.sliding_window", DEFAULT_WINDOW)
        rope = base.ropes[0]
        local = replace(rope, base=rope_base(header, "rope.freq_base_swa", rope.base))
        has_window = [i % 4 < 3 for i in range(base.block_count)]
        return replace(
            base,
            windows=tuple(window if w else 0 for w in has_window),
            ropes=tuple(local if w else config.NO_ROPE for w in has_window),
        )


build = decoder.build
output = decoder.output
