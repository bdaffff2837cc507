"""BitNet b1.58: llama with NeoX pairs and norms before the last matrix of attention and of the feed-forward network.

Source: llama.cpp's `bitnet` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder

NEOX = True
ACTIVATIONS = {"silu": "silu", "swish": "silu", "relu2": "relu2"}


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        name = header.arch("hidden_act", "silu")
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise WispError(f"The activation {name!r} is not supported yet.", "unsupported_architecture")
        return replace(super().from_gguf(header), activation=ACTIVATIONS[name])


build = decoder.build
output = decoder.output
