"""Gemma 4's text model, and EmbeddingGemma 2.

Layers with a sliding window have other head sizes and another rotation. Values are normalised, too. The last layers
read the caches of earlier ones. In the small models every layer also gets its own embedding of the token.
Source: llama.cpp's `gemma4` and `gemma-embedding2` architectures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.draft_header import is_assistant
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import (
    block_count,
    count,
    dimension,
    natural,
    number,
    optional_number,
    per_layer,
    rope_base,
    rope_spec,
    switch,
    vocabulary,
    windows,
)
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.models.per_layer import layer_inputs, layer_output, post_norm
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.per_layer import scale_by
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Factors, Rope
from py_engine.plan.weights import Weights

NEOX = True
ENCODER = "gemma-embedding2"  # every token attends to those after it, too


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: those of layers without a window."""

    head_dim_swa: int = 0
    layer_head_count_kv: tuple[int, ...] = ()
    layer_feed_forward_length: tuple[int, ...] = ()
    layers_with_kv: int = 0  # the first layers; the others share their caches
    embedding_length_per_layer: int = 0  # 0: no per-layer embeddings

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks = block_count(header)
        n_embd, n_head = dimension(header, "embedding_length"), dimension(header, "attention.head_count")
        layers = windows(header, blocks, 6)
        head_dim = dimension(header, "attention.key_length", times=n_head)
        head_dim_swa = dimension(header, "attention.key_length_swa", head_dim, n_head)
        rope = replace(rope_spec(header, count(header, "rope.dimension_count", head_dim)), factors=Factors.FIRST)
        local = rope.unscaled(rope_base(header, "rope.freq_base_swa"))
        rope_swa = replace(local, dim=count(header, "rope.dimension_count_swa", head_dim_swa), factors=Factors.NONE)
        heads_kv, shared = (
            per_layer(header, "attention.head_count_kv", blocks),
            natural(header, "attention.shared_kv_layers"),
        )
        with_kv = 0 if is_assistant(header) else blocks - shared
        if (
            any(n_head % n for n in heads_kv)
            or any(d % 4 for d in (head_dim, head_dim_swa, rope.dim, rope_swa.dim))
            or rope.dim > head_dim
            or rope_swa.dim > head_dim_swa
            or (with_kv < 1 and not is_assistant(header))
        ):
            raise WispError("Wisp cannot run attention with the heads that the metadata describes.", "corrupt_header")
        if with_kv and any(window != layers[with_kv - (2 if window else 1)] for window in layers[with_kv:]):
            raise WispError("Layers without keys share caches with layers of another kind.", "corrupt_header")
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=0,
            head_count=n_head,
            head_count_kv=max(heads_kv),
            head_dim=head_dim,
            eps=number(header, "attention.layer_norm_rms_epsilon"),
            vocab=vocabulary(header),
            ropes=tuple(rope_swa if window else rope for window in layers),
            windows=layers,
            attention_scale=1.0,
            causal=header.architecture != ENCODER and switch(header, "attention.causal", True),
            value_norm=True,
            activation="gelu",
            mixture=config.Mixture.from_gguf(header),
            final_soft_cap=optional_number(header, "final_logit_softcapping", 30.0),
            embedding_scale=n_embd**0.5,
            whole_media="windowed",
            head_dim_swa=head_dim_swa,
            layer_head_count_kv=heads_kv,
            layer_feed_forward_length=per_layer(header, "feed_forward_length", blocks),
            layers_with_kv=with_kv,
            embedding_length_per_layer=natural(header, "embedding_length_per_layer_input"),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        return replace(
            self,
            head_dim=self.head_dim_swa if self.windows[i] else self.head_dim,
            head_count_kv=self.layer_head_count_kv[i],
            feed_forward_length=self.layer_feed_forward_length[i],
            shares_kv=i >= self.layers_with_kv,
        )

    def cache_layer(self, i: int) -> int:
        """The layer whose cache layer i reads: its own, or the last one of its kind that has keys and values."""
        return i if i < self.layers_with_kv else self.layers_with_kv - (2 if self.windows[i] else 1)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n_embd = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n_embd), cfg.embedding_scale)
    extra = cfg.embedding_length_per_layer
    inputs = layer_inputs(cfg, extra, w, ops, x) if extra else None
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        layer.add_attention(layer.attention(x, caches[i]), x)
        if cfg.mixture and layer.b + "ffn_gate_inp.weight" in w:
            _add_both_networks(layer, cfg.mixture, x)
        else:
            layer.add_feed_forward(layer.feed_forward(x), x)
        if inputs:
            ops.add_norm(layer_output(layer, i, extra, x, inputs), post_norm(layer), x, cfg.eps)
        if layer.b + "layer_output_scale.weight" in w:
            scale_by(ops, x, w.vector((layer.b + "layer_output_scale.weight", 1)))
        ops.end_layer(x)
    return x


def _add_both_networks(layer: Layer, moe: config.Mixture, x: Buffer) -> None:
    """x += the norm of two networks' normalised results: a dense one's and the experts'. Both have norms of their own.

    The router has its own norm, too: its `scale`, divided by sqrt(n_embd).
    """
    cfg, w, ops, b, n = layer.cfg, layer.w, layer.ops, layer.b, layer.cfg.embedding_length

    def norm(name: str) -> Weight:
        return w.vector((f"{b}{name}.weight", n))

    dense = layer.project_feed_forward(layer.feed_forward(x))
    both = ops.rms_norm("both", dense, norm("post_ffw_norm_1"), cfg.eps)
    experts = ExpertLayer(cfg, moe, w, ops, b)
    logits = experts.router(x, w.scale(b + "ffn_gate_inp", n))
    scale_by(ops, logits, ops.constant("router_scale", [n**-0.5]))
    ops.add_norm(experts.output(x, norm("pre_ffw_norm_2"), logits), norm("post_ffw_norm_2"), both, cfg.eps)
    ops.add_norm(both, norm("post_ffw_norm"), x, cfg.eps)


output = decoder.output
