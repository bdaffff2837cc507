"""The kernels of RWKV's time mix with numpy: twins of token_shift.wgsl and wkv*.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import ACTIVATIONS
from py_engine.cpu.ssm import half_after, runs


def token_shift(c: Call) -> None:
    cols, parts, first = c.params["COLS"], c.params["PARTS"], c.consts["first"]
    x, offsets = c["x"][: c.n, :cols], c.offsets
    windows = c["windows"].reshape(*c["windows"].shape[:2], c.params["WINDOWS"], cols)[:, :, c.consts["window"]]
    before = np.concatenate([np.zeros((1, cols), np.float32), x[:-1]])
    for begin, end in runs(c):
        before[begin] = half_after(c, windows, c.positions[begin] - 1, begin) if offsets[begin] else 0
        if c.params["WRITES"]:
            for m in range(max(begin, end - 2), end):
                half_after(c, windows, c.positions[m], m)[:] = x[m]
    before[offsets == 0] = 0
    factors = c["factors"].reshape(-1, cols)
    for i in range(parts):
        f: Array = factors[first + i]
        if c.params["OWN"]:
            f = f + c["changes"][: c.n, (first + i) * cols : (first + i + 1) * cols]
        c[f"y{i}"][: c.n, :cols] = x + (before - x) * f


def _part(c: Call, buffer: str, column: str, heads: int, cols: int) -> Array:
    """Columns of every token of the batch, by heads: a view (n, heads, cols)."""
    first = c.consts[column]
    found: Array = c[buffer][: c.n, first : first + heads * cols].reshape(c.n, heads, cols)
    return found


def _set(c: Call, buffer: str, column: str, values: Array) -> None:
    rows = values.reshape(c.n, -1)
    c[buffer][: c.n, c.consts[column] : c.consts[column] + rows.shape[1]] = rows


def wkv7_inputs(c: Call) -> None:
    heads, cols = c.params["HEADS"], c.params["COLS"]
    decay, rate, k, v, mix = (
        _part(c, "x", name, heads, cols).copy() for name in ("decay", "rate", "key", "value", "removed")
    )
    sigmoid, (of_keys, of_rates) = ACTIVATIONS["sigmoid"], c["factors"].reshape(2, heads, cols)
    first_values = c["first_values"][: c.n, : heads * cols]
    if c.params["FIRST"]:
        first_values[:] = v.reshape(first_values.shape)
    else:
        _set(c, "x", "value", v + (first_values.reshape(v.shape) - v) * sigmoid(mix))
    removed = k * of_keys
    removed = removed / np.maximum(np.sqrt((removed * removed).sum(-1, keepdims=True)), np.float32(1e-12))
    rate = sigmoid(rate)
    _set(c, "x", "decay", np.exp(np.float32(-np.exp(-0.5)) * sigmoid(decay)))
    _set(c, "x", "rate", removed * rate)
    _set(c, "x", "key", k * (1 + (rate - 1) * of_rates))
    _set(c, "x", "removed", removed)


def wkv_scan(c: Call) -> None:
    rule, heads, groups, size = (c.params[name] for name in ("RULE", "HEADS", "GROUPS", "SIZE"))
    decay, r = (_part(c, "x", name, heads, size) for name in ("decay", "receptance"))
    k, v = (np.repeat(_part(c, "x", name, groups, size), heads // groups, axis=1) for name in ("key", "value"))
    if rule == "wkv7":
        removed, added = (_part(c, "x", name, heads, size) for name in ("removed", "added"))
    else:
        decay = np.exp(-np.exp(decay))
    if rule == "gla":
        k = k - k * decay
    own = k * c["bonus"].reshape(heads, size) if rule == "wkv6" else k
    for begin, end in runs(c):
        s = np.zeros((heads, size, size), np.float32)  # (keys, values)
        for m in range(begin, end):
            if c.offsets[m] == 0:
                s[:] = 0
            elif m == begin:
                s[:] = half_after(c, c["matrices"], c.positions[m] - 1, m).reshape(s.shape)
            if rule == "wkv6":
                y = np.einsum("hkv,hk->hv", s + own[m][..., None] * v[m][:, None], r[m])
            lost = np.einsum("hkv,hk->hv", s, removed[m]) if rule == "wkv7" else None
            s = s * decay[m][..., None] + k[m][..., None] * v[m][:, None]
            if lost is not None:
                s -= added[m][..., None] * lost[:, None]
            if rule != "wkv6":
                y = np.einsum("hkv,hk->hv", s, r[m])
            if rule == "gla":
                y = y / np.float32(size**0.5)
            c["y"][m, : heads * size] = y.reshape(-1)
            if m + 2 >= end:
                half_after(c, c["matrices"], c.positions[m], m)[:] = s.reshape(-1)


def wkv_output(c: Call) -> None:
    heads, cols = c.params["HEADS"], c.params["COLS"]
    y = c["x"][: c.n, : heads * cols].reshape(c.n, heads, cols)
    factors = c["factors"].reshape(-1, heads, cols) if c.params["NORM"] or c.params["BONUS"] else None
    if c.params["NORM"]:
        assert factors is not None
        y = y - y.mean(-1, keepdims=True)
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + np.float32(c.consts["eps"])) * factors[0] + factors[1]
    if c.params["BONUS"]:
        assert factors is not None
        r, k, v = (_part(c, "rows", name, heads, cols) for name in ("receptance", "key", "value"))
        y = y + (r * k * factors[-1]).sum(-1, keepdims=True) * v
    out: Array = y.reshape(c.n, -1)
    if (kind := c.params["GATE"]) != "none":
        gate = c["gate"][: c.n, : heads * cols]
        out = out * (gate if kind == "linear" else ACTIVATIONS[kind](gate))
    c["y"][: c.n, : heads * cols] = out
