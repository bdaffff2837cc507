"""OLMo 2: norms after each block instead of before it, and across all query and all key heads.

OLMo 3 adds layers with a sliding window, whose RoPE is not scaled by YaRN. So does Mellum 2, a mixture of experts with
norms before its blocks and of each query and key head. Source: llama.cpp's `olmo2` and `mellum` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import windows

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        layers = windows(header, base.block_count, 4)
        local = replace(base.ropes[0].unscaled(base.ropes[0].base), attn_factor=1.0)
        ropes = tuple(local if window else rope for window, rope in zip(layers, base.ropes, strict=True))
        return replace(base, windows=layers, ropes=ropes)


build = decoder.build
output = decoder.output
