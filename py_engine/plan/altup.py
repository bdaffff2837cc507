"""Ops of AltUp (Baykal et al. 2023): several residual streams; a layer computes with the first of them.

Streams lie beside each other in a row of a buffer: (n, streams * padded columns). A router of the first stream has a
logit for each stream (n, padded streams).
"""

from __future__ import annotations

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.shared import THREADS


def predict(ops: Ops, streams: Buffer, x: Buffer, router: Buffer, factors: Weight, scale: float) -> None:
    """streams[i] += the sum over j of f[i, j] * streams[j]; x = streams[0].

    f = `factors` (n_streams, n_streams, n_streams) times tanh(scale * the router's logits).
    """
    _add(ops, "altup_predict", scale, {"router": router, "factors": factors, "y": streams, "x": x})


def correct(
    ops: Ops, streams: Buffer, x: Buffer, router: Buffer, factors: Weight, weights: Weight, scale: float
) -> Buffer:  # fmt: skip
    """streams[i] += (1 + f[i]) * (x - streams[0]); x = streams[0]. Return x times `weights`, column by column.

    f = `factors` (n_streams, n_streams) times tanh(scale * the router's logits).
    """
    scaled = ops.buffer(f"{ops.name}.scaled", x.shape)
    read: dict[str, Buffer | Weight] = {"router": router, "factors": factors, "weights": weights}
    _add(ops, "altup_correct", scale, read | {"y": streams, "x": x, "scaled": scaled})
    return scaled


def _add(ops: Ops, kernel: str, scale: float, bindings: dict[str, Buffer | Weight]) -> None:
    (_, columns), (_, cols) = bindings["y"].shape, bindings["x"].shape  # type: ignore[union-attr]
    vecs, count = cols // 4, columns // cols
    params, bound = {"STREAMS": count, "VECS": vecs}, {"state": ops.state} | bindings
    ops.add(kernel, params, {"scale": scale}, bound, -(-vecs // THREADS), PerToken())
