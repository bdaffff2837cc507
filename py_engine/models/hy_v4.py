"""HY V4: DeepSeek's latent attention with sinks and gates, experts, and several residual streams (plan/streams.py).

Some files have an index that chooses the positions a token attends to, as in GLM 5 (glm_dsa.py), but that its last
dimensions are rotated. Source: llama.cpp's `hy_v4` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import dimension, natural, number, per_layer_limits
from py_engine.models.decoder import Layer
from py_engine.models.hyper_connections import ffn_output
from py_engine.models.indexer import index_shape, own_indices
from py_engine.plan import streams
from py_engine.plan.cache import Cache
from py_engine.plan.indexer import IndexShape
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.streams import Streams, StreamWeights
from py_engine.plan.weights import Weights

NEOX = False


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    streams: int = 1
    stream_eps: float = 0.0  # added to every weight of a stream
    stream_factor: float = 1.0  # of the weights that add to streams
    limits: tuple[float, ...] = ()  # of every layer's experts; 0: none
    index_of: IndexShape | None = None
    own_index: tuple[bool, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        shape, own = _index(header, base.ropes[0].dim, base.eps), (False,) * base.block_count
        return replace(
            base,
            index_of=shape,
            own_index=own_indices(header, base.block_count) if shape else own,
            streams=dimension(header, "hyper_connection.count", times=base.embedding_length),
            stream_eps=number(header, "hyper_connection.epsilon"),
            stream_factor=number(header, "hyper_connection.magnitude"),
            limits=per_layer_limits(header, "swiglu_clamp_exp", base.block_count),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        limit = self.limits[i]
        index = replace(self.index_of, own=self.own_index[i]) if self.index_of else None
        return replace(self, expert_activation=f"clamped_silu<{limit}" if limit else "silu", index=index)


def _index(header: Header, rope: int, eps: float) -> IndexShape | None:
    """The index, if the file has one."""
    if not natural(header, "attention.indexer.top_k"):
        return None
    shape = index_shape(header, rope, neox=NEOX)
    return replace(shape, first=shape.size - rope, eps=eps)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the sum of the streams (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    rows = streams.begin(ops, x, cfg.streams, n, cfg.stream_eps)
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], 0)
        weights = _weights(cfg, w, ops, rows, layer.b + "hc_attn", 2)
        attended = layer.attention(streams.merge(ops, rows, weights), caches[i])
        streams.spread(ops, layer.project_attention(attended), rows, weights, cfg.stream_factor)
        weights = _weights(cfg, w, ops, rows, layer.b + "hc_ffn", 2)
        out = ffn_output(layer, streams.merge(ops, rows, weights))
        streams.spread(ops, out, rows, weights, cfg.stream_factor)
        ops.layer_ends.append((len(ops.ops), rows.rows))  # as in llama.cpp, control vectors change nothing
    return streams.merge(ops, rows, _weights(cfg, w, ops, rows, "output_hc", 1))


def _weights(cfg: Config, w: Weights, ops: Ops, rows: Streams, name: str, parts: int) -> StreamWeights:
    count = parts * cfg.streams
    matrix = w.matrix(name + "_fn.weight", count, cfg.streams * cfg.embedding_length)
    terms = w.vector((name + "_scale.weight", parts), (name + "_base.weight", count))
    return streams.weights(ops, rows, matrix, terms, cfg.eps)


output = decoder.output
