"""The kernels of several residual streams and of sparse gates with numpy: twins of wgsl/altup_*.wgsl and others."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import gated, normed


def _chosen(c: Call, x: Array, norm: int) -> Array:
    """What the router chooses for every token, (n, streams). `norm`: which of `norms` is that of x."""
    if c.params["ROUTED"]:
        logits: Array = normed(x, _norm(c, norm), c.consts["eps"]) @ c["w"].T
    else:
        logits = c["router"][: c.n, : c.params["STREAMS"]]
    chosen: Array = np.tanh(np.float32(c.consts["scale"]) * logits)
    return chosen


def _norm(c: Call, at: int) -> Array:
    cols = c.params["COLS"]
    weights: Array = c["norms"][0, at * cols : (at + 1) * cols]
    return weights


def _factors(c: Call, rows: int) -> Array:
    """The factors of each stream's logit, (streams, rows): all tokens have the same."""
    count = c.params["STREAMS"]
    factors: Array = c["factors"][0, : rows * count].reshape(rows, count).T
    return factors


def _streams(c: Call) -> Array:
    """A view of every token's streams, (n, streams, padded columns)."""
    streams: Array = c["y"][: c.n].reshape(c.n, c.params["STREAMS"], -1)
    return streams


def altup_predict(c: Call) -> None:
    streams, count, cols = _streams(c), c.params["STREAMS"], c.params["COLS"]
    if c.params["ADD"]:
        out = normed(c["out"][: c.n, :cols], _norm(c, c.params["ROUTED"]), c.consts["eps"])
        streams[:, 1:, :cols] += out[:, None]
    factors = _chosen(c, streams[:, 0, :cols], 0) @ _factors(c, count * count)
    predicted = streams + factors.reshape(c.n, count, count) @ streams
    streams[:] = predicted
    c["x"][: c.n] = predicted[:, 0]


def altup_correct(c: Call) -> None:
    streams, count, cols = _streams(c), c.params["STREAMS"], c.params["COLS"]
    x = c["x"][: c.n]
    if c.params["ROUTED"]:
        x[:, :cols] += normed(c["out"][: c.n, :cols], _norm(c, 2), c.consts["eps"])
    factors = 1 + _chosen(c, x[:, :cols], 1) @ _factors(c, count)
    streams += factors[:, :, None] * (x - streams[:, 0])[:, None]
    x[:] = streams[:, 0]
    c["scaled"][: c.n] = 0  # the padding
    c["scaled"][: c.n, :cols] = streams[:, 0, :cols] * _norm(c, 0)


def laurel(c: Call) -> None:
    cols, eps = c.params["COLS"], c.consts["eps"]
    x = c["x"][: c.n, :cols]
    others = [normed(c[name][: c.n, :cols], _norm(c, i), eps) for i, name in enumerate(("x", "attended", "low"))]
    x[:] = (x + sum(others)) * np.float32(0.5**0.5)
    c["x"][: c.n, cols:] = 0


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
