"""Pooling: from the hidden states of sequences to their embeddings, of length 1 if asked. Shapes as in ops.py."""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.packing import packed_params
from py_engine.plan.plan import Buffer, PerToken
from py_engine.plan.shared_constants import THREADS

NORMALIZE_THREADS = 64
NAMES = ("none", "mean", "cls", "last", "rank")  # llama.cpp's numbering of {arch}.pooling_type


def pool(ops: Ops, x: Buffer, kind: str, name: str) -> None:
    """Pool each segment of x into its row of the buffer `name`: the mean of its rows, the first ("cls") or the last.

    A segment may come in several batches: the buffer accumulates.
    """
    _add_pool(ops, x, kind, ops.buffer(name, (ops.batch, x.shape[1]), pool="state"))


def last_rows(ops: Ops, x: Buffer, y: Buffer) -> None:
    """Copy the row of each segment's last token from x (n, cols) to the segment's row of y (rows, cols)."""
    _add_pool(ops, x, "last", y)


def _add_pool(ops: Ops, x: Buffer, kind: str, y: Buffer) -> None:
    params = {"VECS": x.shape[1] // 4, "KIND": kind} | packed_params(ops.plan)
    buffers = {"state": ops.state, "x": x, "y": y}
    ops.add("pool", params, {}, buffers, -(-x.shape[1] // (4 * THREADS)), PerToken())


def spread_means(ops: Ops, x: Buffer) -> Buffer:
    """Rows (n, cols): a segment's last one is the mean of its rows of x, the others are zeros.

    For encoders, whose segments come in one batch each.
    """
    y = ops.rows("segment_means", x.shape[1])
    _add_pool(ops, x, "spread", y)
    return y


def normalize(ops: Ops, y: Buffer, cols: int) -> None:
    """Scale the first `cols` values of each row of y to length 1. A row of zeros stays as it is."""
    ops.add("normalize", {"COLS": cols, "PITCH": y.shape[1], "WG": NORMALIZE_THREADS}, {}, {"y": y}, PerToken())
