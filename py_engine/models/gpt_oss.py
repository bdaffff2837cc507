"""gpt-oss: a mixture of experts with biases and a clamped gate, attention sinks, a window in every other layer.

Its tensor post_attention_norm is the norm before the feed-forward network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import windowed_ropes, windows

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        layers = windows(header, base.block_count, 2)
        return replace(
            base,
            windows=layers,
            ropes=windowed_ropes(header, base.ropes, layers),
            activation="swiglu_oai",
            ffn_norm="post_attention_norm",
            post_norms=("", ""),
        )


build = decoder.build
output = decoder.output
