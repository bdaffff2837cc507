"""The kernels of plan/*streams.py with numpy: twins of the files wgsl/*_streams.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import normed


def _weights(c: Call) -> Array:
    """The weight of each token's streams, (n, streams, 1)."""
    count, part, parts = c.params["STREAMS"], c.consts["part"], c.consts["parts"]
    products, terms = c["products"][: c.n, part * count : (part + 1) * count], c["terms"][0]
    bases = terms[parts + part * count :][:count]
    found: Array = np.float32(c.consts["factor"]) / (1 + np.exp(-products * terms[part] - bases))
    return found[:, :, None] + np.float32(c.consts["eps"])


def _streams(c: Call) -> Array:
    """Every token's streams, (n, streams, columns)."""
    count, cols = c.params["STREAMS"], c.params["COLS"]
    streams: Array = c["streams"][: c.n, : count * cols].reshape(c.n, count, cols)
    return streams


def merge_streams(c: Call) -> None:
    c["y"][: c.n, : c.params["COLS"]] = (_weights(c) * _streams(c)).sum(axis=1)


def spread_streams(c: Call) -> None:
    added = _weights(c) * c["x"][: c.n, None, : c.params["COLS"]]
    c["streams"][: c.n, : added.shape[1] * added.shape[2]] += added.reshape(c.n, -1)


def attend_streams(c: Call) -> None:
    count, cols = c.params["COUNT"], c.params["COLS"]
    stored = c["stored"][: c.n, : count * cols].reshape(c.n, count, cols)
    streams = np.concatenate([stored, c["x"][: c.n, None, :cols]], axis=1)
    scores = normed(streams, c["scores"][0, :cols], c.consts["eps"]).sum(axis=2, keepdims=True)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    c["y"][: c.n, :cols] = (weights / weights.sum(axis=1, keepdims=True) * streams).sum(axis=1)


def norm_streams(c: Call) -> None:
    shape = c.n, c.grid[1], c.params["COLS"]
    streams = c["x"][: c.n, : shape[1] * shape[2]].reshape(shape)
    out = normed(streams, c["norm"].reshape(-1)[: shape[1] * shape[2]].reshape(shape[1:]), c.consts["eps"])
    c["y"][: c.n, : shape[1] * shape[2]] = np.float32(c.consts["scale"]) * out.reshape(c.n, -1)


def mix_streams(c: Call) -> None:
    shape = c.n, c.params["STREAMS"], c.params["COLS"]
    x, gates = (c[name][: c.n, : shape[1] * shape[2]].reshape(shape) for name in ("x", "gates"))
    c["y"][: c.n, : shape[2]] = (x / (1 + np.exp(-gates))).sum(axis=1)


def remix_streams(c: Call) -> None:
    count, cols, eps = c.params["STREAMS"], c.params["COLS"], np.float32(c.consts["eps"])
    scales, bases = np.split(c["terms"][0][: 3 + (2 + count) * count], [3])
    products = c["products"][: c.n, : len(bases)] * np.repeat(scales, (count, count, count * count)) + bases
    added = 2 / (1 + np.exp(-products[:, count : 2 * count]))
    mixing = products[:, 2 * count :].reshape(c.n, count, count)  # from each stream to every other
    weights = np.exp(mixing - mixing.max(axis=2, keepdims=True))
    weights = weights / weights.sum(axis=2, keepdims=True) + eps
    for number in range(c.params["ROUNDS"]):
        if number:
            weights = weights / (weights.sum(axis=2, keepdims=True) + eps)
        weights = weights / (weights.sum(axis=1, keepdims=True) + eps)
    x = c["x"][: c.n, None, :cols] * added[:, :, None]
    c["streams"][: c.n, : count * cols] = (weights.transpose(0, 2, 1) @ _streams(c) + x).reshape(c.n, -1)
