"""Ops of hyper-connections whose streams are merged by gates (Qwen 4's). Streams lie in rows as in streams.py.

A block reads the mean of the streams' norms, each value times a gate that low-rank products of all norms give. The
block's result is added to each stream, times a weight of the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.rows import norm_threads
from py_engine.plan.shared_constants import THREADS
from py_engine.plan.streams import Streams, StreamWeights


@dataclass(frozen=True)
class Mixer:
    """`norm` (streams * cols), `down` (rank, streams * cols), `up`; `inject`: (streams, streams * cols), or none."""

    norm: Weight
    down: Weight
    up: Weight
    inject: Weight | None
    eps: float


def norm_streams(ops: Ops, x: Streams, norm: Weight, eps: float, scale: float = 1.0) -> Buffer:
    """scale * the RMS norm of each stream, with weights of its own: (n, streams * cols)."""
    y = ops.rows("normed_streams", x.count * x.cols)
    ops.add(
        "norm_streams",
        {"COLS": x.cols, "WG": norm_threads(ops.device, x.cols)},
        {"scale": scale, "eps": eps, "x_stride": x.rows.shape[1], "y_stride": y.shape[1]},
        {"norm": norm, "x": x.rows, "y": y},
        PerToken(),
        x.count,
    )
    return y


def mix(ops: Ops, x: Streams, mixer: Mixer) -> tuple[Buffer, StreamWeights | None]:
    """(what a block reads, (n, cols); the weights of what it adds, if there are any).

    The mean's divisor scales the norms: what the low-rank products and the weights read is divided by it, too.
    """
    normed = norm_streams(ops, x, mixer.norm, mixer.eps, 1 / x.count)
    low = ops.activated(normed, Projection([mixer.down]), "silu")
    gates = ops.project("stream_gates", low, mixer.up, None)
    y = ops.rows("mixed_streams", x.cols)
    ops.add(
        "mix_streams",
        {"STREAMS": x.count, "COLS": x.cols},
        {"x_stride": normed.shape[1], "gates_stride": gates.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "x": normed, "gates": gates, "y": y},
        -(-x.cols // THREADS),
        PerToken(),
    )
    if mixer.inject is None:
        return y, None
    terms = ops.constant(f"stream_terms.{x.count}", [1.0] + [0.0] * x.count)  # a scale of 1, bases of 0
    return y, StreamWeights(ops.project("stream_products", normed, mixer.inject, None), terms, 1)
