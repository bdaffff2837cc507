"""The kernels of multi-token prediction with numpy: twins of mtp_input.wgsl, store_hidden.wgsl and map_logits.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import normed
from py_engine.cpu.ssm import runs
from py_engine.plan.shared_constants import BANNED


def mtp_input(c: Call) -> None:
    cols, offsets = c.params["COLS"], c.offsets
    if c.params["HIDDEN"] == "ring":
        before = np.stack([_in_ring(c, m, -1) for m in range(c.n)])
    elif c.params["HIDDEN"] == "own":
        before = c["x" if c.params.get("RESIDUAL") else "hidden"][: c.n, :cols].copy()
    else:
        hidden = c["hidden"][: c.n, :cols]
        before = np.concatenate([hidden[:1], hidden[:-1]])
        for begin, end in runs(c):
            before[begin] = _in_ring(c, begin, -1)
            for m in range(max(begin, end - c.params["RING"]), end):
                _in_ring(c, m, 0)[:] = hidden[m]
    before[offsets == 0] = 0
    y = c["y"][: c.n]
    y[:] = 0
    parts = [c["e"][: c.n, :cols], before]
    if c.params.get("RESIDUAL") == "raw":
        c["x"][: c.n, :cols] = before
    if not c.params.get("PLAIN"):
        weights = c["norm"].reshape(-1)[: 2 * cols].reshape(2, cols)
        parts = [normed(part, one, c.consts["eps"]) for part, one in zip(parts, weights, strict=True)]
    if c.params.get("RESIDUAL") == "normed":
        c["x"][: c.n, :cols] = parts[1]
    if c.params.get("RESIDUAL"):
        c["x"][: c.n, cols:] = 0
    y[:, : 2 * cols] = np.concatenate(parts, axis=1)


def store_hidden(c: Call) -> None:
    cols = c.params["COLS"]
    states = normed(c["x"][: c.n, :cols], c["norm"].reshape(-1)[:cols], c.consts["eps"])
    for begin, end in runs(c):
        for m in range(max(begin, end - c.params["RING"]), end):
            _in_ring(c, m, 0)[:] = states[m]


def map_logits(c: Call) -> None:
    cols, count = c.params["COLS"], c.params["ROWS"]
    x, y = (c[name].reshape(-1, c.consts[f"{name}_stride"]) for name in ("x", "y"))
    rows = c["rows"].reshape(-1)[:cols].astype(np.int64)
    y[: c.n, :cols] = np.where(rows < count, x[: c.n, np.minimum(rows, count - 1)], np.float32(BANNED))


def _in_ring(c: Call, m: int, offset: int) -> Array:
    """The hidden state at token m's position + offset, to be read or written."""
    found: Array = c["ring"][c.sequences[m], (c.positions[m] + offset) % c.params["RING"]]
    return found
