"""OpenELM: heads and widths that grow from layer to layer; norms of query and key heads.

Source: llama.cpp's `openelm` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, per_layer

NEOX = True
KEYS = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: the largest."""

    layers: tuple[tuple[int, int, int], ...] = ()  # of every layer: heads, key/value heads, width of the network

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        layers = tuple(zip(*(per_layer(header, key, blocks) for key in KEYS), strict=True))
        if any(heads % kv for heads, kv, _ in layers):
            raise WispError("Wisp cannot run attention with the heads that the metadata describes.", "corrupt_header")
        most = {f"{header.architecture}.{key}": max(layer[i] for layer in layers) for i, key in enumerate(KEYS)}
        most[f"{header.architecture}.attention.head_count_kv"] = 1
        base = super().from_gguf(replace(header, metadata=header.metadata | most))
        return replace(base, layers=layers, head_count_kv=max(kv for _, kv, _ in layers))

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        heads, kv_heads, width = self.layers[i]
        return replace(self, head_count=heads, head_count_kv=kv_heads, feed_forward_length=width)


build = decoder.build
output = decoder.output
