"""Products of matrices with numpy: what a token's row is multiplied with, its rounding before, the epilogue after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.adapters import low_rank_input, low_rank_rows, low_rank_sums
from py_engine.cpu.attention import merged, rope_store
from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import ACTIVATIONS, gated, inverse_rms, limits_of, normed, round_to_bytes, rows_times
from py_engine.plan.plan import MATRICES


def _biased(c: Call, y: Array) -> Array:
    """y times the scales of stacked matrices, plus the bias."""
    if c.params.get("SCALES"):
        later = (np.arange(_rows(c)) >= c.params.get(f"SCALE_ROW_{i}", np.inf) for i in (1, 2))
        y = y * c["scales"][0, c.params["SCALE_FIRST"] + sum(rows.astype(np.int64) for rows in later)]
    if c.params["BIAS"]:
        y = y + c["bias"][0, c.consts["row0"] : c.consts["row0"] + _rows(c)]
    return y


def _rows(c: Call) -> int:
    """Rows of a product's matrix, or of both that are stacked."""
    return int(c.consts["rows"] + c.consts.get("rows_2", 0))


def _times(c: Call, x: Array) -> Array:
    """x W^T, with all matrices of the stack."""
    products = [rows_times(x, c[name]) for name in MATRICES if name in c.buffers]
    return products[0] if len(products) == 1 else np.concatenate(products, axis=1)


def matmul(c: Call) -> None:
    if c.params["GROUPED"]:
        _matmul_of_experts(c)
        return
    if c.params.get("CACHED"):
        seen = np.arange(c.pos + c.n)
        latents = c["x"][c.rows_of(seen, c.seq), c.params["FIRST"] :][:, : c.params["COLS"]].astype(np.float32)
        w = c["w_qs"][: c.consts["rows"], : c.params["COLS"]].astype(np.float32)
        row0 = c.consts["row0"]
        c["y"][: len(seen), row0 : row0 + len(w)] = latents @ w.T
        return
    _epilogue(c, _biased(c, _rows_of_x(c)[: c.n] @ c["w"].T), c["y"][: c.n])


def _rows_of_x(c: Call) -> Array:
    """All rows of x, also those that are rounded to bytes in order."""
    if not c.params.get("INT8"):
        return c["x"][:, : c.params["COLS"]]
    levels = c["xq"].view(np.int8).reshape(len(c["xq"]), -1, 32)
    rows: Array = (levels * c["xq_scale"][:, :, :1]).reshape(len(levels), -1)
    return rows


