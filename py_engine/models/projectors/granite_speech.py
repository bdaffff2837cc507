"""Granite Speech's encoder of sound: a conformer with attention within blocks of rows, and a Q-Former (Li et al. 2023).

A row is two frames. A key for each distance is shared by all heads (Shaw et al. 2018). Each window of rows becomes some
tokens: learned queries attend to each other, then to the window's rows.
Source: granite-speech.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.media.encoders import Speech
from py_engine.media.kinds import MAX_SECONDS, RATE
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.fastconformer import BLOCKS_PER_SUBMIT, ConformerBlock
from py_engine.models.projectors.heads import finish
from py_engine.models.projectors.qformer import EPS, QFormerLayer, weight_and_bias
from py_engine.models.projectors.stages import Stages
from py_engine.plan import attention, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer

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
    x = ops.project("x", s.input("frames", tower.mels), *weight_and_bias(s, "a.input_projection", n, tower.mels))
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
    return _projected(s, speech, joined if speech.features else x, cols)


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
    y = s.ops.project("characters", x, *weight_and_bias(s, "a.enc_ctc_out", size, n))
    s.ops.linear(rows.softmax(s.ops, y, size), *weight_and_bias(s, "a.enc_ctc_out_mid", n, size), x)


def _projected(s: Stages, speech: Speech, x: Buffer, cols: int) -> EncoderPlan:
    """The Q-Former; x has `cols` columns. Rows of zeros fill up the last window, and are attended to."""
    n, windows = s.tower.embedding_length, s.most // speech.window
    layers = [QFormerLayer(s, f"a.proj_blk.{i}.", speech.heads, "pictures", "windows", "gelu") for i in range(LAYERS)]
    ops = s.begin("padded", windows * speech.window)
    padded = ops.rows("windows", cols)
    rows.gather(ops, x, cols, s.taps("padded", 1), padded)
    caches = [layer.windows(padded, cols, str(i)) for i, layer in enumerate(layers)]
    ops = s.begin("tokens", windows * speech.queries)
    queries = ops.rows("queries", n)
    rows.gather(ops, s.w.matrix("a.proj_query", speech.queries, n), n, s.taps("queries", 1), queries)
    y = Norms(s, rms=False, eps=EPS).apply("a.proj_norm", queries, "queries_norm")
    for layer, cache in zip(layers, caches, strict=True):
        y = layer.add(y, cache)
    return finish(s, y, "a.proj_linear", n)
