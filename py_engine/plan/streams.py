"""Ops of hyper-connections (Zhu et al. 2024): several residual streams.

A block reads a weighted sum of the streams; its result is added to each, times another weight. Weights are sigmoids of
a product with the norm of all streams. Streams lie beside each other in a row of a buffer, without padding between
them: (n, streams * cols).
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.op_list import OpList
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import Parts, copy_columns, norm_threads, plain_rms_norm
from py_engine.plan.shared_constants import THREADS


@dataclass(frozen=True)
class Streams:
    """The residual streams of a list: `count` of `cols` columns. `eps`: what is added to each weight."""

    rows: Buffer
    count: int
    cols: int
    eps: float


@dataclass(frozen=True)
class StreamWeights:
    """`parts` weights of each stream: `products` (n, parts * count), and `terms`, the parts' scales, then all bases."""

    products: Buffer
    terms: Weight | Buffer
    parts: int


def begin(ops: OpList, x: Buffer, count: int, cols: int, eps: float) -> Streams:
    """Streams that all are x."""
    rows = ops.rows("streams", count * cols)
    copy_columns(ops, Parts(x), Parts(rows, 0, cols, count), cols)
    return Streams(rows, count, cols, eps)


def weights(ops: Ops, streams: Streams, matrix: Weight, terms: Weight, norm_eps: float) -> StreamWeights:
    """The weights that a matrix (parts * count, count * cols) makes of the norm of all streams."""
    normed = plain_rms_norm(ops, streams.rows, streams.count * streams.cols, norm_eps)
    products = ops.project("stream_products", normed, matrix, None)
    return StreamWeights(products, terms, matrix.rows // streams.count)


def merge(ops: OpList, streams: Streams, given: StreamWeights) -> Buffer:
    """The sum of the streams, each times the first of its weights: (n, cols)."""
    y = ops.rows("merged_streams", streams.cols)
    _add(ops, "merge_streams", streams, given, {"y": y}, 0, 1.0)
    return y


def spread(ops: OpList, x: Buffer, streams: Streams, given: StreamWeights, factor: float) -> None:
    """Each stream += x times the last of its weights, whose sigmoid is multiplied by the factor."""
    _add(ops, "spread_streams", streams, given, {"x": x}, given.parts - 1, factor)


def _add(
    ops: OpList, kernel: str, streams: Streams, given: StreamWeights, other: dict[str, Buffer], part: int, factor: float
) -> None:
    (rows,) = other.values()
    ops.add(
        kernel,
        {"STREAMS": streams.count, "COLS": streams.cols},
        {"part": part, "parts": given.parts, "factor": factor, "eps": streams.eps}
        | {"products_stride": given.products.shape[1], "streams_stride": streams.rows.shape[1]}
        | {"stride": rows.shape[1]},
        {"state": ops.state, "products": given.products, "terms": given.terms, "streams": streams.rows} | other,
        -(-streams.cols // THREADS),
        PerToken(),
    )


def attend(ops: OpList, stored: Buffer, count: int, x: Buffer, scores: Weight, eps: float) -> Buffer:
    """The mean of x and of the first `count` stored streams, (n, streams * cols), weighted by softmax: (n, cols).

    A stream's score is the product of its RMS norm with `scores`.
    """
    y = ops.buffer(f"{ops.name}.attended_streams", x.shape)
    ops.add(
        "attend_streams",
        {"COUNT": count, "COLS": scores.cols, "WG": norm_threads(ops.device, scores.cols)},
        {"eps": eps, "stored_stride": stored.shape[1], "stride": x.shape[1]},
        {"scores": scores, "stored": stored, "x": x, "y": y},
        PerToken(),
    )
    return y
