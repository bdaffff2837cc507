"""Arctic: experts that read a layer's input, beside attention and a dense network as wide as the model.

Source: llama.cpp's `arctic` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("Arctic")
        return replace(base, feed_forward_length=base.embedding_length)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n, mixture = cfg.embedding_length, cfg.mixture
    assert mixture
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0)
        norm = w.vector((layer.b + "ffn_norm_exps.weight", n))
        h = ops.rms_norm("experts_input", x, norm, cfg.eps, ops.input_dtype)
        layer.add_attention(layer.attention(x, caches[i]), x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        ExpertLayer(cfg, mixture, w, ops, layer.b).add(x, h, None)
        ops.end_layer(x)
    return x


output = decoder.output
