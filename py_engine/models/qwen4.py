"""Qwen 4: residual streams that gated means merge; gated delta nets in most layers, attention in others; experts.

One layer may add embeddings of n-grams to the streams (plan/ngrams.py). Layers of attention may have an index that
joins keys and chooses the positions a token attends to (plan/indexer.py). Source: llama.cpp's `qwen4exp` architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, qwen35
from py_engine.models.common import count, dimension, natural
from py_engine.models.decoder import Layer
from py_engine.models.indexer import index_shape
from py_engine.models.mixture import ExpertLayer
from py_engine.plan import gated_streams, ngrams, streams
from py_engine.plan.cache import Cache
from py_engine.plan.gated_streams import Mixer
from py_engine.plan.indexer import IndexShape
from py_engine.plan.ngrams import Ngrams
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import NO_AXIS, Rope
from py_engine.plan.rows import zero
from py_engine.plan.states import MAX_TAPS, StateShape
from py_engine.plan.streams import Streams
from py_engine.plan.weights import Weights

NEOX = True
TABLE = "per_layer_token_embd.weight"
MAX_LENGTH, MAX_HEADS = 8, 64  # of n-grams, as in llama.cpp
FACTOR = 2.0  # of the sigmoids that weigh what is added to streams


@dataclass(frozen=True)
class Config(qwen35.Config):
    """The hyperparameters."""

    streams: int = 1
    low_rank: int = 0  # of what makes the streams' gates
    ngram_layer: int = -1
    ngrams: Ngrams | None = None  # in layer(): of that layer only
    index_of: IndexShape | None = None
    indexed: tuple[bool, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        base.need_mixture("Qwen 4")
        assert base.state_space
        index, indexed = _index(header, base)
        layer, found = _ngrams(header, base.embedding_length)
        if found and not (layer < base.block_count and base.has_state(layer)):
            raise WispError("Layers that add n-grams must be recurrent.", "corrupt_header")
        return replace(
            base,
            context_length=_limit(base, index),
            index_of=index,
            indexed=indexed,
            context_with_media=index.top_k if index else 0,  # joined keys are rotated by the positions of text
            state_space=replace(base.state_space, sigmoid_gates=True),
            streams=dimension(header, "hyper_connection.count", times=base.embedding_length),
            low_rank=dimension(header, "hyper_connection.low_rank"),
            ngram_layer=layer,
            ngrams=found,
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        index = self.index_of if self.indexed[i] and self.attending[i] else None
        return replace(self, ngrams=self.ngrams if i == self.ngram_layer else None, index=index)

    @property
    def state_shape(self) -> StateShape | None:
        """The shape of a recurrent layer's state; with n-grams, it has the inputs of their convolution, too."""
        shape = super().state_shape
        assert shape
        more = (self.streams * self.embedding_length, self.ngrams.window) if self.ngrams else (0, 0)
        return replace(shape, more=more)


def _index(header: Header, base: Config) -> tuple[IndexShape | None, tuple[bool, ...]]:
    """(the index, whether each layer has one). All join the same number of keys."""
    ratios, chosen = header.arch("attention.compress_ratios", 0), count(header, "attention.indexer.top_k")
    given = ratios if isinstance(ratios, list) else [ratios] * base.block_count
    joined = {ratio for ratio in given if ratio}
    if not joined:
        return None, (False,) * base.block_count
    pool = joined.pop()
    if joined or len(given) < base.block_count or type(pool) is not int or pool < 2 or chosen % pool:
        raise WispError(
            f"Wisp cannot run indices that join {ratios!r:.100} keys and choose {chosen} positions.", "corrupt_header"
        )
    shape = replace(index_shape(header, base.ropes[0].dim, neox=NEOX), eps=base.eps, pool=pool, raw=True)
    return shape, tuple(bool(ratio) for ratio in given[: base.block_count])


def _limit(base: Config, index: IndexShape | None) -> int:
    """The context length: what the index chooses if it cannot be computed.

    llama.cpp rotates joined keys also by the pairs that sections leave out, which no longer fit the queries.
    """
    left_out = any(NO_AXIS in rope.axes for rope in base.ropes if rope.sections)
    return min(base.context_length, index.top_k) if index and left_out else base.context_length


