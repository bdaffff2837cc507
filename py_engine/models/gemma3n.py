"""Gemma 3n: several residual streams (AltUp), low-rank residuals (Laurel), sparse activations, per-layer embeddings.

A layer computes with the first stream, as it predicts it, and corrects all streams by the result. The last layers read
the caches of earlier ones. Source: llama.cpp's `gemma3n` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import block_count, count, dimension, natural, per_layer, rope_base, windows
from py_engine.models.decoder import Layer
from py_engine.models.per_layer import POST_NORM, layer_inputs, layer_output, post_norm
from py_engine.plan.altup import Router, Streams, correct, predict
from py_engine.plan.cache import Cache
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.rows import LengthOf, Parts, add_attended, clamp, copy_columns, sparse_gate, zero
from py_engine.plan.weights import Weights

NEOX = True
PERIOD = 5  # the last layer of so many has no window
LAYERS_WITH_KV = 20  # the first ones
SPARSE_LAYERS = 10  # the first ones
DEVIATIONS = 1.6448533535003662  # of sparse gates: the 95th percentile of a normal distribution
MAX_STREAMS = 8
FACTORS = ("altup_predict_coef", "altup_correct_coef")
FINAL_CAP = 30.0  # of the logits, whatever the metadata says


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters. Where layers differ: the largest."""

    streams: int = 4
    layer_feed_forward_length: tuple[int, ...] = ()
    embedding_length_per_layer: int = 256

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        widths = per_layer(header, "feed_forward_length", block_count(header))
        most = {f"{header.architecture}.feed_forward_length": max(widths)}
        base = super().from_gguf(replace(header, metadata=header.metadata | most))
        layers = windows(header, base.block_count, PERIOD)
        local = base.ropes[0].unscaled(rope_base(header, "rope.freq_base_swa"))
        streams = count(header, "altup.num_inputs", 4)
        if natural(header, "altup.active_idx") or streams > MAX_STREAMS:
            raise WispError("Wisp cannot run these residual streams.", "unsupported_architecture")
        shared = layers[LAYERS_WITH_KV:]
        if any(window != layers[_cache_layer(window)] for window in shared):
            raise WispError("Layers without keys share caches with layers of another kind.", "corrupt_header")
        return replace(
            base,
            windows=layers,
            ropes=tuple(local if window else rope for window, rope in zip(layers, base.ropes, strict=True)),
            attention_scale=1.0,
            value_norm=True,
            activation="gelu",
            final_soft_cap=FINAL_CAP,
            embedding_scale=base.embedding_length**0.5,
            streams=streams,
            layer_feed_forward_length=widths,
            embedding_length_per_layer=dimension(header, "embedding_length_per_layer_input", 256),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        return replace(self, feed_forward_length=self.layer_feed_forward_length[i], shares_kv=i >= LAYERS_WITH_KV)

    def cache_layer(self, i: int) -> int:
        """The layer whose cache layer i reads: its own, or the last one of its kind that has keys and values."""
        return i if i < LAYERS_WITH_KV else _cache_layer(self.windows[i])


def _cache_layer(window: int) -> int:
    return LAYERS_WITH_KV - (2 if window else 1)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last hidden state (n, n_embd)."""
    n, extra = cfg.embedding_length, cfg.embedding_length_per_layer
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n), cfg.embedding_scale)
    inputs = layer_inputs(cfg, extra, w, ops, x)
    streams = _begin(cfg, w, ops, x)
    halves = any(w.in_halves(f"blk.0.{name}.weight") for name in FACTORS)
    units = _units(cfg, ops, streams) if halves else []
    out, out_norm = None, ""  # what the layer before gives to all streams but the first
    for i in range(cfg.block_count):
        layer = Layer(cfg.layer(i), w, ops, f"blk.{i}.", ropes[i], cfg.windows[i])
        _predict(layer, streams, units, out, out_norm)
        _add_attention(layer, x, caches[i])
        hidden = _sparse_feed_forward(layer, x) if i < SPARSE_LAYERS else layer.feed_forward(x)
        scaled = _correct(layer, streams, units, layer.project_feed_forward(hidden))
        out, out_norm = layer_output(layer, i, extra, scaled, inputs), layer.b + POST_NORM
        if i in ops.plan.adapters.directions or i == cfg.block_count - 1:  # with adapters as without, for equal bits
            others = Parts(streams.rows, pad(n), pad(n), cfg.streams - 1)
            copy_columns(ops, Parts(ops.rms_norm("per_layer_out", out, post_norm(layer), cfg.eps)), others, n, add=True)
            out = None
        ops.end_layer(streams.rows)
        if i in ops.adapters.directions:  # a control vector has changed the streams
            copy_columns(ops, Parts(streams.rows), Parts(x), n)
    return _end(cfg, w, ops, streams)


def _begin(cfg: Config, w: Weights, ops: Ops, x: Buffer) -> Streams:
    """The streams: x, and projections of it with its length."""
    n, width = cfg.embedding_length, pad(cfg.embedding_length)
    rows = ops.rows("streams", cfg.streams * width)
    copy_columns(ops, Parts(x), Parts(rows), n)
    others = cfg.streams - 1
    projected = ops.project("projected", x, w.flattened("altup_proj.weight", others, n, n), None)
    copy_columns(ops, Parts(projected, 0, n, others), Parts(rows, width, width, others), n, scale=LengthOf(x))
    return Streams(rows, x, cfg.streams, n, cfg.eps, lambda tensors: w.vector(*((tensor, n) for tensor in tensors)))


def _end(cfg: Config, w: Weights, ops: Ops, streams: Streams) -> Buffer:
    """The mean of the first stream and of projections of the other ones with its length."""
    x, n, width, share = streams.first, cfg.embedding_length, pad(cfg.embedding_length), 1 / cfg.streams
    mean = ops.buffer(f"{ops.name}.merged", x.shape)
    copy_columns(ops, Parts(x), Parts(mean), n, scale=share)
    stream = ops.buffer(f"{ops.name}.stream", x.shape)
    for i, matrix in enumerate(w.slices("altup_unembd_proj.weight", cfg.streams - 1, n, n), start=1):
        copy_columns(ops, Parts(streams.rows, i * width), Parts(stream), n)
        out = ops.project("out", stream, matrix, None)
        copy_columns(ops, Parts(out), Parts(mean), n, scale=LengthOf(x, share), add=True)
    return mean


def _router(layer: Layer, streams: Streams) -> Router:
    matrix = layer.w.matrix(layer.b + "altup_router.weight", streams.count, streams.cols)
    return Router(matrix, layer.b + "altup_router_norm.weight")


def _units(cfg: Config, ops: Ops, streams: Streams) -> list[Buffer]:
    """For each stream, rows (n, streams) that are 1 in its column, else 0."""
    units = [ops.rows(f"unit.{i}", cfg.streams) for i in range(cfg.streams)]
    for i, unit in enumerate(units):
        zero(ops, streams.rows, unit, cfg.streams)
        clamp(ops, unit, ops.constant("limits.1", [1.0, 1.0]), unit, 1, first=i)
    return units


def _factors(layer: Layer, streams: Streams, units: list[Buffer], name: str, rows: int) -> Weight | Buffer:
    """A matrix (rows, streams) in floats. Products with units give the columns of one that the file has in halves."""
    w, ops, count, tensor = layer.w, layer.ops, streams.count, f"{layer.b}{name}.weight"
    if not units:
        return w.vector((tensor, rows * count))
    matrix, y = w.matrix(tensor, rows, count), ops.rows(name, rows * count)
    for i, unit in enumerate(units):
        column = ops.project(f"{name}.column", unit, matrix, None)
        copy_columns(ops, Parts(column, 0, 1), Parts(y, i, count, rows), 1)
    return y


def _predict(layer: Layer, streams: Streams, units: list[Buffer], out: Buffer | None, out_norm: str) -> None:
    """Predict the streams. `out`: the layer before's result, whose norm is first added to all streams but the first.

    `out_norm`: the tensor of that norm's weights.
    """
    factors = _factors(layer, streams, units, "altup_predict_coef", streams.count**2)
    predict(layer.ops, streams, _router(layer, streams), factors, out, out_norm)


def _correct(layer: Layer, streams: Streams, units: list[Buffer], out: Buffer) -> Buffer:
    """Correct the streams by the layer's result: x plus the norm of `out`. Return the first one, scaled."""
    factors = _factors(layer, streams, units, "altup_correct_coef", streams.count)
    tensors = layer.b + "altup_correct_scale.weight", layer.b + "post_ffw_norm.weight"
    return correct(layer.ops, streams, _router(layer, streams), factors, out, tensors)


def _add_attention(layer: Layer, x: Buffer, cache: Cache) -> None:
    """x = (x + the norms of x, of attention and of a low-rank residual) / sqrt(2)."""
    cfg, w, ops, b, n = layer.cfg, layer.w, layer.ops, layer.b, layer.cfg.embedding_length
    attended = layer.project_attention(layer.attention(x, cache))
    rank = w.rows(b + "laurel_l.weight")
    norm = w.vector((b + "attn_norm.weight", n))
    low = ops.normed_stack("laurel", x, Projection([w.matrix(b + "laurel_l.weight", rank, n)], None, norm, cfg.eps))
    low = ops.project("laurel_out", low, w.matrix(b + "laurel_r.weight", n, rank), None)
    norms = w.vector(*((b + f"{name}.weight", n) for name in ("attn_norm", "post_attention_norm", "laurel_post_norm")))
    add_attended(ops, x, attended, low, norms, cfg.eps)


def _sparse_feed_forward(layer: Layer, x: Buffer) -> Buffer:
    """The hidden layer of a network most of whose gates are closed: (n, n_ff)."""
    cfg, w, ops, b = layer.cfg, layer.w, layer.ops, layer.b
    n, n_ff = cfg.embedding_length, cfg.feed_forward_length
    stack = w.stack([(b + "ffn_gate.weight", n_ff), (b + "ffn_up.weight", n_ff)], n)
    projection = Projection(stack, None, w.vector((b + "ffn_norm.weight", n)), cfg.eps)
    return sparse_gate(ops, ops.normed_stack("gate_up", x, projection), n_ff, cfg.activation, DEVIATIONS)


output = decoder.output
