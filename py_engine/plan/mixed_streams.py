"""Ops of hyper-connections that also mix the residual streams with each other (Xie et al. 2025). Rows as in streams.py.

The products of all streams' norm are weights to read the streams, to add to them, and of each in every other one.
"""

from __future__ import annotations

from py_engine.plan.op_list import OpList
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import Parts, copy_columns, norm_threads, plain_rms_norm
from py_engine.plan.streams import Streams, StreamWeights

KINDS = 3  # of weights: to read, to add, to mix


def weights(ops: Ops, streams: Streams, matrix: Weight, terms: Weight, norm_eps: float) -> StreamWeights:
    """The weights that a matrix ((2 + count) * count, count * cols) makes of the norm of all streams.

    `terms`: a scale of each kind of weights, then all bases.
    """
    normed = plain_rms_norm(ops, streams.rows, streams.count * streams.cols, norm_eps)
    return StreamWeights(ops.project("stream_products", normed, matrix, None), terms, KINDS)


def remix(ops: OpList, x: Buffer, streams: Streams, given: StreamWeights, rounds: int) -> None:
    """Each stream = a weighted sum of all streams, and of x (n, cols). `rounds`: of the weights' normalisation."""
    ops.add(
        "remix_streams",
        {"STREAMS": streams.count, "COLS": streams.cols, "ROUNDS": rounds}
        | {"WG": norm_threads(ops.device, streams.cols)},
        {"eps": streams.eps, "products_stride": given.products.shape[1], "streams_stride": streams.rows.shape[1]}
        | {"stride": x.shape[1]},
        {"products": given.products, "terms": given.terms, "x": x, "streams": streams.rows},
        PerToken(),
    )


def mean(ops: OpList, streams: Streams) -> Buffer:
    """The mean of the streams: (n, cols)."""
    y, share = ops.rows("mean_stream", streams.cols), 1 / streams.count
    for s in range(streams.count):
        source = Parts(streams.rows, s * streams.cols)
        copy_columns(ops, source, Parts(y), streams.cols, scale=share, add=s > 0)
    return y