def _ngrams(header: Header, width: int) -> tuple[int, Ngrams | None]:
    """(the layer that adds n-grams, how they are embedded)."""
    layers = header.arch("ple.layers", [])
    if not layers:
        return -1, None
    if not isinstance(layers, list) or len(layers) != 1 or type(layers[0]) is not int or layers[0] < 0:
        raise WispError(
            f"Only one layer can add n-grams; {header.architecture}.ple.layers is {layers!r:.100}.",
            "unsupported_architecture",
        )
    longest, per_length = count(header, "ple.ngram_size"), count(header, "ple.heads_per_ngram")
    taps, heads = count(header, "ple.conv_kernel"), (longest - 1) * per_length
    end = natural(header, "ple.eos_token_id")
    size = dimension(header, "embedding_length_per_layer_input")
    if not 1 < longest <= MAX_LENGTH or heads > MAX_HEADS or heads * size != width:
        raise WispError(
            f"Wisp cannot embed n-grams of {longest} tokens with {per_length} heads of {size} columns each, of "
            f"{width}.",
            "corrupt_header",
        )
    if taps < 2 or (taps - 1) * longest > MAX_TAPS:
        raise WispError(
            f"Wisp cannot run a convolution of n-grams over {taps} inputs, each {longest} tokens after the one before.",
            "unsupported_architecture",
        )
    factors = _numbers(header, "ple.layer_multipliers", longest, 1 << 64)
    firsts, sizes = (_numbers(header, f"ple.head_{name}", heads, 1 << 31) for name in ("offsets", "vocab_sizes"))
    if not all(sizes) or any(first + rows >= 1 << 31 for first, rows in zip(firsts, sizes, strict=True)):
        raise WispError("The rows of n-grams' heads are not those of a table.", "corrupt_header")
    picture = natural(header, "ple.image_token_id") or end
    return layers[0], Ngrams(factors, firsts, sizes, per_length, end, picture, taps)


def _numbers(header: Header, key: str, least: int, end: int) -> tuple[int, ...]:
    """The first `least` numbers of a list, each less than `end`."""
    found = header.arch(key)
    if not isinstance(found, list) or len(found) < least or not all(type(n) is int and 0 <= n < end for n in found):
        raise WispError(f"{header.architecture}.{key} must have {least} whole numbers.", "corrupt_header")
    return tuple(found[:least])


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the last mean of streams (n, n_embd), which is normalised."""
    n = cfg.embedding_length
    x = ops.embed(w.matrix("token_embd.weight", cfg.vocab, n))
    rows = streams.begin(ops, x, cfg.streams, n, 0.0)
    found = None
    if cfg.ngrams:
        table = w.matrix(TABLE, _table_rows(w, cfg.ngrams), n // len(cfg.ngrams.sizes))
        found = ngrams.embed(ops, table, cfg.ngrams)
    for i in range(cfg.block_count):
        own = cfg.layer(i)
        layer = Layer(own, w, ops, f"blk.{i}.", ropes[i], 0)
        if own.ngrams and found:
            _add_ngrams(layer, own.ngrams, found, rows, caches[i])
        read, weights = gated_streams.mix(ops, rows, _mixer(cfg, w, layer.b + "hc_attn", injects=True))
        if cfg.has_state(i):
            out = layer.project_recurrent(layer.recurrent(read, caches[i]))
        else:
            out = layer.project_attention(layer.attention(read, caches[i]))
        assert weights
        streams.spread(ops, out, rows, weights, FACTOR)
        read, weights = gated_streams.mix(ops, rows, _mixer(cfg, w, layer.b + "hc_ffn", injects=True))
        assert weights
        streams.spread(ops, _experts(layer, read), rows, weights, FACTOR)
        ops.layer_ends.append((len(ops.ops), rows.rows))  # as in llama.cpp, control vectors change nothing
    return gated_streams.mix(ops, rows, _mixer(cfg, w, "output_hc", injects=False))[0]


def _table_rows(w: Weights, given: Ngrams) -> int:
    """Rows of the table of n-grams: those of all heads, or more."""
    least = max(first + rows for first, rows in zip(given.firsts, given.sizes, strict=True))
    return max(least, w.rows(TABLE))


def _mixer(cfg: Config, w: Weights, name: str, *, injects: bool) -> Mixer:
    wide = cfg.streams * cfg.embedding_length
    down, up = w.matrix(name + "_down.weight", cfg.low_rank, wide), w.matrix(name + "_up.weight", wide, cfg.low_rank)
    inject = w.matrix(name + "_inject.weight", cfg.streams, wide) if injects else None
    return Mixer(w.vector((name + "_norm.weight", wide)), down, up, inject, cfg.eps)


def _add_ngrams(layer: Layer, given: Ngrams, found: Buffer, rows: Streams, cache: Cache) -> None:
    """rows += what the embeddings of n-grams `found` (n, n_embd) say of each stream."""
    cfg, w, ops, b = layer.cfg, layer.w, layer.ops, layer.b + "ple_"
    wide = rows.count * rows.cols
    key = ops.normed_stack("ngram_keys", found, Projection([w.matrix(b + "key.weight", wide, rows.cols)]))
    value = ops.normed_stack("ngram_values", found, Projection([w.matrix(b + "value.weight", rows.cols, rows.cols)]))
    norms = w.vector(*((f"{b}norm_{part}.weight", wide) for part in ("key", "query", "conv")))
    added = ngrams.add(ops, rows, ngrams.Gated(key, value, norms), cfg.eps)
    assert cache.states
    ngrams.convolve(ops, added, w.matrix(b + "conv1d.weight", wide, given.taps), rows, given, cache.states)


def _experts(layer: Layer, x: Buffer) -> Buffer:
    """The output of the layer's experts for x: (n, n_embd)."""
    cfg, ops = layer.cfg, layer.ops
    assert cfg.mixture
    out = ops.rows("experts_sum", cfg.embedding_length)
    zero(ops, x, out, cfg.embedding_length)
    ExpertLayer(cfg, cfg.mixture, layer.w, ops, layer.b).add(out, x, None)
    return out


output = decoder.output
