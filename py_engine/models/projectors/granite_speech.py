"""Granite Speech's encoder of sound: a conformer with attention within blocks of rows, and a Q-Former (Li et al. 2023).

A row is two frames. A key for each distance is shared by all heads (Shaw et al. 2018). Each window of rows becomes some
tokens: learned queries attend to each other, then to the window's rows.
Source: granite-speech.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.media.encoders import Speech
from py_engine.media.kinds import MAX_SECONDS, RATE
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.fastconformer import BLOCKS_PER_SUBMIT, ConformerBlock
from py_engine.models.projectors.heads import finish, hidden
from py_engine.models.projectors.stages import Stages
from py_engine.plan import attention, products, rows
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.ops import AttentionOptions
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product

EPS = 1e-12  # of the projector's norms, whatever the metadata says
LAYERS = 2  # of the projector, as llama.cpp has them
SAMPLES = 320  # of a row


def most_rows(speech: Speech) -> int:
    """Rows of the longest clip, in whole windows."""
    return -(-MAX_SECONDS["granite_speech"] * RATE // (SAMPLES * speech.window)) * speech.window


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, n, speech = s.tower, s.tower.embedding_length, s.tower.speech
    assert speech is not None
    if speech.block % attention.RELATIVE_ROWS:
        raise WispError(f"Blocks of {speech.block} rows are not supported.", "unsupported_architecture")
    relative, norms = _relative_keys(s, speech), Norms(s, rms=False, eps=tower.eps)
    ops = s.begin("frames", s.most)
    cols = n * (1 + len(speech.features))
    x = ops.project("x", s.input("frames", tower.mels), *_weight_and_bias(s, "a.input_projection", n, tower.mels))
    near, joined = s.taps("near", speech.kernel), ops.rows("joined", cols)
    for i in range(tower.block_count):
        _join(s, speech, x, joined, i)
        if i and i == tower.block_count // 2:
            _add_text(s, x)
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("frames", s.most)
        block = ConformerBlock(s, norms, f"a.blk.{i}.", relative[i], near, speech.block)
        x = block.run(x, ("x", "other")[(i + 1) % 2])
    _join(s, speech, x, joined, tower.block_count)
    if speech.features:
        rows.copy_columns(s.ops, rows.Parts(x), rows.Parts(joined, cols - n), n)
    return _Projector(s, speech).append(joined if speech.features else x, cols)


def _weight_and_bias(s: Stages, name: str, count: int, cols: int) -> tuple[Weight, Weight]:
    return s.w.matrix(name + ".weight", count, cols), s.w.vector((name + ".bias", count))


def _relative_keys(s: Stages, speech: Speech) -> list[Buffer]:
    """The keys of all distances within a block of rows, the same for each head: (2 * block - 1, n_embd)."""
    tower, count = s.tower, 2 * speech.block - 1
    ops, chosen = s.begin("distances", count), s.taps("distances", 1)
    found = []
    for i in range(tower.block_count):
        table = s.w.matrix(f"a.blk.{i}.attn_rel_pos_emb", 2 * speech.positions + 1, tower.head_dim)
        key = ops.rows("key", tower.head_dim)
        rows.gather(ops, table, tower.head_dim, chosen, key)
        keys = ops.buffer(f"audio.relative.{i}", (count, pad(tower.embedding_length)))
        rows.copy_columns(ops, rows.Parts(key), rows.Parts(keys, 0, tower.head_dim, tower.head_count), tower.head_dim)
        found.append(keys)
    return found


def _join(s: Stages, speech: Speech, x: Buffer, joined: Buffer, after: int) -> None:
    """Copy the rows after so many blocks, if the projector reads them."""
    if after in speech.features:
        n = s.tower.embedding_length
        rows.copy_columns(s.ops, rows.Parts(x), rows.Parts(joined, speech.features.index(after) * n), n)


def _add_text(s: Stages, x: Buffer) -> None:
    """x += what the probabilities of characters, as x has them already, are mapped to (CTC)."""
    n, size = s.tower.embedding_length, s.w.rows("a.enc_ctc_out.weight")
    y = s.ops.project("characters", x, *_weight_and_bias(s, "a.enc_ctc_out", size, n))
    s.ops.linear(rows.softmax(s.ops, y, size), *_weight_and_bias(s, "a.enc_ctc_out_mid", n, size), x)


@dataclass(frozen=True)
class _Projector:
    """The Q-Former."""

    s: Stages
    speech: Speech

    @property
    def heads(self) -> tuple[int, int, int]:
        count = self.speech.heads
        return count, count, self.s.tower.embedding_length // count

    def append(self, x: Buffer, cols: int) -> EncoderPlan:
        """Append the stages; x has `cols` columns. Rows of zeros fill up the last window, and are attended to."""
        s, speech, n = self.s, self.speech, self.s.tower.embedding_length
        windows = s.most // speech.window
        ops = s.begin("padded", windows * speech.window)
        padded = ops.rows("windows", cols)
        rows.gather(ops, x, cols, s.taps("padded", 1), padded)
        caches = [self._keys_and_values(padded, f"a.proj_blk.{i}.cross_attn", i, cols) for i in range(LAYERS)]
        ops, norms = s.begin("tokens", windows * speech.queries), Norms(s, rms=False, eps=EPS)
        queries = ops.rows("queries", n)
        rows.gather(ops, s.w.matrix("a.proj_query", speech.queries, n), n, s.taps("queries", 1), queries)
        y = norms.apply("a.proj_norm", queries, "queries_norm")
        for i in range(LAYERS):
            b = f"a.proj_blk.{i}."
            own = self._keys_and_values(y, b + "self_attn", LAYERS, n)
            self._attend(y, b + "self_attn", own, "pictures")
            y = norms.apply(b + "self_attn_norm", y, "queries")
            self._attend(y, b + "cross_attn", caches[i], "windows")
            y = norms.apply(b + "cross_attn_norm", y, "attended_norm")
            mid, width = hidden(s, y, b + "ffn_up", n)
            s.ops.linear(mid, *_weight_and_bias(s, b + "ffn_down", n, width), y)
            y = norms.apply(b + "ffn_norm", y, "queries_norm")
        return finish(s, y, "a.proj_linear", n)

    def _keys_and_values(self, x: Buffer, name: str, number: int, cols: int) -> Cache:
        """The keys and values of x, which has `cols` columns."""
        s, ops, n = self.s, self.s.ops, self.s.tower.embedding_length
        both = ops.rows("keys_values", 2 * n)
        bias = s.w.vector(*((f"{name}_{part}.bias", n) for part in "kv"))
        for i, part in enumerate("kv"):
            weight = s.w.matrix(f"{name}_{part}.weight", n, cols)
            products.append(ops, Product(x, weight, both, bias, row0=i * n))
        k, v = (ops.buffer(f"audio.{part}.{number}", (ops.batch, n), ops.input_dtype) for part in "kv")
        cache = Cache(k, v, ops.input_dtype, UNPAGED)
        ops.split_qkv(both, cache, (0, *self.heads[1:]), s.no_rope(), None, EPS)
        return cache

    def _attend(self, x: Buffer, name: str, cache: Cache, table: str) -> None:
        """x += attention to a cache's rows of the same window."""
        s, ops, n = self.s, self.s.ops, self.s.tower.embedding_length
        q, first = ops.project("q", x, *_weight_and_bias(s, name + "_q", n, n)), len(ops.ops)
        attended = ops.attention(q, cache, self.heads, AttentionOptions(self.heads[2] ** -0.5, causal=False))
        s.segments(first, table)
        ops.linear(attended, *_weight_and_bias(s, name + "_out", n, n), x)
