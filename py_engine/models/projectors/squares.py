"""MiniCPM-V 4.6: squares of 2 x 2 rows become one, in the middle of the encoder and at its end.

The host orders patches so that a square's four follow each other, and the four squares of a larger one, too.
Source: minicpmv.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.stages import Stages
from py_engine.plan import rows
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Buffer

PREFIX = "v.vit_merger."
ROWS = 4  # of a square


def merge(s: Stages, block: Block, x: Buffer) -> Buffer:
    """Attention within each square, in place; then a row of each: their mean + a network on all four."""
    w, n = s.w, s.tower.embedding_length
    first = len(s.ops.ops)
    block.attend(x)
    s.segments(first, "windows")
    y = joined(s, "quarters", x)
    ops = s.ops
    mean = ops.rows("x", n)
    rows.gather(ops, x, n, s.taps("quarters", ROWS), mean)
    norms = Norms(s, rms=False, eps=s.tower.eps)
    normed = norms.apply(PREFIX + "ds_ln", y, "joined_norm", for_product=True, cols=ROWS * n)
    width = w.rows(PREFIX + "ds_ffn_up.weight")
    up, down = w.matrix(PREFIX + "ds_ffn_up.weight", width, ROWS * n), w.matrix(PREFIX + "ds_ffn_down.weight", n, width)
    up_bias = w.optional_vector((PREFIX + "ds_ffn_up.bias", width))
    hidden = ops.activated(normed, Projection([up], up_bias), "gelu")
    ops.linear(hidden, down, w.optional_vector((PREFIX + "ds_ffn_down.bias", n)), mean)
    return mean


def joined(s: Stages, stage: str, x: Buffer) -> Buffer:
    """Begin a stage over squares; the rows of each beside each other: (n, 4 * n_embd)."""
    n = s.tower.embedding_length
    if pad(n) != n:
        raise WispError(f"Wisp cannot run this type of encoder with rows of {n} values.", "unsupported_architecture")
    return rows.merged(s.begin(stage, s.ops.batch // ROWS), x, n, ROWS, None)
