"""T5's encoder (Raffel et al. 2020), for embeddings: relative positions in buckets, scores that are not divided.

Source: llama.cpp's `t5encoder` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config
from py_engine.models.common import dimension
from py_engine.models.decoder import Layer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False
LEAST_BUCKETS = 4  # for each direction, one of near keys and one of others


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base, buckets = super().from_gguf(header), dimension(header, "attention.relative_buckets_count")
        if buckets < LEAST_BUCKETS or buckets % 2:
            raise WispError(f"Wisp cannot run relative positions in {buckets} buckets.", "corrupt_header")
        gated = "enc.blk.0.ffn_gate.weight" in header.tensors
        return replace(
            base,
            causal=False,
            attention_scale=1.0,
            relative_buckets=buckets,
            ropes=(config.NO_ROPE,) * base.block_count,
            activation="gelu" if gated else "relu",
            output_norm="enc.output_norm",
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"enc.blk.{i}.", ropes[i], 0)
        mixed = layer.attention(x, caches[i])
        ops.linear(mixed, w.matrix(layer.b + "attn_o.weight", n, cfg.attention_cols), None, x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        ops.end_layer(x)
    return x
