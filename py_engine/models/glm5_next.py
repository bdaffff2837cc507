"""GLM 5.3: Kimi's gated delta nets in most layers, latent attention in the others; residual streams mixed by layers.

Attention does not rotate, and all of a key is made from the latent. An index chooses the positions that a token attends
to, as in GLM 5 (glm_dsa.py), but joins `attention.indexer.kpool` keys. Source: llama.cpp's `glm5-next` architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder, deepseek2
from py_engine.models.bailing3 import decay_bound
from py_engine.models.common import (
    count,
    dimension,
    natural,
    number,
    optional_number,
    per_layer_limits,
    switch,
    without_attention,
)
from py_engine.models.decoder import Layer, normed
from py_engine.models.indexer import TYPES, index_shape, own_indices
from py_engine.models.mixture import ExpertLayer
from py_engine.models.recurrent import StateSpace
from py_engine.plan import mixed_streams, streams
from py_engine.plan.cache import Cache
from py_engine.plan.index import IndexShape
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.quants import GROUP
from py_engine.plan.rope import Rope
from py_engine.plan.rows import zero
from py_engine.plan.streams import Streams, StreamWeights
from py_engine.plan.weights import Weights

NEOX = False
STREAMS = 4  # llama.cpp runs no other number
UNIT_EPS = 1e-6  # of the delta nets' queries and keys, whatever that of norms is
ASSUMED = 4  # rotated dimensions, while the other metadata of latent attention are read


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    stream_eps: float = 0.0
    rounds: int = 1  # of the normalisation of the weights that mix streams
    index_of: IndexShape | None = None
    own_index: tuple[bool, ...] = ()  # of every layer
    limits: tuple[tuple[float, float], ...] = ()  # of every layer: of the experts, of other networks; 0: none

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        if natural(header, "rope.dimension_count", 1):
            raise WispError("GLM 5.3 with attention that rotates is not supported.", "unsupported_architecture")
        assumed = {f"{header.architecture}.rope.dimension_count": ASSUMED}
        base = super().from_gguf(replace(header, metadata=header.metadata | assumed))
        base.need_mixture("GLM 5.3")
        assert base.latent
        recurrent = without_attention(header, base.block_count)
        heads, size = base.head_count, dimension(header, "kda.head_dim", times=base.head_count)
        bound = 0.0 if header.arch("kda.gate_lower_bound", None) is None else decay_bound(header)
        states = StateSpace(
            *(dimension(header, "ssm.conv_kernel"), heads * size, size, heads, heads),
            decay_bound=bound, negative_rates=True, unit_eps=UNIT_EPS,
        )  # fmt: skip
        latent = replace(base.latent, nope=base.latent.nope + ASSUMED, rope=0)
        exp, shexp = "swiglu_clamp_exp", "swiglu_clamp_shexp"
        names = exp, exp if header.arch(shexp, None) is None else shexp
        if count(header, "hyper_connection.count") != STREAMS:
            raise WispError(f"GLM 5.3 needs {STREAMS} residual streams.", "unsupported_architecture")
        return replace(
            base,
            index_of=_index(header),
            own_index=_own(header, recurrent),
            head_dim=latent.rank,
            latent=latent,
            ropes=(config.NO_ROPE,) * base.block_count,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
            stream_eps=number(header, "hyper_connection.epsilon"),
            rounds=max(1, natural(header, "hyper_connection.sinkhorn_iterations")),
            limits=tuple(zip(*(per_layer_limits(header, name, base.block_count) for name in names), strict=True)),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        routed, other = (f"clamped_silu<{limit}" if limit else "silu" for limit in self.limits[i])
        index = None
        if self.attending[i]:
            assert self.index_of
            index = replace(self.index_of, own=self.own_index[i])
        return replace(self, activation=other, expert_activation=routed, index=index)


def _own(header: Header, recurrent: Sequence[bool]) -> tuple[bool, ...]:
    """Whether each layer has an index of its own."""
    if header.arch(TYPES, None) is None or all(recurrent):
        return (True,) * len(recurrent)
    return own_indices(header, len(recurrent), recurrent.index(False))


def _index(header: Header) -> IndexShape:
    """The index, which joins keys. Nothing is rotated."""
    chosen, joined = count(header, "attention.indexer.top_k"), count(header, "attention.indexer.kpool")
    if joined < 2 or chosen % joined or not switch(header, "attention.indexer.kpool_select_tail", True):
        raise WispError(
            f"Wisp cannot run an index that joins {joined} keys and chooses {chosen} positions, or one that leaves out "
            "the newest.",
            "unsupported_architecture",
        )
    eps = optional_number(header, "attention.layer_norm_epsilon")
    return replace(index_shape(header, 0, neox=NEOX), pool=joined, eps=eps)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the mean of the streams (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    rows = streams.begin(ops, x, STREAMS, n, cfg.stream_eps)
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], 0)
        weights = stream_weights(cfg, w, ops, rows, layer.b + "hc_attn")
        read = streams.merge(ops, rows, weights)
        if cfg.has_state(i):
            out = layer.project_recurrent(layer.recurrent(read, caches[i]))
        else:
            out = layer.project_attention(layer.attention(read, caches[i]))
        mixed_streams.remix(ops, out, rows, weights, cfg.rounds)
        weights = stream_weights(cfg, w, ops, rows, layer.b + "hc_ffn")
        out = feed_forward(layer, streams.merge(ops, rows, weights))
        mixed_streams.remix(ops, out, rows, weights, cfg.rounds)
        if n % GROUP and ops.adapters.directions:
            raise WispError(f"Control vectors of {n} values are not supported in GLM 5.3.", "unsupported_adapter")
        ops.end_layer(rows.rows)
    return mixed_streams.mean(ops, rows)


def stream_weights(cfg: config.Config, w: Weights, ops: Ops, rows: Streams, name: str) -> StreamWeights:
    """The weights by which a block reads STREAMS streams, adds to them and mixes them. `name`: of their tensors."""
    products = (2 + STREAMS) * STREAMS
    matrix = w.matrix(name + "_fn.weight", products, STREAMS * cfg.embedding_length)
    terms = w.vector((name + "_scale.weight", mixed_streams.KINDS), (name + "_base.weight", products))
    return mixed_streams.weights(ops, rows, matrix, terms, cfg.eps)


def feed_forward(layer: Layer, x: Buffer) -> Buffer:
    """The output of the layer's experts, or of its network: (n, n_embd)."""
    cfg, w, ops = layer.cfg, layer.w, layer.ops
    if not cfg.mixture or layer.b + "ffn_gate_inp.weight" not in w:
        return layer.project_feed_forward(layer.feed_forward(x))
    out = ops.rows("experts_sum", cfg.embedding_length)
    zero(ops, x, out, cfg.embedding_length)
    ExpertLayer(cfg, cfg.mixture, w, ops, layer.b).add(out, *normed(cfg, w, ops, x, layer.b + cfg.ffn_norm))
    return out


output = decoder.output
