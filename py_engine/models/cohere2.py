"""Command R7B: layer norm without bias, attention and net side by side, rotation only in layers with a window."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.gguf_header import Header
from py_engine.models import decoder
from py_engine.models.common import number, windows

NEOX = False


@dataclass(frozen=True)
class Config(decoder.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        layers = windows(header, base.block_count, 4)
        ropes = tuple(rope if window else decoder.NOTHING for window, rope in zip(layers, base.ropes, strict=True))
        return replace(base, windows=layers, ropes=ropes, parallel=True, logit_scale=number(header, "logit_scale", 1.0))


build = decoder.build
output = decoder.output
