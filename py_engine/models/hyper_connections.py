"""Hyper-connections: several residual streams, which each block reads, adds to and mixes (plan/mixed_streams.py).

Source: llama.cpp's `glm5-next` and `deepseek4` architectures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config
from py_engine.models.common import count, natural, number, per_layer_limits
from py_engine.models.decoder import Layer, normed
from py_engine.models.mixture import ExpertLayer
from py_engine.plan import mixed_streams, streams
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.quants import GROUP
from py_engine.plan.rope import Rope
from py_engine.plan.rows import zero
from py_engine.plan.streams import Streams, StreamWeights
from py_engine.plan.weights import Weights

STREAMS = 4  # llama.cpp runs no other number


@dataclass(frozen=True)
class MixedStreams:
    """The hyperparameters of the streams, and the limits of the blocks' activations. `model`: its name, for errors."""

    model: str
    eps: float
    rounds: int  # Sinkhorn iterations, which normalise the weights that mix streams
    limits: tuple[tuple[float, float], ...]  # of every layer: (of the experts, of other networks); 0: none

    @classmethod
    def from_gguf(cls, header: Header, model: str, block_count: int) -> MixedStreams:
        """Read and check the metadata."""
        if count(header, "hyper_connection.count") != STREAMS:
            raise WispError(f"{model} needs {STREAMS} residual streams.", "unsupported_architecture")
        experts, other = "swiglu_clamp_exp", "swiglu_clamp_shexp"
        names = experts, experts if header.arch(other, None) is None else other
        return cls(
            model,
            number(header, "hyper_connection.epsilon"),
            max(1, natural(header, "hyper_connection.sinkhorn_iterations")),
            tuple(zip(*(per_layer_limits(header, name, block_count) for name in names), strict=True)),
        )

    def activations(self, i: int) -> tuple[str, str]:
        """The activations of layer i: of its experts, of other networks."""
        experts, other = (f"clamped_silu<{limit}" if limit else "silu" for limit in self.limits[i])
        return experts, other


def append_layers(
    cfg: config.Config, mixed: MixedStreams, w: Weights, ops: Ops, ropes: Sequence[Rope],
    attention: Callable[[Layer, int, Buffer], Buffer],
) -> Streams:  # fmt: skip
    """Append the layers; return the streams after them.

    `attention(layer, i, x)`: appends the attention of layer i over x (n, n_embd); returns its output (n, n_embd).
    """
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    rows = streams.begin(ops, x, STREAMS, n, mixed.eps)
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], 0)
        weights = _weights(cfg, w, ops, rows, layer.b + "hc_attn")
        out = attention(layer, i, streams.merge(ops, rows, weights))
        mixed_streams.remix(ops, out, rows, weights, mixed.rounds)
        weights = _weights(cfg, w, ops, rows, layer.b + "hc_ffn")
        out = ffn_output(layer, streams.merge(ops, rows, weights))
        mixed_streams.remix(ops, out, rows, weights, mixed.rounds)
        if n % GROUP and ops.adapters.directions:
            message = f"Control vectors of {n} values are not supported in {mixed.model}."
            raise WispError(message, "unsupported_adapter")
        ops.end_layer(rows.rows)
    return rows


def _weights(cfg: config.Config, w: Weights, ops: Ops, rows: Streams, name: str) -> StreamWeights:
    """The weights by which a block reads the streams, adds to them and mixes them. `name`: of their tensors."""
    products = (2 + STREAMS) * STREAMS
    matrix = w.matrix(name + "_fn.weight", products, STREAMS * cfg.embedding_length)
    terms = w.vector((name + "_scale.weight", mixed_streams.KINDS), (name + "_base.weight", products))
    return mixed_streams.weights(ops, rows, matrix, terms, cfg.eps)


def ffn_output(layer: Layer, x: Buffer) -> Buffer:
    """The output of the layer's experts, or of its network: (n, n_embd)."""
    cfg, w, ops = layer.cfg, layer.w, layer.ops
    if not cfg.mixture or layer.b + "ffn_gate_inp.weight" not in w:
        return layer.project_feed_forward(layer.feed_forward(x))
    out = ops.rows("experts_sum", cfg.embedding_length)
    zero(ops, x, out, cfg.embedding_length)
    ExpertLayer(cfg, cfg.mixture, w, ops, layer.b).add(out, *normed(cfg, w, ops, x, layer.b + cfg.ffn_norm))
    return out
