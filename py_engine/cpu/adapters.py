"""What adapters add to products and hidden states, with numpy."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import gated, inverse_rms, limits_of, rows_times
from py_engine.plan.low_rank_entries import count_of


def add_low_rank(c: Call) -> None:
    gates = c.params["GATED"]
    y = c["x"].copy() if gates else c["y"].reshape(-1, c.consts["y_stride"])
    low_rank(c, y)
    if gates:
        cols = c.consts["rows"]
        act, limits = c.params["ACTIVATION"], limits_of(c.params)
        c["y"][: c.n, :cols] = gated(act, y[: c.n, :cols], y[: c.n, cols : 2 * cols], *limits)


def low_rank_input(c: Call, x: Array) -> None:
    """h = A x for rows of x, or of its norm, where an op computes it: lib/low_rank_input.wgsl."""
    if not c.params.get("BESIDE"):
        return
    scale: Array | np.float32 = np.float32(1)
    if c.params["NORM"]:
        scale = inverse_rms(x, c.consts["eps"])
        x = x * c["norm"][0]
    c["h"][: len(x), : c.params["A_ROWS"]] = rows_times(x, c["lora_a"]) * scale


def low_rank_rows(c: Call) -> None:
    """What adapters add to a product, beside it: lib/low_rank_rows.wgsl."""
    if c.params.get("LOW_RANK"):
        c["added"][: c.n] = 0
        low_rank(c, c["added"], "_L", "w_qs_L")


def low_rank_sums(c: Call, y: Array) -> Array:
    """y, rows of a product, and what adapters add to them, where its workgroups add it."""
    if not c.params.get("LOW_RANK_THREADS"):
        return y
    row0 = c.consts["row0"]
    added = np.zeros((c.n, row0 + y.shape[1]), np.float32)
    low_rank(c, added, "_L", "w_qs_L")
    return y + added[:, row0:]


def low_rank(c: Call, y: Array, end: str = "", matrix: str = "w") -> None:
    """Add what adapters add to the rows of a product, as lib/low_rank.wgsl. `end`: of the names of what it has."""
    last, rank = c.params[f"LAST{end}"], c.params[f"COLS{end}"]
    tokens = [c.n - 1] if last else range(c.n)
    width = c[f"h{end}"].shape[-1]
    h = c[f"h{end}"].reshape(-1, width)
    entries = c[f"entries{end}"].reshape(-1)[: 6 * count_of(c.params, end)].reshape(-1, 6)
    for y0, rows, b0, h0, adapter, factor in entries:
        scales = _scales(c, int(adapter), end)[list(tokens)] * np.array(factor, np.uint32).view(np.float32)
        there = y[: len(scales), y0 : y0 + rows]  # y may have fewer rows than the matrix (proof/reduction.py)
        for m, scale in enumerate(scales):
            if scale:
                x = h[m, h0 : h0 + rank] * scale
                there[m] += c[matrix][b0 : b0 + there.shape[1]] @ x


def _scales(c: Call, adapter: int, end: str) -> Array:
    """Each token's scale of an adapter, 0 before its first position: (n,)."""
    found = c[f"scales{end}"][c.sequences]
    return np.where(c.positions >= found[:, 2 * adapter + 1], found[:, 2 * adapter], np.float32(0))


def add_direction(c: Call) -> None:
    direction = c["direction"][0]
    scales = c["scales"][c.sequences][:, 2 * c.consts["adapter"]]
    streams = c["x"][: c.n].reshape(c.n, c.grid[2], -1)
    streams[..., : len(direction)] += (scales[:, None] * direction)[:, None]
