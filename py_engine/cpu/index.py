"""The index of sparse attention with numpy: twins of index_*.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.attention import rotate
from py_engine.cpu.call import Array, Call
from py_engine.cpu.compressed import key_at
from py_engine.cpu.numerics import normed

BITS = 32  # positions in a word of the mask


def index_append(c: Call) -> None:
    heads, size = c.params["HEADS"], c.params["SIZE"]
    y, rows = c["y"][: c.n, : heads * size], c.rows_of(c.positions, c.sequences)
    if c.params["RAW"]:
        factors = c["norm"].reshape(-1)[:size]
        y[:] = _rotated(c, normed(y.reshape(c.n, heads, size), factors, c.consts["eps"]).reshape(c.n, -1))
        c["k_cache"][rows, :size] = c["x"][: c.n, :size]
        return
    y[:] = _rotated(c, y)
    key, (factors, biases) = c["x"][: c.n, :size], c["norm"].reshape(-1)[: 2 * size].reshape(2, size)
    key = key - key.mean(axis=1, keepdims=True, dtype=np.float32)
    key = key / np.sqrt((key * key).mean(axis=1, keepdims=True) + np.float32(c.consts["eps"])) * factors + biases
    c["k_cache"][rows, :size] = _rotated(c, key)
    if c.params["ROW"] > size:
        c["k_cache"][rows, size : 2 * size] = c["x"][: c.n, size : 2 * size]


def index_join(c: Call) -> None:
    size, pool = c.params["SIZE"], c.params["POOL"]
    places = c["gate_bias"].reshape(-1)[: pool * size].reshape(pool, size)
    for m in np.flatnonzero((c.offsets + 1) % pool == 0):
        rows = c.rows_of(c.positions[m] + 1 - pool + np.arange(pool), int(c.sequences[m]))
        gates = c["k_cache"][rows, size : 2 * size] + places
        weights = np.exp(gates - gates.max(axis=0))
        c["k_cache"][rows[-1], 2 * size : 3 * size] = (weights / weights.sum(axis=0) * c["k_cache"][rows, :size]).sum(
            axis=0
        )


def index_join_raw(c: Call) -> None:
    size, pool = c.params["SIZE"], c.params["POOL"]
    last = np.flatnonzero((c.offsets + 1) % pool == 0)
    if not len(last):
        return
    before = c.positions[last, None] + 1 - pool + np.arange(pool)  # (joined keys, pool)
    rows = c.rows_of(before, c.sequences[last, None])
    keys = c["k_cache"][rows, :size].mean(axis=1, dtype=np.float32)
    keys = normed(keys, c["norm"].reshape(-1)[size : 2 * size], c.consts["eps"])
    c["k_cache"][rows[:, -1], size : 2 * size] = _rotated(c, keys, c.offsets[last, None] + 1 - pool)


def _rotated(c: Call, x: Array, offsets: Array | None = None) -> Array:
    """x (n, heads * size) with the rotated dimensions of each head. `offsets` (n, 1): of the tokens if None."""
    size, first, rope = c.params["SIZE"], c.params["FIRST"], c.params["ROPE"]
    if not rope:
        return x
    rotation = Call({"ROPE_DIM": rope, "HEAD_DIM": rope, "NEOX": c.params["NEOX"]}, c.consts, c.buffers, c.states,
                    c.tables, c.grid)  # fmt: skip
    found = np.array(x).reshape(len(x), -1, size)
    part = np.ascontiguousarray(found[:, :, first : first + rope]).reshape(len(x), -1)
    places = c.offsets[:, None] if offsets is None else offsets
    found[:, :, first : first + rope] = rotate(rotation, part, places).reshape(len(x), -1, rope)
    return found.reshape(x.shape)


def index_scores(c: Call) -> None:
    heads, size, k = c.params["HEADS"], c.params["SIZE"], c.consts
    for row, m in enumerate(_tokens(c)):
        seen, seq = _keys(c, m), int(c.sequences[m])
        last = _places(c, m, seen)[:, -1]
        if c.params.get("COMPRESSED"):
            keys = c["k_cache"].reshape(-1)[key_at(c, last, seq)[:, None] + np.arange(size)]
        else:
            keys = c["k_cache"][c.rows_of(last, seq), c.params["ROW"] - size :]
        products = np.maximum(c["q"][m, : heads * size].reshape(heads, size) @ keys.T, np.float32(0))
        weights = np.full(heads, k["scale"], np.float32)
        if c.params["WEIGHTED"]:
            weights *= c["x"][m, k["x_first"] : k["x_first"] + heads]
        c["scores"][row, seen] = weights @ products


def index_choose(c: Call) -> None:
    for row, m in enumerate(_tokens(c)):
        seen, words = _keys(c, m), c["index_mask"][m]
        begin, end = int(c.segments[m, 0]), int(c.positions[m]) + 1
        chosen = np.zeros(len(words) * BITS, np.uint8)
        chosen[end - (end - begin) % c.params["POOL"] : end] = 1
        chosen[_places(c, m, seen[highest(c["scores"][row, seen], c.params["TOP_K"])])] = 1
        written = slice(begin // BITS, (end - 1) // BITS + 1)
        words[written] = np.packbits(chosen, bitorder="little").view("<u4")[written]


def highest(scores: Array, top_k: int) -> Array:
    """The places of the `top_k` highest scores; of equal ones, those that llama.cpp takes."""
    if len(scores) <= top_k:
        return np.arange(len(scores))
    lowest = np.partition(scores, -top_k)[-top_k]
    found = scores >= lowest
    if found.sum() == top_k:
        return np.flatnonzero(found)
    return np.array(_heap(scores.tolist(), top_k))


def _heap(scores: list[float], top_k: int) -> list[int]:
    """What std::partial_sort leaves: a heap with the lowest score at its root, which each higher one replaces."""
    heap = list(range(top_k))
    for root in range(top_k // 2 - 1, -1, -1):
        _sift(heap, scores, root, heap[root])
    for i in range(top_k, len(scores)):
        if scores[i] > scores[heap[0]]:
            _sift(heap, scores, 0, i)
    return heap


def _sift(heap: list[int], scores: list[float], root: int, new: int) -> None:
    """Put `new` into the heap below `root`: first down to a leaf, along the lower scores, then up again."""
    at = root
    while (child := 2 * at + 2) <= len(heap):
        if child == len(heap) or scores[heap[child]] > scores[heap[child - 1]]:
            child -= 1
        heap[at], at = heap[child], child
    while at > root and scores[heap[(at - 1) // 2]] > scores[new]:
        heap[at], at = heap[(at - 1) // 2], (at - 1) // 2
    heap[at] = new


def _tokens(c: Call) -> range:
    """The tokens of a part of the batch."""
    return range(c.consts["first"], min(c.n, c.consts["first"] + c.consts["tokens"]))


def _keys(c: Call, m: int) -> Array:
    """The keys that a token sees: numbers of positions, or of joined keys."""
    begin, end, pool = int(c.segments[m, 0]), int(c.positions[m]) + 1, c.params["POOL"]
    return np.arange(begin, end) if pool == 1 else np.arange((end - begin) // pool)


def _places(c: Call, m: int, keys: Array) -> Array:
    """The positions of each of a token's keys: (keys, POOL)."""
    pool = c.params["POOL"]
    first = keys if pool == 1 else int(c.segments[m, 0]) + keys * pool
    return first[:, None] + np.arange(pool)
