"""Deci (Llama-3.1-Nemotron-51B and others): a llama whose layers differ.

A layer may lack attention or the feed-forward network, or have a matrix in place of attention.
Source: llama.cpp's `deci` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import HEADS, block_count, uneven_layers
from py_engine.models.decoder import Layer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: the largest."""

    layers: tuple[tuple[int, ...], ...] = ()  # of every layer: heads, key/value heads, width of the network

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        layers, largest = uneven_layers(header, (*HEADS, "feed_forward_length"), blocks, least=0)
        if any(heads and not width for heads, _, width in layers):  # llama.cpp ignores such a layer
            raise WispError("Attention without a feed-forward network is not supported.", "unsupported_architecture")
        base = super().from_gguf(largest)
        attending = tuple(kv > 0 for _, kv, _ in layers)
        return replace(base, layers=layers, head_count_kv=max(kv for _, kv, _ in layers), attending=attending)

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        heads, kv_heads, width = self.layers[i]
        return replace(self, head_count=heads, head_count_kv=kv_heads, feed_forward_length=width)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    for i, (heads, kv_heads, width) in enumerate(cfg.layers):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], 0)
        if kv_heads:
            layer.add_attention(layer.attention(x, caches[i]), x)
        elif heads:
            h = ops.rms_norm("linear_normed", x, w.vector((layer.b + "attn_norm.weight", n)), cfg.eps, ops.input_dtype)
            ops.linear(h, w.matrix(layer.b + "attn_output.weight", n, n), None, x)
        if width:
            layer.add_feed_forward(layer.feed_forward(x), x)
        ops.end_layer(x)
    return x


output = decoder.output
