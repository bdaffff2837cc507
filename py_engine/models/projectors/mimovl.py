"""MiMo-VL 2.5: blocks that attend to near rows, in the order of a picture's lines or of its columns, with sinks.

Source: mimovl.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.heads import finish, hidden, merge
from py_engine.models.projectors.stages import Stages
from py_engine.models.projectors.tower import IN_COLUMNS, WHOLE, Bands
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer

BLOCKS_PER_SUBMIT = 4
EPS = 1e-6  # of the norm after the blocks


def blocks(s: Stages, norms: Norms, x: Buffer, bands: Bands) -> Buffer:
    """Append the blocks; return the stream, in the order of lines."""
    tower, in_columns = s.tower, False
    straight = s.rope()
    turned = s.rope_of("column_turns") if IN_COLUMNS in bands.modes else straight
    cache, scale = s.cache(), tower.head_dim**-0.5
    for i, mode in enumerate(bands.modes):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("patches", s.most)
        if in_columns != (mode == IN_COLUMNS):
            in_columns = not in_columns
            x = _ordered(s, x, in_columns)
        first, banded = len(s.ops.ops), mode != WHOLE
        rope = turned if in_columns else straight
        Block(s, norms, f"v.blk.{i}.", rope, cache, scale, sinks=banded).add(x)
        s.segments(first, "windows" if banded else "pictures")
    return _ordered(s, x, False) if in_columns else x


def _ordered(s: Stages, x: Buffer, in_columns: bool) -> Buffer:
    """The rows x in the order of columns or, if they are in that, of lines."""
    n = s.tower.embedding_length
    y = s.ops.rows("in_columns" if in_columns else "x", n)
    rows.gather(s.ops, x, n, s.taps("columns" if in_columns else "lines", 1), y)
    return y


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """The end of the encoder: a norm of each patch, then two layers without biases, whatever the file has."""
    normed = Norms(s, rms=False, eps=EPS).apply("v.post_ln", x, "encoded")
    y, width = hidden(s, merge(s, normed), "mm.0", s.tower.merge**2 * s.tower.embedding_length, bias=False)
    return finish(s, y, "mm.2", width, bias=False)
