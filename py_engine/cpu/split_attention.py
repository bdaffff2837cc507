"""Attention of prompts with numpy, also split: twins of attention.wgsl, attention_matrix.wgsl, attention_merge.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.attention import NO_SCORE, masked_scores
from py_engine.cpu.attention import attention as unsplit_attention
from py_engine.cpu.call import Array, Call


def attention(c: Call) -> None:
    if not c.params.get("SPLIT"):
        unsplit_attention(c)
        return
    group = c.params["G"]
    sums, places = _sums(c, c.consts["n_head_kv"] * group), _splits(c)
    for tokens, first, head, scores, v in masked_scores(c):
        heads = slice(head * group, (head + 1) * group)
        for m in range(tokens.start, tokens.stop):
            begin, size, end = places[m]
            for split, at in enumerate(range(begin, end, size)):
                seen = slice(max(0, at - first), max(0, min(at + size, end) - first))
                s = scores[:, m - tokens.start, seen]  # (group, positions)
                top = s.max(axis=-1, keepdims=True, initial=NO_SCORE)
                e = np.exp(s - top)
                sums[split, m, heads] = np.concatenate([e @ v[seen], top, e.sum(axis=-1, keepdims=True)], axis=-1)


def attention_merge(c: Call) -> None:
    heads, value, first = c.consts["heads"], c.params["VALUE_DIM"], c.consts["y_first"]
    sums = _sums(c, heads)
    y = c["y"][: c.n, first : first + heads * value].reshape(c.n, heads, value)
    for m, (begin, size, end) in enumerate(_splits(c)):
        used = sums[: -(-(end - begin) // size), m]  # (splits, heads, value + 2)
        tops, totals = used[..., value], used[..., value + 1]
        sinks = c["sinks"][0, :heads] if c.params["SINKS"] else np.full(heads, NO_SCORE)
        top = np.maximum(tops.max(axis=0), sinks)
        weight = np.exp(tops - top)
        total = (weight * totals).sum(axis=0) + (np.exp(sinks - top) if c.params["SINKS"] else 0)
        y[m] = (weight[..., None] * used[..., :value]).sum(axis=0) / total[:, None]


def _sums(c: Call, heads: int) -> Array:
    """A view of the sums: (splits, n, heads, VALUE_DIM + 2)."""
    splits, row = c.params["SPLIT"], c.params["VALUE_DIM"] + 2
    return c["sums"].reshape(-1)[: splits * c.n * heads * row].reshape(splits, c.n, heads, row)


def _splits(c: Call) -> list[tuple[int, int, int]]:
    """Of every token's tile: the first position that it loads, the positions of a split, and the end."""
    tile, ts, window = c.params["TQ"], c.params["TS"], c.params["WINDOW"]
    found = []
    for m in range(c.n):
        last = min(m // tile * tile + tile, c.n) - 1
        pos, first = int(c.positions[m // tile * tile]), int(c.segments[m // tile * tile, 0])
        if window:
            first += (pos - first) // window * window if c.params.get("CHUNKED") else max(0, pos + 1 - window - first)
        begin, end = first // ts * ts, int(c.positions[last]) + 1
        tiles = -(-(end - begin) // ts)
        size = -(-tiles // c.params["SPLIT"]) * ts
        found.append((begin, size, end))
    return found
