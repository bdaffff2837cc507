"""What adapters add to products and hidden states, with numpy."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import gated, inverse_rms, limits_of, normed, rows_times
from py_engine.plan.low_rank_entries import count_of, expert_entries, numbers


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
    if not c.params.get("LOW_RANK_OWN_ROWS"):
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


def expert_low_rank(c: Call) -> None:
    """h = A x of every token's chosen experts; 0 for adapters that a token does not use."""
    used, stack, rank, cols = (c.params[name] for name in ("USED", "STACK", "ROWS", "COLS"))
    w = c["w"].reshape(stack, c.params["EXPERTS"], rank, cols)
    x = c["x"][: c.n * (used if c.params["X_PER_SLOT"] else 1), :cols].astype(np.float32)
    if c.params["NORM"]:
        x = normed(x, c["norm"][0], c.consts["eps"])
    active = np.array([_scales(c, int(user), "") != 0 for user in numbers(c.params["USERS"])])  # (entries, tokens)
    for m, experts in enumerate(c["chosen"][: c.n].astype(np.int64)):
        for slot, expert in enumerate(experts, m * used):
            found = w[:, expert] @ x[slot if c.params["X_PER_SLOT"] else m]
            c["h"][slot, : stack * rank] = np.where(active[:, m, None], found, np.float32(0)).reshape(-1)


def add_expert_low_rank(c: Call) -> None:
    """y += scale * B h of every token's chosen experts, or their sum by the router's weights."""
    used, stack, rows, rank = (c.params[name] for name in ("USED", "STACK", "ROWS", "COLS"))
    w, h, sums = c["w"].reshape(stack, c.params["EXPERTS"], rows, rank), c["h"], c.params["SUM"]
    for i, entry in enumerate(expert_entries(c.params)):
        scales = _scales(c, entry.adapter, "") * np.float32(entry.ratio)
        for m in np.flatnonzero(scales):
            for k, expert in enumerate(c["chosen"][m].astype(np.int64)):
                slot = m * used + k
                found = scales[m] * (w[i, expert] @ h[slot, i * rank : (i + 1) * rank])
                if sums:
                    own = c["factors"][0][expert] if c.params["FACTORS"] else np.float32(1)  # of W x alone
                    weight = c["weights"][m, k] / own if own else np.float32(0)
                    c["y"][m, entry.y : entry.y + rows] += weight * found
                else:
                    c["y"][slot, entry.y : entry.y + rows] += found


def add_direction(c: Call) -> None:
    direction = c["direction"][0]
    scales = c["scales"][c.sequences][:, 2 * c.consts["adapter"]]
    streams = c["x"][: c.n].reshape(c.n, c.grid[2], -1)
    streams[..., : len(direction)] += (scales[:, None] * direction)[:, None]
