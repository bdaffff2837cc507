"""Pooling: from the hidden states of a sequence to its embedding, of length 1 if asked. Shapes as in ops.py."""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.shared import THREADS

NORMALIZE_THREADS = 64
NAMES = ("none", "mean", "cls", "last", "rank")  # llama.cpp's numbering of {arch}.pooling_type


def pool(ops: Ops, x: Buffer, kind: str, name: str) -> None:
    """Pool x into the one row of the buffer `name`: the mean of its rows, the first ("cls") or the last.

    A sequence may come in several batches: the buffer accumulates.
    """
    y = ops.buffer(name, (1, x.shape[1]), pool="state")
    params, buffers = {"VECS": x.shape[1] // 4, "KIND": kind}, {"state": ops.state, "x": x, "y": y}
    ops.add("pool", params, {}, buffers, -(-x.shape[1] // (4 * THREADS)))


def normalize(ops: Ops, y: Buffer, cols: int) -> None:
    """Scale the row y, of `cols` values, to length 1. A row of zeros stays as it is."""
    ops.add("normalize", {"COLS": cols, "WG": NORMALIZE_THREADS}, {}, {"y": y}, 1)
