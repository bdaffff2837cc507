"""The language model of DeepSeek-OCR: DeepSeek's experts with plain attention.

Heads rotate as a whole, and scalings of the rotation do not count. Of its projectors, version 2's (`deepseekocr2`) is
supported, and the first one's (`deepseekocr`) is not. Source: llama.cpp's `deepseek2-ocr` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        given = base.ropes[0]
        rope = replace(given.unscaled(given.base), dim=base.head_dim, attn_factor=given.attn_factor)
        if given.scaling != "none":  # as llama.cpp has it, YaRN's magnitude counts all the same
            factor = max(1.0, given.factor) if given.scaling == "yarn" else given.factor
            rope = replace(rope, attn_factor=rope.attn_factor * (1 + 0.1 * log(factor)))
        return replace(base, ropes=(rope,) * base.block_count)


build = decoder.build
output = decoder.output
