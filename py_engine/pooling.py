"""From the hidden states of a sequence to its embedding. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.ops import Ops
from py_engine.plan import Buffer

NAMES = ("none", "mean", "cls", "last", "rank")  # what {arch}.pooling_type counts, as llama.cpp numbers it


@dataclass(frozen=True)
class Embedding:
    """Where a model's embeddings are after its list "embed", and after the list of a pooling behind it.

    Buffers: `rows` (n, width padded), of every token; "pooled" (1, width padded); "ranked" (1, labels padded).
    """

    rows: str
    width: int
    pooling: str | None  # what the metadata asks for
    labels: int = 0  # of the classification head; 0: there is none
    softmax: bool = False  # whether the labels' numbers are to add up to one


def pool(ops: Ops, x: Buffer, kind: str, name: str) -> None:
    """One row for the sequence in the buffer `name`: the mean of x's rows, the first ("cls") or the last.

    Works over several batches: the buffer keeps what those before gave.
    """
    y = ops.buffer(name, (1, x.shape[1]), pool="state")
    ops.add(
        "pool", {"VECS": x.shape[1] // 4, "KIND": kind}, {}, {"state": ops.state, "x": x, "y": y}, -(-x.shape[1] // 256)
    )
