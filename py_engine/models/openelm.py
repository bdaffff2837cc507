"""OpenELM: heads and widths that grow from layer to layer; norms of query and key heads.

Source: llama.cpp's `openelm` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import HEADS, block_count, uneven_layers

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: the largest."""

    layers: tuple[tuple[int, ...], ...] = ()  # of every layer: heads, key/value heads, width of the network

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        layers, largest = uneven_layers(header, (*HEADS, "feed_forward_length"), blocks)
        base = super().from_gguf(largest)
        return replace(base, layers=layers, head_count_kv=max(kv for _, kv, _ in layers))

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        heads, kv_heads, width = self.layers[i]
        return replace(self, head_count=heads, head_count_kv=kv_heads, feed_forward_length=width)


build = decoder.build
output = decoder.output
