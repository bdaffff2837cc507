"""RWKV-6 "Finch" (Peng et al. 2024), RWKV-7 "Goose" (Peng et al. 2025), and Qwen 2 with their time mixes for attention.

A layer is a time mix, which has a state matrix for each head, then a channel mix; in Qwen 2, its feed-forward network.
Source: llama.cpp's architectures `rwkv6`, `rwkv7`, `rwkv6qwen2` and `arwkv7`.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, count, dimension, head_count_kv, natural, number, vocabulary
from py_engine.models.time_mix import TimeMix, TimeMix6, TimeMix7
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.per_layer import Gates, gate, scale_by
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.states import StateShape
from py_engine.plan.weights import Weights
from py_engine.plan.wkv import Window, token_shift

NEOX = False
MAX_HEAD = 256  # columns of a head: threads of a workgroup, each with a row of the state matrix


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. `head_count_kv`: heads of keys and values, as in attention."""

    channel_mix: bool = False  # in place of a gated feed-forward network
    rescale_every: int = 0  # layers after which the residual stream is halved

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        blocks, width = block_count(header), dimension(header, "embedding_length")
        size = dimension(header, "wkv.head_size")
        heads = width // size
        groups = head_count_kv(header, blocks, heads) if header.arch("attention.head_count_kv", 0) else heads
        if width % size or size % 4 or size > MAX_HEAD or heads % groups:
            raise WispError(
                f"Wisp cannot run {width} columns in heads of {size}, with {groups} heads of keys and values. A head "
                f"must have a multiple of 4 columns, at most {MAX_HEAD}.",
                "corrupt_header",
            )
        layer_norm = config.has_layer_norms(header)
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=width,
            feed_forward_length=dimension(header, "feed_forward_length"),
            head_count=heads,
            head_count_kv=groups,
            head_dim=size,
            eps=number(header, f"attention.layer_norm_{'epsilon' if layer_norm else 'rms_epsilon'}"),
            vocab=vocabulary(header),
            ropes=(config.NO_ROPE,) * blocks,
            windows=(0,) * blocks,
            attention_scale=1.0,
            attending=(False,) * blocks,
            recurrent=(True,) * blocks,
            layer_norm=layer_norm,
            channel_mix="blk.0.channel_mix_key.weight" in header.tensors,
            rescale_every=natural(header, "rescale_every_n_layers"),
        )

    @property
    def state_shape(self) -> StateShape:
        """The shape of a layer's state: a matrix for each head, and the last input of each mix."""
        mixes = 2 if self.channel_mix else 1
        return StateShape(self.head_count, self.head_dim, self.head_dim, self.embedding_length, mixes)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    width = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, width))
    if "token_embd_norm.weight" in w:
        norm, bias = (w.vector((f"token_embd_norm.{name}", width)) for name in ("weight", "bias"))
        x = ops.layer_norm("stream", x, norm, bias, cfg.eps)
    for i in range(cfg.block_count):
        b, states = f"blk.{i}.", caches[i].states
        assert states is not None
        kind: type[TimeMix] = TimeMix7 if b + "time_mix_w0.weight" in w else TimeMix6
        h = _normed(cfg, w, ops, x, b + "attn_norm")
        window = Window(states, 0, cfg.state_shape.taps)
        mixed = kind(cfg.state_shape, cfg.head_count_kv, w, ops, b).mixed(h, window, first=i == 0)
        ops.linear(mixed, w.matrix(b + "time_mix_output.weight", width, width), None, x)
        if cfg.channel_mix:
            _add_channel_mix(cfg, w, ops, b, x, Window(states, 1, 2))
        else:
            layer = decoder.Layer(cfg, w, ops, b, ropes[i], 0)
            layer.add_feed_forward(layer.feed_forward(x), x)
        if cfg.rescale_every and (i + 1) % cfg.rescale_every == 0:
            scale_by(ops, x, ops.constant("half", [0.5]))
        ops.end_layer(x)
    return x


def _normed(cfg: Config, w: Weights, ops: Ops, x: Buffer, name: str) -> Buffer:
    """The norm of x, f32."""
    h, norm = decoder.normed(cfg, w, ops, x, name)
    return ops.rms_norm("rms_normed", h, norm, cfg.eps) if norm else h


def _add_channel_mix(cfg: Config, w: Weights, ops: Ops, b: str, x: Buffer, window: Window) -> None:
    """x += the channel mix: a network with squares of ReLU, in RWKV-6 with a gate."""
    width, inner, name = cfg.embedding_length, cfg.feed_forward_length, b + "channel_mix_"
    h = _normed(cfg, w, ops, x, b + "attn_norm_2")
    gated = name + "receptance.weight" in w
    parts = [(f"{name}lerp_{part}.weight", width) for part in ("kr" if gated else "k")]
    mixes = token_shift(ops, h, w.vector(*parts), len(parts), window)
    hidden = ops.activated(mixes[0], Projection([w.matrix(name + "key.weight", inner, width)]), "relu2")
    value = w.matrix(name + "value.weight", width, inner)
    if not gated:
        ops.linear(hidden, value, None, x)
        return
    out = ops.project("out", hidden, value, None)
    receptance = ops.project("receptance", mixes[1], w.matrix(name + "receptance.weight", width, width), None)
    ops.add_scaled(gate(ops, Gates(receptance, "sigmoid"), out, 0, width), 1.0, x)


output = decoder.output