def _matmul_of_experts(c: Call) -> None:
    """The rows of the result that are in this part of W, for every tile."""
    rows, stack, experts = c.params["ROWS"], c.params["STACK"], c.params["EXPERTS"]
    rows_of_x = _rows_of_x(c)
    for expert, first, count, _ in c["tiles"].astype(np.int64):
        slots = c["slots"].reshape(-1)[first : first + count]
        x = rows_of_x[slots if c.params["X_PER_SLOT"] else slots // c.params["USED"]]
        y = np.empty((count, stack * rows), np.float32) if c.params["EPILOGUE"] == "gated" else None
        for i in range(stack if count else 0):
            begin = (i * experts + expert) * rows - c.consts["first"]  # the expert's first row in this part
            lo, hi = max(0, -begin), min(rows, c.consts["rows"] - begin)
            if lo < hi:
                bias = c["bias"][i * experts + expert, lo:hi] if c.params["BIAS"] else np.float32(0)
                scale = c["scales"][0, i * experts + expert] if c.params.get("SCALES") else np.float32(1)
                sums = x @ c["w"][begin + lo : begin + hi].T * scale + bias
                at = i * rows
                if y is None:
                    c["y"][slots, c.consts["row0"] + at + lo : c.consts["row0"] + at + hi] = sums
                else:
                    y[:, at + lo : at + hi] = sums
        if y is not None and count:
            c["y"][slots, :rows] = gated(c.params["ACTIVATION"], y[:, :rows], y[:, rows:], *limits_of(c.params))


def _input(c: Call, first: int = 0) -> Array:
    """x of the batch's tokens from `first` on; where a block's norm is added to it first, that sum is stored, too."""
    x = c["x"][first : c.n, : c.params["COLS"]]
    if c.params.get("POST_THREADS"):
        x = x + normed(c["post"][first : c.n, : c.params["COLS"]], c["post_norm"][0], c.consts["eps"])
        c["x_next"][first : c.n, : c.params["COLS"]] = x
    if c.params.get("ADDED"):
        x = _with_added(c)
    return x


def _with_added(c: Call) -> Array:
    """x and what adapters add to it: the sum, which is stored, or a gated product of stacked rows."""
    rows: Array = c["x"][: c.n] + c["added"][: c.n]
    cols = c.params["COLS"]
    if not c.params["GATED"]:
        c["x_next"][: c.n] = rows
        return rows[:, :cols]
    return gated(c.params["ACTIVATION"], rows[:, :cols], rows[:, cols : 2 * cols], *limits_of(c.params))


def matvec(c: Call) -> None:
    x = merged(c) if c.params.get("MERGED") else _input(c, c.n - 1)
    low_rank_input(c, x)
    _products(c, x, c["y"].reshape(1, -1), round_to_bytes if c.params["DOT8"] else None)


def matvec_small_batch(c: Call) -> None:
    low_rank_rows(c)
    if c.params["DOT8"] and c.params["ROUNDS"]:
        _products(c, _input(c), c["y"][: c.n], round_to_bytes)
    elif c.params["DOT8"]:
        x = stored_rows(c, c.n)
        factor = c["x_scale"][: c.n, None] if c.params["SCALED"] else np.float32(1)
        _epilogue(c, low_rank_sums(c, _biased(c, _times(c, x) * factor)), c["y"][: c.n])
    else:
        x = c["x"][: c.n, : c.params["COLS"]]
        low_rank_input(c, x)
        _products(c, x, c["y"][: c.n])


def stored_rows(c: Call, rows: int) -> Array:
    """The first rows that quantize_rows() has stored."""
    units, pair = _units(c)
    levels = c["xq"][:rows].view(np.int8).reshape(rows, pair, 2, units, 16).transpose(0, 3, 1, 2, 4)
    scale = c["xq_scale"][:rows, :, 0].reshape(rows, pair, units).transpose(0, 2, 1)[..., None, None]
    found: Array = (levels * scale).reshape(rows, -1)
    return found


def quantize_rows(c: Call) -> None:
    if c.params.get("IN_ORDER"):
        rows = c.n * c.params["SLOTS"]
        levels, scales = _rounded_groups(c["x"][:rows, : c.params["COLS"]].astype(np.float32))
        c["xq"][:rows] = levels.astype(np.int8).view(np.uint32).reshape(rows, -1, 8)
        c["xq_scale"][:rows] = scales
        return
    slots = c.params.get("SLOTS", 1)
    rows = c.n * slots
    x = _input(c) if slots == 1 else c["x"][:rows, : c.params["COLS"]]
    low_rank_input(c, x)
    if c.params["NORM"]:
        c["x_scale"][:rows] = inverse_rms(x, c.consts["eps"])[:, 0]
        x = x * c["norm"][0]
    if c.params.get("WEIGHTED"):
        x = x * c["weights"].reshape(-1, 1)[:rows]
    levels, scales = _rounded_groups(x)
    units, pair = _units(c)
    halves = levels.astype(np.int8).reshape(rows, units, pair, 2, 16).transpose(0, 2, 3, 1, 4)
    c["xq"][:rows] = np.ascontiguousarray(halves).view(np.uint32).reshape(rows, -1, 8)
    c["xq_scale"][:rows] = scales.reshape(rows, units, pair, 2).transpose(0, 2, 1, 3).reshape(rows, -1, 2)


def _rounded_groups(x: Array) -> tuple[Array, Array]:
    """Levels (rows, groups, 32) of groups of 32, and their scale and scaled sum (rows, groups, 2)."""
    groups = x.reshape(len(x), -1, 32)
    largest = np.abs(groups).max(axis=2, keepdims=True)
    scale = largest / np.float32(127)
    levels = np.where(largest > 0, np.round(groups * (np.float32(127) / largest)), 0)
    return levels, np.concatenate([scale, scale * levels.sum(axis=2, keepdims=True)], axis=2)


def _units(c: Call) -> tuple[int, int]:
    """How wgsl/lib/rounded_rows.wgsl stores a row: (pairs of groups, 2), or (groups, 1) if their number is odd."""
    groups = c.params["COLS"] // 32
    return (groups, 1) if groups % 2 else (groups // 2, 2)


def _products(c: Call, x: Array, out: Array, rounding: Callable[[Array], Array] | None = None) -> None:
    """Multiply rows of x (n, cols), normalised and rounded, with the matrix; write the epilogue's result to `out`."""
    scale: Array | np.float32 = np.float32(1)
    if c.params["NORM"]:
        scale = inverse_rms(x, c.consts["eps"])
        x = x * c["norm"][0]
    if rounding is not None:
        x = rounding(x)
    _epilogue(c, _biased(c, _times(c, x) * scale), out)


def _epilogue(c: Call, y: Array, out: Array) -> None:
    row0, rows = c.consts["row0"], _rows(c)
    match c.params["EPILOGUE"]:
        case "store":
            out[:, row0 : row0 + rows] = y
        case "add" | "accumulate":
            out[:, row0 : row0 + rows] += (c.params.get("FACTOR") or 1) * y
        case "gated":
            act, limits = c.params["ACTIVATION"], limits_of(c.params)
            out[:, row0 : row0 + rows // 2] = gated(act, y[:, : rows // 2], y[:, rows // 2 :], *limits)
        case "gate":
            first = c.consts["up_first"]
            out[:, row0 : row0 + rows] = gated(c.params["ACTIVATION"], y, c["up"][: len(y), first : first + rows])
        case "activate":
            out[:, row0 : row0 + rows] = ACTIVATIONS[c.params["ACTIVATION"]](y)
        case "split":
            q, kv = c.consts["q_rows"], c.consts["kv_rows"]
            for name, first, size in (("y", 0, q), ("k_cache", q, kv), ("v_cache", q + kv, kv)):
                begin, end = max(first, row0), min(first + size, row0 + rows)
                if begin < end:
                    c[name][: c.n, begin - first : end - first] = y[:, begin - row0 : end - row0]
        case "qkv":
            out[:, : c.consts["q_rows"]] = rope_store(c, y)
