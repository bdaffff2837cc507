"""Gemma 4, text only: layers with a window have heads and rotations of their own, values are normalised, too, and the
last layers look into the caches of earlier ones. In its small models every layer also takes an embedding of the token
that is made for it alone. Source: llama.cpp's `gemma4` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, number, per_layer, vocabulary, windows
from py_engine.models.decoder import Layer
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.per_layer import gate, group_norm, scale_by
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope, RopeSpec
from py_engine.plan.weights import Weights

NEOX = True


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters; those of layers without a window where layers differ."""

    head_dim_swa: int = 0
    heads_kv: tuple[int, ...] = ()  # of every layer
    lengths: tuple[int, ...] = ()  # of every layer's feed-forward net
    own: int = 0  # so many layers have keys and values of their own
    embedding_length_per_layer: int = 0  # 0: layers take no embedding of their own

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        if header.arch("expert_count", 0):
            raise WispError("Gemma 4's mixtures of experts do not run yet.", "unsupported_architecture")
        blocks, n_embd, n_head = (count(header, k) for k in ("block_count", "embedding_length", "attention.head_count"))
        layers = windows(header, blocks, 6)
        wide = count(header, "attention.key_length")
        narrow = count(header, "attention.key_length_swa", wide)
        base, local = number(header, "rope.freq_base", 10000.0), number(header, "rope.freq_base_swa", 10000.0)
        whole = RopeSpec(count(header, "rope.dimension_count", wide), base)
        near = RopeSpec(count(header, "rope.dimension_count_swa", narrow), local, stretched=False)
        heads_kv, shared = (
            per_layer(header, "attention.head_count_kv", blocks),
            header.arch("attention.shared_kv_layers", 0),
        )
        own = blocks - shared if isinstance(shared, int) else 0
        if any(n_head % n for n in heads_kv) or any(d % 4 for d in (wide, narrow, whole.dim, near.dim)) or own < 1:
            raise WispError("The metadata's heads make no attention that Wisp can run.", "corrupt_header")
        if any(h != layers[own - (2 if w else 1)] for h, w in zip(layers[own:], layers[own:], strict=True)):
            raise WispError("Layers without keys look into caches of another kind.", "corrupt_header")
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=0,
            head_count=n_head,
            head_count_kv=max(heads_kv),
            head_dim=wide,
            eps=number(header, "attention.layer_norm_rms_epsilon"),
            vocab=vocabulary(header),
            ropes=tuple(near if window else whole for window in layers),
            windows=layers,
            attention_scale=1.0,
            value_norm=True,
            activation="gelu",
            final_soft_cap=number(header, "final_logit_softcapping")
            if header.arch("final_logit_softcapping", 0)
            else 0,
            embedding_scale=n_embd**0.5,
            head_dim_swa=narrow,
            heads_kv=heads_kv,
            lengths=per_layer(header, "feed_forward_length", blocks),
            own=own,
            embedding_length_per_layer=header.arch("embedding_length_per_layer_input", 0),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters as they are in one layer."""
        return replace(
            self,
            head_dim=self.head_dim_swa if self.windows[i] else self.head_dim,
            head_count_kv=self.heads_kv[i],
            feed_forward_length=self.lengths[i],
            looks_elsewhere=i >= self.own,
        )

    def cache_of(self, i: int) -> int:
        """The layer whose keys and values layer i looks at."""
        return i if i < self.own else self.own - (2 if self.windows[i] else 1)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """The layers, from the batch's tokens to the last hidden state (n, n_embd)."""
    n_embd = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n_embd), cfg.embedding_scale)
    extra = _per_layer_inputs(cfg, w, ops, x) if cfg.embedding_length_per_layer else None
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        layer.add_attention(layer.attention(x, caches[i]), x)
        layer.add_feed_forward(layer.feed_forward(x), x)
        if extra:
            _add_per_layer(cfg, w, ops, layer.b, i, x, extra)
        if layer.b + "layer_output_scale.weight" in w:
            scale_by(ops, x, w.vector((layer.b + "layer_output_scale.weight", 1)))
    return x


def _per_layer_inputs(cfg: Config, w: Weights, ops: Ops, x: Buffer) -> Buffer:
    """What each layer takes of each token, (n, n_layer * n): the token's own embeddings and a projection of x."""
    n, n_embd = cfg.embedding_length_per_layer, cfg.embedding_length
    table = w.matrix("per_layer_token_embd.weight", cfg.vocab, n * cfg.block_count)
    extra = ops.embed(table, (n / 2) ** 0.5, name="per_layer")
    projection = w.matrix("per_layer_model_proj.weight", n * cfg.block_count, n_embd)
    projected = ops.project("per_layer_projected", x, projection, None)
    norm = w.vector(("per_layer_proj_norm.weight", n))
    # the projection is smaller by the root of n_embd; a norm sees that in its epsilon alone
    normed = group_norm(ops, projected, norm, cfg.block_count, cfg.eps * n_embd)
    ops.add_scaled(normed, 0.5**0.5, extra)
    return extra


def _add_per_layer(cfg: Config, w: Weights, ops: Ops, b: str, i: int, x: Buffer, extra: Buffer) -> None:
    """x += what the layer makes of its own input, by a gate that x gives."""
    n, n_embd = cfg.embedding_length_per_layer, cfg.embedding_length
    opened = ops.project("per_layer_gate", x, w.matrix(b + "inp_gate.weight", n, n_embd), None)
    gated = gate(ops, opened, extra, i * n, n, cfg.activation)
    norm = w.vector((b + "post_norm.weight", n_embd))
    ops.add_norm(ops.project("out", gated, w.matrix(b + "proj.weight", n_embd, n), None), norm, x, cfg.eps)


output = decoder.output
