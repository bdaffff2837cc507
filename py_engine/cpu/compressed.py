"""Attention to compressed keys with numpy: twins of window_append.wgsl, compress.wgsl and compressed_attention.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.attention import rotate
from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import normed


def window_append(c: Call) -> None:
    heads, size, inputs, first = (c.params["HEADS"], c.params["SIZE"], c.params["INPUTS"], c.consts["x_first"])
    q, rows, x = c["y"][: c.n, : heads * size], c.rows_of(c.positions, c.sequences), c["x"][: c.n, first:]
    if not c.params["KEYED"]:
        q[:] = _rotated(c, q.reshape(c.n, heads, size), c.offsets).reshape(q.shape)
        c["inputs"][rows] = x[:, :inputs]
        return
    q[:] = _rotated(c, normed(q.reshape(c.n, heads, size), np.float32(1), c.consts["eps"]), c.offsets).reshape(q.shape)
    keys = normed(x[:, :size], c["norm"][0, :size], c.consts["eps"])
    c["k_cache"][rows] = _rotated(c, keys[:, None], c.offsets)[:, 0]
    if inputs:
        c["inputs"][rows] = x[:, size : size + inputs]


def compress(c: Call) -> None:
    size, ratio, overlaps = c.params["SIZE"], c.params["RATIO"], c.params["OVERLAPS"]
    cols = size * (1 + overlaps)
    terms = c["w"][:ratio][:, :cols]
    for m in np.flatnonzero((c.offsets + 1) % ratio == 0):
        last, seq, offset = int(c.positions[m]), int(c.sequences[m]), int(c.offsets[m])
        found = c["inputs"][c.rows_of(last + 1 - ratio + np.arange(ratio), seq)]
        values, scores = found[:, cols - size : cols], (found[:, cols:] + terms)[:, cols - size :]
        if overlaps and offset >= ratio:
            before = c["inputs"][c.rows_of(last + 1 - 2 * ratio + np.arange(ratio), seq)]
            values = np.concatenate([before[:, :size], values])
            scores = np.concatenate([(before[:, cols:] + terms)[:, :size], scores])
        weights = np.exp(scores - scores.max(axis=0))
        key = (weights * values).sum(axis=0) / weights.sum(axis=0)
        key = normed(key[None, None], c["norm"].reshape(-1)[:size], c.consts["eps"])
        at = key_at(c, np.array([last]), seq)[0]
        c["c_cache"].reshape(-1)[at : at + size] = _rotated(c, key, np.array([offset + 1 - ratio]))[0, 0]


def compressed_attention(c: Call) -> None:
    size, window, ratio, heads = c.params["SIZE"], c.params["WINDOW"], c.params["RATIO"], int(c.grid[0])
    q, sinks = c["q"][: c.n, : heads * size].reshape(c.n, heads, size), c["sinks"].reshape(-1)[:heads, None]
    for m in range(c.n):
        begin, end, seq = int(c.segments[m, 0]), int(c.positions[m]) + 1, int(c.sequences[m])
        keys = c["k_cache"][c.rows_of(np.arange(max(begin, end - window), end), seq)].astype(np.float32)
        if ratio:
            last = begin + ratio * (1 + np.arange((end - begin) // ratio)) - 1
            if c.params["INDEXED"]:
                last = last[c["index_mask"][m, last // 32] >> (last % 32).astype(np.uint32) & 1 == 1]
            at = key_at(c, last, seq)[:, None] + np.arange(size)
            keys = np.concatenate([keys, c["c_cache"].reshape(-1)[at].astype(np.float32)])
        scores = np.float32(c.consts["scale"]) * (q[m] @ keys.T)
        top = np.maximum(scores.max(axis=1, keepdims=True), sinks)
        weights = np.exp(scores - top)
        found = weights @ keys / (weights.sum(axis=1, keepdims=True) + np.exp(sinks - top))
        c["y"][m, : heads * size] = _rotated(c, found[None], -c.offsets[m : m + 1], 1.0).reshape(-1)


def key_at(c: Call, last: Array, seq: int) -> Array:
    """Indices of the first values of compressed keys that end at these positions (wgsl/lib/compressed_keys.wgsl)."""
    page = c.params["PAGE"]
    pages = c.tables[c.params["KEY_TABLE"] + seq * c.params["PAGES"] + last // page].astype(np.int64)
    return pages * (page * c.params["KEY_WIDTH"]) + last % page // c.params["STEP"] * c.params["SIZE"]


def _rotated(c: Call, x: Array, places: Array, scale: float | None = None) -> Array:
    """x (n, heads, size) with its last dimensions rotated by `places` (n,). `scale`: in place of the op's."""
    rope = c.params["ROPE"]
    consts = c.consts if scale is None else c.consts | {"rope_scale": scale}
    rotation = Call({"ROPE_DIM": rope, "HEAD_DIM": rope, "NEOX": 0}, consts, c.buffers, c.states, c.tables, c.grid)
    found, part = np.array(x), np.ascontiguousarray(x[:, :, -rope:]).reshape(len(x), -1)
    found[:, :, -rope:] = rotate(rotation, part, places[:, None]).reshape(*x.shape[:2], rope)
    return found
