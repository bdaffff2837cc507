"""ModernBERT: an encoder with a norm before each block, RoPE and gated networks.

The first of every three layers attends to all tokens, the others to half a window on either side.
Source: llama.cpp's `modern-bert` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import rope_base, windows

NEOX = True
ACTIVATIONS = {"gelu": "gelu", "silu": "silu", "swish": "silu"}


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        activation = header.arch("hidden_activation", "gelu")
        if not isinstance(activation, str) or activation not in ACTIVATIONS:
            raise WispError(f"The activation {activation!r} is not supported yet.", "unsupported_architecture")
        layers = windows(header, base.block_count, 3, first=True)
        rope = base.ropes[0]
        local = rope.unscaled(rope_base(header, "rope.freq_base_swa"))
        return replace(
            base,
            causal=False,
            windows=layers,
            ropes=tuple(local if window else rope for window in layers),
            activation=ACTIVATIONS[activation],
            embedding_norm="token_embd_norm",
        )


build = decoder.build
