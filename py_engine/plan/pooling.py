"""From the hidden states of a sequence to its embedding. Shapes as in ops.py."""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.shared import THREADS

NAMES = ("none", "mean", "cls", "last", "rank")  # what {arch}.pooling_type counts, as llama.cpp numbers it


def pool(ops: Ops, x: Buffer, kind: str, name: str) -> None:
    """One row for the sequence in the buffer `name`: the mean of x's rows, the first ("cls") or the last.

    Works over several batches: the buffer keeps what those before gave.
    """
    y = ops.buffer(name, (1, x.shape[1]), pool="state")
    params, buffers = {"VECS": x.shape[1] // 4, "KIND": kind}, {"state": ops.state, "x": x, "y": y}
    ops.add("pool", params, {}, buffers, -(-x.shape[1] // (4 * THREADS)))
