"""DeepSeek-OCR: Segment Anything's encoder, then CLIP's, which reads its result; both results are joined.

Rows of the file end each line of tokens; another follows those of an overview. Where CLIP's table of positions has
another size, llama.cpp takes the table for a picture of values, which it resizes: its values then recur in the rows. It
takes the last row from as many bytes after the table's beginning as the table has places.
Source: deepseekocr.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

from py_engine.errors import WispError
from py_engine.media.kinds import SAM_SIDE
from py_engine.models.projectors import sam
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.deepseek_ocr import BLOCKS_PER_SUBMIT, tokens
from py_engine.models.projectors.heads import finish
from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer, Weight

EPS = 1e-5  # of CLIP's norms, whatever the metadata says
LAST = 2  # lines of the table that have the values of a resized one's last row
CUBIC = 4  # values along a side of which one of a resized table is made


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    w, n, count = s.w, s.tower.embedding_length, s.tower.positions  # those of a class, too
    assert s.tower.sam is not None
    read = sam.Encoder(s, s.tower.sam).build()
    if w.rows("v.sam.net_3.weight") != n:
        raise WispError("The projector's two encoders differ in width.", "bad_tensor_shape")
    s.tower = replace(s.tower, activation="gelu_quick", eps=EPS)
    if isqrt(max(0, count - 1)) ** 2 + 1 != count or count % 4 != 1:
        raise WispError(f"Wisp cannot resize a table of {count} positions.", "unsupported_architecture")
    table, most = w.matrix("v.position_embd.weight", count, n), tokens(SAM_SIDE)
    recurring, last = _resized(s, table, most)
    ops = s.begin("sequence", most + 1)
    x = ops.rows("x", n)
    rows.gather(ops, read, n, s.taps("read", 1), x)
    rows.gather(ops, w.vector(("v.class_embd", n)), n, s.taps("class", 1), x, add=True)
    rows.gather(ops, table, n, s.taps("places", 1), x, add=True)
    rows.gather(ops, recurring, n, s.taps("recurring_places", 1), x, add=True)
    rows.gather(ops, last, n, s.taps("last_place", 1), x, add=True)
    encoded = _encoded(s, x, most + 1)
    ops = s.begin("tokens", most)
    joined, found = ops.rows("joined", 2 * n), s.taps("found", 2)
    for part, source in enumerate((encoded, read)):
        rows.gather(ops, source, n, rows.OneTap(found, part), joined)
    return _with_ends(s, finish(s, joined, "mm.model.fc", 2 * n), most)


def _resized(s: Stages, table: Weight, most: int) -> tuple[Buffer, Buffer]:
    """Rows of the values of the resized table, which recur, (most, n_embd); and the last row, (1, n_embd)."""
    n, side = s.tower.embedding_length, isqrt(most)
    ops = s.begin("table_lines", side + LAST)
    lines = ops.rows("lines_of_values", n)
    rows.gather(ops, table, n, s.taps("table_lines", CUBIC), lines)
    ops = s.begin("table_parts", CUBIC)
    parts = rows.unfold(ops, _values(lines), 1, s.taps("table_parts", side**2), "f32")
    ops = s.begin("once", 1)
    values = ops.rows("values_of_table", side**2)
    rows.gather(ops, parts, side**2, s.taps("sum", CUBIC), values)
    last = rows.unfold(ops, _values(lines), 1, s.taps("last", n), "f32")
    ops = s.begin("recurring", most)
    return rows.unfold(ops, _values(values), 1, s.taps("recurring_values", n), "f32"), last


def _values(x: Buffer) -> Buffer:
    """The values of a buffer as rows of one column."""
    return replace(x, shape=(x.shape[0] * x.shape[1], 1))


def _encoded(s: Stages, x: Buffer, most: int) -> Buffer:
    """What CLIP's blocks make of its rows."""
    norms, rope, cache = Norms(s, rms=False, eps=EPS), s.no_rope(), s.cache()
    if "v.pre_ln.weight" in s.w:
        x = norms.apply("v.pre_ln", x, "stream")
    for i in range(s.tower.block_count):
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin("sequence", most)
        first = len(s.ops.ops)
        Block(s, norms, f"v.blk.{i}.", rope, cache, s.tower.head_dim**-0.5).add(x)
        s.segments(first, "quarters")
    return norms.apply("v.post_ln", x, "encoded") if "v.post_ln.weight" in s.w else x


def _with_ends(s: Stages, plan: EncoderPlan, most: int) -> EncoderPlan:
    """The results with the rows of the file: of an overview in lines; of a tile, one row after all."""
    w, width, side = s.w, plan.width, isqrt(most)
    ops = s.begin("ended", most + side + 1)
    y = ops.buffer("image.with_end", (ops.batch, pad(width)))
    rows.gather(ops, s.plan.buffers[plan.output], width, s.taps("order", 1), y)
    newline, end = w.vector(("v.image_newline", width)), w.matrix("v.view_seperator", 1, width)
    rows.gather(ops, newline, width, s.taps("breaks", 1), y, add=True)
    rows.gather(ops, end, width, s.taps("ends", 1), y, add=True)
    return s.finish(y, width)
