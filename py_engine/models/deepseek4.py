"""DeepSeek V4: attention to a window and to compressed keys (plan/compressed_attention.py), experts, residual streams.

A layer compresses 4 or 128 positions to a key, or none. Of keys of 4 positions, an index chooses some, whose own keys
are compressed in the same way. llama.cpp also multiplies the index's queries and keys with a Hadamard matrix, which
changes no product. In the first layers, a token's experts are in a table. Source: llama.cpp's `deepseek4` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder
from py_engine.models.common import count, dimension, natural, number, rope_base
from py_engine.models.decoder import Layer, normed
from py_engine.models.hyper_connections import STREAMS, MixedStreams, append_layers
from py_engine.models.indexer import index_shape
from py_engine.plan import compressed_attention, latent_attention, streams
from py_engine.plan.cache import Cache
from py_engine.plan.compressed_attention import OVERLAPPING, Appended, Attended, CompressedShape, Compressor
from py_engine.plan.latent_attention import Columns, HeadMatrices
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Factors, Rope, RopeSpec
from py_engine.plan.weights import Weights, missing_tensor

NEOX = False
RATIOS = (0, OVERLAPPING, 128)
SQRT_SOFTPLUS = 4  # llama.cpp chooses experts in no other way


@dataclass(frozen=True)
class Config(config.Config):
    """The hyperparameters."""

    shapes: tuple[CompressedShape, ...] = ()  # of every layer
    groups: int = 1  # of heads; each has an output matrix of its own to `rank` values
    rank: int = 0
    by_token: int = 0  # how many of the first layers choose experts by the token, from a table
    mixed: MixedStreams | None = None

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        arch = header.architecture
        base = super().from_gguf(replace(header, metadata=header.metadata | {f"{arch}.attention.head_count_kv": 1}))
        base.need_mixture("DeepSeek V4")
        mixed = MixedStreams.from_gguf(header, "DeepSeek V4", base.block_count)
        if natural(header, "expert_gating_func") != SQRT_SOFTPLUS:
            raise WispError("DeepSeek V4 needs experts chosen by sqrt(softplus).", "unsupported_architecture")
        ratios = _ratios(header, base.block_count)
        shapes = _shapes(header, base, ratios)
        groups = count(header, "attention.output_group_count")
        rank = dimension(header, "attention.output_lora_rank", times=groups)
        if base.head_count % groups or rank % 4:
            raise WispError(
                f"Wisp cannot run {groups} groups of {base.head_count} heads with {rank} values each.",
                "unsupported_architecture",
            )
        return replace(
            base,
            ropes=_ropes(header, base.ropes[0], ratios),
            windows=tuple(shape.window for shape in shapes),
            shapes=shapes,
            groups=groups,
            rank=rank,
            by_token=natural(header, "hash_layer_count"),
            mixed=mixed,
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        assert self.mixture
        assert self.mixed
        experts, other = self.mixed.activations(i)
        mixture = replace(self.mixture, chosen_by_token=i < self.by_token)
        return replace(self, activation=other, expert_activation=experts, mixture=mixture, compressed=self.shapes[i])


def _ratios(header: Header, blocks: int) -> tuple[int, ...]:
    """The positions that each layer's keys compress; 0: none."""
    found = header.arch("attention.compress_ratios")
    if not isinstance(found, list) or len(found) < blocks or not all(ratio in RATIOS for ratio in found[:blocks]):
        raise WispError(
            f"{header.architecture}.attention.compress_ratios is {found!r:.100}; it must be 0, 4 or 128 for each of "
            f"{blocks} layers.",
            "corrupt_header",
        )
    return tuple(found[:blocks])


def _shapes(header: Header, base: config.Config, ratios: tuple[int, ...]) -> tuple[CompressedShape, ...]:
    """The attention of every layer."""
    window = count(header, "attention.sliding_window")
    size, rope = base.head_dim, base.ropes[0].dim
    if size % 4 or rope % 4 or not rope:
        raise WispError(
            f"Wisp cannot run compressed keys of {size} dimensions, {rope} of them rotated.", "unsupported_architecture"
        )
    shapes = [CompressedShape(base.head_count, size, rope, window, ratio, 0) for ratio in ratios]
    span = max(shape.reach for shape in shapes)
    index = None
    if OVERLAPPING in ratios:
        given = index_shape(header, rope, neox=NEOX)
        index = replace(given, top_k=OVERLAPPING * given.top_k, pool=OVERLAPPING)
    return tuple(replace(shape, span=span, index=index if shape.overlaps else None) for shape in shapes)


