"""The kernels of recurrent layers with numpy: twins of the files ssm_*.wgsl, and of gated_norm.wgsl."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import ACTIVATIONS, inverse_rms
from py_engine.plan.ssm import BOUNDED, NEGATED

SOFTPLUS_LINEAR = 20  # softplus(x) is x from here on


def runs(c: Call) -> Iterator[tuple[int, int]]:
    """(first token, end) of each run of tokens that continue one sequence's state."""
    sequences = c.sequences
    starts = [m for m in range(c.n) if not m or sequences[m] != sequences[m - 1]]
    yield from zip(starts, [*starts[1:], c.n], strict=True)


def half_after(c: Call, states: Array, position: int, m: int) -> Array:
    """The state after a position of token m's sequence, to be read or written."""
    slot = int(c.pages_of(np.zeros(1, np.int64), c.sequences[m : m + 1])[0])
    found: Array = states[slot, position % 2]
    return found


def ssm_conv(c: Call) -> None:
    channels, taps, first = c.params["CHANNELS"], c.params["TAPS"], c.consts["first"]
    x, y, apart = c["x"][:, first : first + channels], c["y"], c.params["APART"]
    weights = np.zeros((channels, taps + 1), np.float32)
    given = c["w"][np.arange(channels)] if c.params.get("MATRIX") else c["weights"]
    weights[:, ::apart] = given.reshape(channels, taps // apart + 1)
    for begin, end in runs(c):
        earlier = np.zeros((taps, channels), np.float32)  # the latest first
        for m in range(begin, end):
            if c.offsets[m] == 0:
                earlier[:] = 0
            elif m == begin:
                earlier[:] = half_after(c, c["windows"], c.positions[m] - 1, m).reshape(taps, channels)
            total = x[m] * weights[:, taps]
            for k in range(taps):
                total = total + earlier[k] * weights[:, taps - 1 - k]
            y[m, :channels] = ACTIVATIONS["silu"](total + c["bias"][0] if c.params["BIAS"] else total)
            earlier = np.concatenate([x[m : m + 1], earlier[:-1]])
            if m + 2 >= end and not c.params["TILE"]:
                half_after(c, c["windows"], c.positions[m], m)[:] = earlier.reshape(-1)


def ssm_window(c: Call) -> None:
    channels, taps, first = c.params["CHANNELS"], c.params["TAPS"], c.consts["first"]
    offsets, after = c.offsets, {}
    for m in range(max(0, c.n - 2), c.n):
        inputs = np.zeros((taps, channels), np.float32)
        for k in range(min(taps, int(offsets[m]) + 1)):
            if k <= m:
                inputs[k] = c["x"][m - k, first : first + channels]
            else:
                before = half_after(c, c["windows"], c.positions[0] - 1, 0).reshape(taps, channels)
                inputs[k] = before[k - m - 1]
        after[m] = inputs
    for m, inputs in after.items():
        half_after(c, c["windows"], c.positions[m], m)[:] = inputs.reshape(-1)


def ssm_scan(c: Call) -> None:
    heads, groups, rows, cols = (c.params[name] for name in ("HEADS", "GROUPS", "ROWS", "COLS"))
    delta, per_row = c.params["RULE"] == "delta", c.params["RULE"] == "s6"
    group = np.arange(heads) % groups if c.params["TILED"] else np.arange(heads) // (heads // groups)
    gates, rates = c["gates"], c["rates"].reshape(-1)
    if c.params["RULE"] == "ssd":
        rates = rates[: 3 * heads]  # constants are padded
    shape = (1, rows, cols) if per_row else (heads, 1, 1)
    per_key, steps = c.params.get("PER_KEY", 0), (*shape[:2], 1)
    if per_key:  # each column has a dt
        steps = (heads, 1, cols)
    a, (bias, *skip) = rates[: np.prod(shape)].reshape(shape), rates[np.prod(shape) :].reshape(-1, *steps)

    def part(m: int, buffer: str, name: str, size: int, width: int) -> Array:
        found: Array = c[buffer][m, c.consts[name] : c.consts[name] + size * width].reshape(size, width)
        return found

    for begin, end in runs(c):
        s = np.zeros((heads, rows, cols), np.float32)
        for m in range(begin, end):
            if c.offsets[m] == 0:
                s[:] = 0
            elif m == begin:
                s[:] = half_after(c, c["matrices"], c.positions[m] - 1, m).reshape(s.shape)
            v = part(m, "x", "values", heads, rows)
            k, q = part(m, "k", "keys", groups, cols)[group], part(m, "q", "queries", groups, cols)[group]
            u = part(m, "gates", "dt", 1, bias.size).reshape(steps) + bias
            dt = np.where(u > SOFTPLUS_LINEAR, u, np.log1p(np.exp(np.minimum(u, SOFTPLUS_LINEAR))))
            rate, bounded = -a if per_key == NEGATED else a, per_key in (BOUNDED, NEGATED)
            s *= np.exp(c.consts["bound"] * ACTIVATIONS["sigmoid"](rate * u) if bounded else dt * a)
            if delta:
                k, q = (_unit(values, c.consts["eps"]) for values in (k, q))
                beta = 1 / (1 + np.exp(-gates[m, c.consts["beta"] : c.consts["beta"] + heads]))
                change = beta[:, None] * (v - np.einsum("hrc,hc->hr", s, k))
                s += change[:, :, None] * k[:, None]
                y = np.einsum("hrc,hc->hr", s, q) / np.float32(cols**0.5)
            else:
                s += dt * v[..., None] * k[:, None]
                y = np.einsum("hrc,hc->hr", s, q) + skip[0][..., 0] * v
            c["y"][m, : heads * rows] = y.reshape(-1)
            if m + 2 >= end:
                half_after(c, c["matrices"], c.positions[m], m)[:] = s.reshape(-1)


def _unit(x: Array, eps: float) -> Array:
    """Rows of about length 1; `eps` is added to the squares, and so shortens small ones."""
    found: Array = x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + np.float32(eps))
    return found


def gated_norm(c: Call) -> None:
    size, groups, norms, first = c.params["COLS"], c.grid[1], c.params["NORM"], c.consts["first"]
    shape = c.n, groups, size
    x = c["x"][: c.n, : groups * size].reshape(shape)
    gate = ACTIVATIONS["sigmoid" if c.params.get("SIGMOID", 0) else "silu"](
        c["z"][: c.n, first : first + groups * size].reshape(shape)
    )
    out = x * gate
    if norms:
        out = out * inverse_rms(out if c.params["GATE_FIRST"] else x, c.consts["eps"]) * c["norm"].reshape(norms, size)
    c["y"][: c.n, : groups * size] = out.reshape(c.n, -1)
