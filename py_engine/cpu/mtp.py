"""The kernel of multi-token prediction with numpy: the twin of mtp_input.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import normed
from py_engine.cpu.ssm import runs


def mtp_input(c: Call) -> None:
    cols, eps, offsets = c.params["COLS"], c.consts["eps"], c.offsets
    of_e, of_h = c["norm"].reshape(-1)[: 2 * cols].reshape(2, cols)
    if c.params["HIDDEN"] == "ring":
        before = np.stack([_in_ring(c, m, -1) for m in range(c.n)])
    elif c.params["HIDDEN"] == "own":
        before = c["hidden"][: c.n, :cols].copy()
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
    y[:, :cols] = normed(c["e"][: c.n, :cols], of_e, eps)
    y[:, cols : 2 * cols] = normed(before, of_h, eps)


def _in_ring(c: Call, m: int, offset: int) -> Array:
    """The hidden state at token m's position + offset, to be read or written."""
    found: Array = c["ring"][c.sequences[m], (c.positions[m] + offset) % c.params["RING"]]
    return found