def _ropes(header: Header, rope: RopeSpec, ratios: tuple[int, ...]) -> tuple[RopeSpec, ...]:
    """The rotation of every layer: plain without compressed keys; else of another base, YaRN without magnitude."""
    magnitude = 1 + 0.1 * log(max(1.0, rope.factor)) if rope.scaling == "yarn" else 1.0
    plain = replace(rope, scaling="none", factor=1.0, attn_factor=1.0, factors=Factors.NONE)
    key = "attention.compress_rope_freq_base"
    base = rope_base(header, key, number(header, key))
    other = replace(rope, base=base, attn_factor=1 / magnitude, factors=Factors.NONE)
    return tuple(other if ratio else plain for ratio in ratios)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return a weighted sum of the streams (n, n_embd)."""
    assert cfg.mixed

    def attention(layer: Layer, i: int, x: Buffer) -> Buffer:
        if i >= cfg.by_token and (tensor := layer.b + "exp_probs_b.bias") not in w:
            raise missing_tensor(tensor, w.header.architecture)
        return _attention(layer, x, caches[i])

    rows = append_layers(cfg, cfg.mixed, w, ops, ropes, attention)
    matrix = w.matrix("output_hc_fn.weight", STREAMS, STREAMS * cfg.embedding_length)
    terms = w.vector(("output_hc_scale.weight", 1), ("output_hc_base.weight", STREAMS))
    return streams.merge(ops, rows, streams.weights(ops, rows, matrix, terms, cfg.eps))


def _attention(layer: Layer, x: Buffer, cache: Cache) -> Buffer:
    """The output of a layer's attention: (n, n_embd)."""
    cfg, w, ops, b, rope, shape = layer.cfg, layer.w, layer.ops, layer.b, layer.rope, layer.cfg.compressed
    assert isinstance(cfg, Config)
    assert shape
    n, rank, eps = cfg.embedding_length, w.rows(b + "attn_q_a.weight"), cfg.eps
    h, norm = normed(cfg, w, ops, x, b + cfg.attn_norm)
    parts = [("attn_q_a", rank), ("attn_kv", shape.size)]
    if shape.ratio:
        parts += [("attn_compressor_kv", shape.cols), ("attn_compressor_gate", shape.cols)]
    own = shape.of_index if cache.compressed and cache.compressed.index else None
    if own:
        parts += [("indexer_compressor_kv", own.cols), ("indexer_compressor_gate", own.cols)]
        parts.append(("indexer.proj", own.heads))
    stack = w.stack([(f"{b}{name}.weight", rows) for name, rows in parts], n)
    low = ops.normed_stack("low", h, Projection(stack, None, norm, eps))
    low_norm = w.vector((b + "attn_q_a_norm.weight", rank))
    matrix = w.matrix(b + "attn_q_b.weight", shape.heads * shape.size, rank)
    q = ops.normed_stack("q_heads", low, Projection([matrix], None, low_norm, eps))
    key_norm = w.vector((b + "attn_kv_a_norm.weight", shape.size))
    compressed_attention.append(ops, Appended(q, low, rank, key_norm, rope), cache, shape, eps)
    if shape.ratio:
        compressed_attention.compress(ops, _compressor(layer, "attn", shape), cache, shape)
    mask = None
    if own:
        matrix = w.matrix(b + "indexer.attn_q_b.weight", own.heads * own.size, rank)
        index_q = ops.normed_stack("index_q", low, Projection([matrix], None, low_norm, eps))
        first = rank + shape.size + 2 * shape.cols
        compressed_attention.append_to_index(ops, Appended(index_q, low, first, None, rope), cache, own)
        weights = Columns(low, first + 2 * own.cols)
        mask = compressed_attention.choose(ops, _compressor(layer, "indexer", own), index_q, weights, cache, own)
    sinks = w.vector((b + "attn_sinks.weight", shape.heads))
    attn = compressed_attention.attend(ops, q, cache, shape, Attended(sinks, rope, mask), cfg.attention_scale)
    wide = cfg.attention_cols // cfg.groups  # columns of a group's heads
    out = ops.rows("values", cfg.groups * cfg.rank, ops.input_dtype)
    matrix = w.matrix(b + "attn_output_a.weight", cfg.groups * cfg.rank, wide)
    matrices = HeadMatrices(cfg.groups, matrix, cfg.rank, wide)
    latent_attention.products(ops, Columns(attn, 0, wide), matrices, Columns(out, 0, cfg.rank))
    return ops.project("out", out, w.matrix(b + "attn_output_b.weight", n, cfg.groups * cfg.rank), None)


def _compressor(layer: Layer, name: str, shape: CompressedShape) -> Compressor:
    """The weights that compress keys. `name`: "attn", or "indexer" for those of the index."""
    prefix, w = f"{layer.b}{name}_compressor_", layer.w
    terms = w.matrix(prefix + "ape.weight", shape.ratio, shape.cols)
    return Compressor(terms, w.vector((prefix + "norm.weight", shape.size)), layer.cfg.eps, layer.rope)


output = decoder.output
