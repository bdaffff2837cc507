"""The kernels of several residual streams and of sparse gates with numpy: twins of wgsl/altup_*.wgsl and others."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import gated


def _routed(c: Call) -> Array:
    """The router's choice for every token, (n, streams)."""
    chosen: Array = np.tanh(np.float32(c.consts["scale"]) * c["router"][: c.n, : c.params["STREAMS"]])
    return chosen


def _streams(c: Call) -> Array:
    """A view of every token's streams, (n, streams, columns)."""
    streams: Array = c["y"][: c.n].reshape(c.n, c.params["STREAMS"], -1)
    return streams


def altup_predict(c: Call) -> None:
    streams, count = _streams(c), c.params["STREAMS"]
    factors = _routed(c) @ c["factors"].reshape(count * count, count).T
    predicted = streams + factors.reshape(c.n, count, count) @ streams
    streams[:] = predicted
    c["x"][: c.n] = predicted[:, 0]


def altup_correct(c: Call) -> None:
    streams, count = _streams(c), c.params["STREAMS"]
    change = c["x"][: c.n] - streams[:, 0]
    factors = 1 + _routed(c) @ c["factors"].reshape(count, count).T
    streams += factors[:, :, None] * change[:, None]
    c["x"][: c.n] = streams[:, 0]
    weights, scaled = c["weights"][0], c["scaled"][: c.n]
    scaled[:] = 0  # the weights' padding
    scaled[:, : len(weights)] = streams[:, 0, : len(weights)] * weights


def copy_columns(c: Call) -> None:
    cols = c.params["COLS"]
    for part in range(c.grid[1]):
        x_first, y_first = (c.consts[f"{name}_first"] + part * c.consts[f"{name}_step"] for name in ("x", "y"))
        x = c["x"][: c.n, x_first : x_first + cols].astype(np.float32)
        y = c["y"][: c.n, y_first : y_first + cols]
        factor: Array = np.full((c.n, 1), c.consts["scale"], np.float32)
        if c.params["LIKE"]:
            own, wanted = (np.square(v).sum(1, keepdims=True) for v in (x, c["like"][: c.n, :cols]))
            factor = factor * np.sqrt(np.divide(wanted, own, out=np.zeros_like(own), where=own > 0))
        y[:] = y + factor * x if c.params["ADD"] else factor * x


def sparse_gate(c: Call) -> None:
    cols = c.params["COLS"]
    gate, up = c["x"][: c.n, :cols], c["x"][: c.n, cols : 2 * cols]
    deviation = gate.std(axis=1, keepdims=True, ddof=1, dtype=np.float32)
    least = gate.mean(axis=1, keepdims=True, dtype=np.float32) + np.float32(c.consts["deviations"]) * deviation
    c["y"][: c.n, :cols] = gated(c.params["ACTIVATION"], np.maximum(gate - least, np.float32(0)), up)
