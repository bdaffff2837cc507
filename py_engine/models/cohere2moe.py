"""Cohere's mixtures of experts: attention and experts read the same norm, as in Command R7B.

Layers with a sliding window and the leading dense ones rotate. With a shared expert, its output and the others' are
halved. Source: llama.cpp's `cohere2moe` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import natural, number, windows
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False
PERIOD = 4  # the first layer of so many has no window


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("cohere2moe")
        layers = windows(header, base.block_count, PERIOD, first=True)
        lead = natural(header, "leading_dense_block_count")
        rotated = (window > 0 or i < lead for i, window in enumerate(layers))
        return replace(
            base,
            windows=layers,
            ropes=tuple(rope if on else config.NO_ROPE for rope, on in zip(base.ropes, rotated, strict=True)),
            logit_scale=number(header, "logit_scale"),
            ffn_norm="attn_norm",
        )


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, cfg.embedding_length))
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        if layer.b + "ffn_gate_inp.weight" in w:
            h = _experts_input(layer, x)
            layer.add_attention(layer.attention(x, caches[i]), x)
            _add_experts(layer, h, x)
        else:
            mixed, hidden = layer.attention(x, caches[i]), layer.feed_forward(x)
            layer.add_attention(mixed, x)
            layer.add_feed_forward(hidden, x)
        ops.end_layer(x)
    return x


def _experts_input(layer: Layer, x: Buffer) -> Buffer:
    """The norm of x, for products."""
    h, norm = decoder.normed(layer.cfg, layer.w, layer.ops, x, layer.b + "attn_norm")
    return layer.ops.rms_norm("experts_input", h, norm, layer.cfg.eps, layer.ops.input_dtype) if norm else h


def _add_experts(layer: Layer, h: Buffer, x: Buffer) -> None:
    """x += the experts' output for h."""
    cfg, mixture = layer.cfg, layer.cfg.mixture
    assert mixture
    if layer.b + "ffn_up_shexp.weight" in layer.w:
        cfg = replace(cfg, residual_scale=0.5)
    ExpertLayer(cfg, mixture, layer.w, layer.ops, layer.b).add(x, h, None)


output = decoder.output
