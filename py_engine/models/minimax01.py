"""MiniMax-01 (MiniMax 2025): linear attention, whose states decay at fixed rates, in most layers.

Every `full_attention_interval`-th layer attends, unless the metadata lists the recurrent ones. A block's output is
added to its normalised input, scaled. Source: llama.cpp's `minimax-01` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import e, log, log2

from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import number
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.models.qwen35 import recurrent_layers
from py_engine.models.recurrent import StateSpace
from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.rows import Parts, copy_columns, zero
from py_engine.plan.ssm import Columns, GatedNorm, Scan, gated_norm, ssm_scan
from py_engine.plan.weights import Weights

NEOX = True
INTERVAL = 8
UNIT_STEP = log(e - 1)  # softplus of it is 1


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    stream_scale: float = 1.0  # of a block's normalised input, which its output is added to

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("MiniMax-01")
        recurrent = recurrent_layers(header, base.block_count, INTERVAL)
        inner = base.head_count * base.head_dim
        states = StateSpace(2, inner, base.head_dim, base.head_count, base.head_count, convolves_keys=False)
        return replace(
            base,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
            attn_norm="",  # attention's input is normalised already
            stream_scale=number(header, "residual_scale"),
        )

    def rates(self, layer: int) -> list[float]:
        """The logarithm of each head's decay in a layer; MiniMax slows decays with the depth."""
        start = 2 ** -(2 ** -(log2(self.head_count) - 3))
        slower = 1 - layer / max(1, self.block_count - 1) + 1e-5
        return [-slower * start ** (head + 1) for head in range(self.head_count)]


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    assert cfg.mixture
    for i in range(cfg.block_count):
        layer = Layer(cfg, w, ops, f"blk.{i}.", ropes[i], 0)
        h = _next_stream(layer, x, "attn_norm")
        if cfg.has_state(i):
            layer.add_attention(_linear_attention(layer, h, cfg.rates(i), i, caches[i]), x)
        else:
            layer.add_attention(layer.attention(h, caches[i]), x)
        h = _next_stream(layer, x, "ffn_norm")
        ExpertLayer(cfg, cfg.mixture, w, ops, layer.b).add(x, h, None)
        ops.end_layer(x)
    return x


def _next_stream(layer: Layer, x: Buffer, name: str) -> Buffer:
    """The norm of x (n, n_embd), and x = that, scaled."""
    cfg, ops, n = layer.cfg, layer.ops, layer.cfg.embedding_length
    assert isinstance(cfg, Config)
    h = ops.rms_norm("stream_norm", x, layer.w.vector((f"{layer.b}{name}.weight", n)), cfg.eps)
    copy_columns(ops, Parts(h), Parts(x), n, scale=cfg.stream_scale)
    return h


def _linear_attention(layer: Layer, h: Buffer, rates: list[float], i: int, cache: Cache) -> Buffer:
    """The gated norm of the queries times a state, (n, heads * head_dim)."""
    cfg, w, ops, b, n = layer.cfg, layer.w, layer.ops, layer.b, layer.cfg.embedding_length
    heads, size, states = cfg.head_count, cfg.head_dim, cache.states
    inner, tensor, shape = heads * size, b + "attn_qkv.weight", cfg.state_shape
    assert states
    assert shape
    # the rows of the matrix are each head's queries, keys and values
    ranges = [[((3 * head + part) * size, size) for head in range(heads)] for part in range(3)]
    stack = w.joined([w.part(tensor, 3 * inner, n, parts, f"{tensor}.{at}") for at, parts in enumerate(ranges)])
    rows = ops.normed_stack("linear_qkv", h, Projection(stack))
    activated = ops.rows("linear_activated", 3 * inner)
    ops.activate(rows, activated, 3 * inner, "silu", gated=False)
    steps = ops.rows("unit_steps", heads)
    zero(ops, activated, steps, heads)  # the bias makes each step 1
    constants = ops.constant(f"decays.{i}", [*rates, *[UNIT_STEP] * heads, *[0.0] * heads])
    q, k, v = (Columns(activated, part * inner) for part in range(3))
    y = ssm_scan(ops, Scan("ssd", v, k, q, heads, Columns(steps), constants), shape, states)
    gates = ops.normed_stack("attn_gate", h, Projection([w.matrix(b + "attn_gate.weight", inner, n)]))
    weight = w.vector((b + "attn_norm_2.weight", inner))
    return gated_norm(ops, y, gates, 0, inner, GatedNorm(1, weight, cfg.eps, gate_first=False, sigmoid=True))


output = decoder.output
