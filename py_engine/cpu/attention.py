"""Attention, the KV cache and rotation with numpy: twins of attention*.wgsl, rope*.wgsl and kv_*.wgsl."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from py_engine.cpu.adapters import low_rank
from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import capped, normed
from py_engine.plan.attention import SINGLE
from py_engine.plan.cache import GROUP
from py_engine.plan.shared_constants import MOST_DISTANCE

NO_SCORE = np.float32(-1e30)  # the largest score of a part without any that is seen, as on the GPU


def rotate(c: Call, x: Array, pos: Array) -> Array:
    """Rotate (n, heads * head_dim) at positions (n, 1) or (n, pairs)."""
    dim, head = c.params["ROPE_DIM"], c.params["HEAD_DIM"]
    if c.params.get("TURNS"):
        turns = np.ascontiguousarray(c["rope_freqs"][: len(x), : dim // 2]).view(np.int32)
    else:  # 32-bit wrap-around, as on the GPU
        turns = (pos.astype(np.uint32) * c["rope_freqs"][: dim // 2]).astype(np.uint32).view(np.int32)
    angle = turns.astype(np.float32) * np.float32(2 * np.pi / 2**32)
    cos, sin = ((f(angle) * np.float32(c.consts["rope_scale"]))[:, None, :] for f in (np.cos, np.sin))
    heads = x.reshape(len(x), -1, head)
    out = heads.copy()
    first, second = _slices(c.params["NEOX"], dim)
    out[..., first] = heads[..., first] * cos - heads[..., second] * sin
    out[..., second] = heads[..., first] * sin + heads[..., second] * cos
    return out.reshape(x.shape)


def _slices(neox: int, dim: int) -> tuple[Array, Array] | tuple[slice, slice]:
    """pairs(), as slices where they are some: numpy reads these several times as fast."""
    if neox == 0:
        return slice(0, dim, 2), slice(1, dim, 2)
    return (slice(0, dim // 2), slice(dim // 2, dim)) if neox == 1 else pairs(neox, dim)


def pairs(neox: int, dim: int) -> tuple[Array, Array]:
    """The dimensions that are rotated together, (dim / 2,) each."""
    numbers = np.arange(dim)
    if neox == 0:
        return numbers[::2], numbers[1::2]
    blocks = numbers.reshape(neox, 2, -1)  # 2: each half of the dimensions on its own
    return blocks[:, 0].reshape(-1), blocks[:, 1].reshape(-1)


def rope_store(c: Call, rows: Array, after: tuple[Array, Array] | None = None) -> Array:
    """Return the rotated queries of stacked rows (n, q + 2 kv); store rotated keys and values in the cache.

    `after`: factors of rotated queries (q,) and keys (kv,). Decode attention that does this itself also quantizes.
    """
    q, kv = c.consts["q_rows"], c.consts["kv_rows"]
    of_queries, of_keys = after or (np.float32(1), np.float32(1))
    pos, rotary = c.positions[-len(rows) :], c.rotary_positions[-len(rows) :]
    if not kv:
        return rotate(c, rows[:, :q], rotary) * of_queries
    k, v = rotate(c, rows[:, q : q + kv], rotary) * of_keys, rows[:, q + kv : q + 2 * kv]
    quantized = c.params["KV"] == "q8_0"
    if quantized and c.params.get("NORMS"):
        _quantize(c, k, v)
    else:
        cache_rows = np.arange(len(rows)) if quantized else c.rows_of(pos, c.sequences[-len(rows) :])
        c["k_cache"][cache_rows], c["v_cache"][cache_rows] = k, v
    return rotate(c, rows[:, :q], rotary) * of_queries


def rope_append(c: Call) -> None:
    y = rows = c["y"][: c.n]
    if c.params.get("ADDED"):
        rows = y + c["added"][: c.n]
    if c.params.get("LOW_RANK"):
        rows = y.copy()
        low_rank(c, rows)
    y[:, : c.consts["q_rows"]] = rope_store(c, rows)


def norm_rope_append(c: Call) -> None:
    c["y"][: c.n, : c.consts["q_rows"]] = _heads(c)


def _heads(c: Call) -> Array:
    """Normalise and rotate stacked rows x (n, q + 2 kv): return queries, store keys and values in the cache."""
    q, kv, dim = c.consts["q_rows"], c.consts["kv_rows"], c.params["HEAD_DIM"]
    x = c["x"][: c.n, : q + 2 * kv].copy()
    factors = []  # of queries, of keys
    for kind, (first, rows) in enumerate(((0, q), (q, kv))):
        if (alone := c.params.get("ALONE", 0)) and kind != alone - 1:
            continue
        width = rows if c.params["ACROSS_HEADS"] else dim
        part = x[:, first : first + rows].reshape(c.n, -1, width)
        if c.params["MEAN"]:
            part = part - part.mean(axis=-1, keepdims=True, dtype=np.float32)
        at = slice(first, first + rows) if c.params["PER_HEAD"] else slice(dim * kind, dim * (1 + kind))
        if c.params["PER_HEAD"] == SINGLE:
            weights = np.ones(1, np.float32) if kind else c["norm"][0, : rows // dim, None]
        else:
            weights = c["norm"][0, at].reshape(-1, width)
        if c.params["AFTER"]:
            factors.append(np.resize(weights, rows))
            weights = np.ones_like(weights)
        out = normed(part, weights, c.consts["eps"])
        if c.params["BIAS"]:
            out = out + c["bias"][0, at].reshape(-1, width)
        x[:, first : first + rows] = out.reshape(c.n, rows)
    if c.params["NORM_VALUES"]:
        values = x[:, q + kv :].reshape(c.n, -1, dim)
        x[:, q + kv :] = normed(values, np.float32(1), c.consts["eps"]).reshape(c.n, kv)
    return rope_store(c, x, (factors[0], factors[1]) if factors else None)


def scale_queries(c: Call) -> None:
    lengths = ((c.offsets + c.consts["first"]) // c.consts["length"]).astype(np.float32)
    c["y"][: c.n, : c.params["COLS"]] *= (1 + np.float32(c.consts["scale"]) * np.log1p(lengths))[:, None]


def attention(c: Call) -> None:
    group, kv_heads = _group(c), c.consts["n_head_kv"]
    size = c.params["VALUE_DIM"]
    y = c["y"][: c.n, c.consts["head0"] * group * size :][:, : kv_heads * group * size]
    y = y.reshape(c.n, kv_heads, group, size)
    for tokens, _, head, scores, v in masked_scores(c):
        top, sink = scores.max(axis=-1, keepdims=True), np.float32(0)
        if c.params["SINKS"]:
            first = (c.consts["head0"] + head) * group
            sinks = c["sinks"][0, first : first + group, None, None]
            top = np.maximum(top, sinks)
            sink = np.exp(sinks - top)
        e = np.exp(scores - top)
        y[tokens, head] = (e @ v / (e.sum(axis=-1, keepdims=True) + sink)).transpose(1, 0, 2)


def masked_scores(c: Call) -> Iterator[tuple[slice, int, int, Array, Array]]:
    """Yield (tokens of the batch, first position, kv head, scores (group, n, positions), values (positions, dim)).

    Scores of positions that a token does not see are -inf.
    """
    for m, end, begin, _ in c.segment_parts():
        last = int(c.segments[m, 1]) if c.params.get("PACKED") and not c.params.get("CAUSAL", 1) else None
        for head, scores, v in _scores(c, c["q"], slice(m, end), c.seq, begin, last):
            yield slice(m, end), begin, head, scores, v


def attention_decode(c: Call) -> None:
    group, head_dim = _group(c), c.params["HEAD_DIM"]
    if c.params.get("FRESH"):  # the GPU leaves it to attention_combine
        _quantize(c, c["k_new"][: c.n], c["v_new"][: c.n])
    q = _heads(c) if c.params.get("NORMS") else c["q"]
    up_to, above = c.params.get("UP_TO") or inf, c.params.get("ABOVE", 0)
    for m, (pos, seq) in enumerate(zip(c.positions, c.sequences, strict=True)):
        begin, end = visible(c, pos, int(seq))
        if not above < end <= up_to:
            continue
        size = split_size(c, pos, int(seq))
        for head, scores, v in _scores(c, q, slice(m, m + 1), int(seq), end=max(end, int(pos) + 1)):
            # all parts at once, the last one filled up
            n, n_parts = end - begin, -(-(end - begin) // size)
            s = np.full((group, n_parts * size), -np.inf, np.float32)
            values = np.zeros((n_parts * size, head_dim), np.float32)
            s[:, :n], values[:n] = scores[:, 0, begin:end], v[begin:end]
            s = np.ascontiguousarray(s.reshape(group, n_parts, size).transpose(1, 0, 2))  # (parts, group, size)
            top = np.maximum(s.max(axis=-1, keepdims=True), NO_SCORE)
            e = np.exp(s - top)
            partial = c["parts"][m, head * group : (head + 1) * group, :n_parts].transpose(1, 0, 2)
            partial[..., :head_dim] = np.matmul(e, values.reshape(n_parts, size, head_dim))
            partial[..., : c.params.get("FIRST", 0)] = 0
            partial[..., head_dim], partial[..., head_dim + 1] = top[..., 0], e.sum(axis=-1)


def _group(c: Call) -> int:
    """Query heads of a key/value head."""
    return int(c.params["G"] * c.params.get("SHARE", 1))


def _keys_and_values(c: Call, seen: Array, seq: int) -> tuple[Array, Array, Array | slice]:
    """Rows of keys (rows, kv heads, head_dim) and values (rows, kv heads, dimensions), and the row of each position."""
    head_dim, kv_heads, nope = c.params["HEAD_DIM"], c.consts["n_head_kv"], c.params.get("NOPE", 0)
    if not nope:
        (k, at), (v, _) = (_cached(c, name, seen, seq) for name in ("k_cache", "v_cache"))
        return k.reshape(-1, kv_heads, head_dim), v.reshape(-1, kv_heads, head_dim), at
    expanded = c["expanded"][seen].reshape(len(seen), kv_heads, -1).astype(np.float32)
    rest = c["k_cache"][c.rows_of(seen, seq), : head_dim - nope].astype(np.float32)
    rest = np.broadcast_to(rest[:, None], (len(seen), kv_heads, head_dim - nope))
    return np.concatenate([expanded[:, :, :nope], rest], axis=2), expanded[:, :, nope:], slice(None)


def _scores(
    c: Call, q: Array, tokens: slice, seq: int, begin: int = 0, end: int | None = None
) -> Iterator[tuple[int, Array, Array]]:
    """Yield (kv head, scaled and masked scores (group, n, positions), values (positions, head_dim)).

    The tokens' queries, of q (batch, heads * head_dim), are at consecutive positions of one sequence. They see their
    prefix and nothing else before `begin`, nor from `end` on, which may be after them.
    """
    q, positions, prefix = q[tokens], c.positions[tokens], int(c.prefixes[tokens][0, 0])
    head_dim, group, kv_heads = c.params["HEAD_DIM"], _group(c), c.consts["n_head_kv"]
    pos, n = int(positions[0]), len(positions)
    q = q[:, c.consts.get("head0", 0) * group * head_dim :]
    q = q[:, : kv_heads * group * head_dim].reshape(n, kv_heads, group, head_dim) * np.float32(c.consts["scale"])
    seen = np.arange(begin, pos + n if end is None else end)
    seen[:prefix] -= begin
    k, v, at = _keys_and_values(c, seen, seq)
    counted = np.arange(len(seen))  # positions, as the sequence itself counts
    distance = positions[:, None] - begin - counted[None, :]
    window = c.params["WINDOW"] or 1 << 30
    chunks = (positions[:, None] - begin) // window if c.params.get("CHUNKED") else None
    if c.params.get("MEDIA") and c.params["WHOLE_MEDIA"]:
        hidden = (seen >= c.media_records[:, :1]) | (distance >= window)
    elif c.params.get("CAUSAL", 1):
        hidden = distance >= window
        if not c.params.get("MUTUAL"):
            hidden |= distance < 0
    else:
        hidden = abs(distance) > window // 2
    if chunks is not None:
        hidden |= counted[None, :] // window < chunks
    if c.params.get("INDEXED"):
        hidden |= not_chosen(c["index_mask"][tokens], seen)
    for head in range(kv_heads):
        queries = np.ascontiguousarray(q[:, head].transpose(1, 0, 2)).reshape(group * n, head_dim)
        scores = (queries @ np.ascontiguousarray(k[:, head]).T)[:, at].reshape(group, n, len(seen))
        scores = capped(scores, c.params["SOFT_CAP"])
        if c.params.get("ALIBI"):
            slopes = c["slopes"].view(np.float32)[head * group : (head + 1) * group]
            scores -= slopes[:, None, None] * abs(distance).astype(np.float32)
        if c.params.get("RELATIVE"):
            places = np.clip(-distance, -MOST_DISTANCE, MOST_DISTANCE) + MOST_DISTANCE
            table = c["relative"][c["buckets"].reshape(-1)[places].astype(np.int64)]  # (n, positions, heads)
            scores += table[:, :, head * group : (head + 1) * group].transpose(2, 0, 1)
        scores[:, hidden] = -np.inf
        yield head, scores, np.ascontiguousarray(v[:, head])[at]  # products with strided rows take far longer


def not_chosen(mask: Array, positions: Array) -> Array:
    """True where a mask (tokens, words) has no bit for a position: (tokens, positions)."""
    found: Array = (mask[:, positions // 32] >> (positions % 32).astype(np.uint32)) & np.uint32(1) == 0
    return found


def _cached(c: Call, name: str, positions: Array, seq: int) -> tuple[Array, Array | slice]:
    """Rows of a cache, float32, and which of them each position of a sequence has.

    Pages before a window may hold anything. If pages appear several times, as in a proof, all rows are returned once.
    """
    rows = c.rows_of(positions, seq)
    if c.params["KV"] != "q8_0":
        cache = c[name]
        if len(cache) < len(rows):
            return cache.astype(np.float32), rows
        return cache[rows].astype(np.float32, copy=False), slice(None)
    cols, page = c.consts["n_head_kv"] * c.params["HEAD_DIM"], c.params["PAGE"]
    values, scales = cache_views(c[name], page, cols)
    at = (rows // page, rows % page) if len(c[name]) >= len(rows) else (slice(None), slice(None))
    values, scales = values[at], scales[at]
    groups = values.reshape(*scales.shape, GROUP) * (scales / np.float32(127))[..., None]
    return groups.reshape(-1, cols), slice(None) if len(c[name]) >= len(rows) else rows


def cache_views(cache: Array, page: int, cols: int) -> tuple[Array, Array]:
    """Views of a q8_0 cache: bytes (pages, page, cols), scales (pages, page, groups)."""
    pages = cache.reshape(-1, page * (cols // 4 + cols // GROUP))
    values, scales = pages[:, : page * cols // 4], pages[:, page * cols // 4 :]
    return (
        values.view(np.int8).reshape(len(pages), page, cols),
        scales.view(np.float32).reshape(len(pages), page, cols // GROUP),
    )


def kv_quantize(c: Call) -> None:
    _quantize(c, c["k_new"][: c.n], c["v_new"][: c.n])


def _quantize(c: Call, k: Array, v: Array) -> None:
    """Quantize a batch's keys and values (n, cols) into a q8_0 cache."""
    page = c.params["PAGE"]
    rows = c.rows_of(c.positions, c.sequences)
    at = rows // page, rows % page
    for name, new in (("k_cache", k), ("v_cache", v)):
        groups = new.reshape(c.n, -1, GROUP)
        largest = np.abs(groups).max(axis=-1)
        inverse = np.where(largest > 0, 1 / largest, 0).astype(np.float32)
        levels = np.floor(np.float32(0.5) + 127 * (groups * inverse[..., None])).reshape(new.shape)
        values, scales = cache_views(c[name], page, new.shape[1])
        values[at], scales[at] = levels, largest


def relative_attention(c: Call) -> None:
    heads, dim, window = c.params["HEADS"], c.params["HEAD_DIM"], c.params["WINDOW"]
    q, k, v = c["x"][: c.n, : 3 * heads * dim].reshape(c.n, 3, heads, dim).transpose(1, 0, 2, 3)
    q = q * np.float32(c.consts["q_scale"]) * c["factor"][0]
    keys = c["relative"][:window, : heads * dim].reshape(window, heads, dim)
    scores = np.full((window, c.n, heads), -np.inf, np.float32)
    for d in range(min(window, c.n)):
        key = k[: c.n - d] * np.float32(c.consts["k_scale"]) + keys[d]
        scores[d, d:] = capped((q[d:] * key).sum(axis=-1), c.params["SOFT_CAP"])
    e = np.exp(scores - scores.max(axis=0))
    y = np.zeros((c.n, heads, dim), np.float32)
    for d in range(min(window, c.n)):
        y[d:] += (e[d, d:] / e[:, d:].sum(axis=0))[..., None] * v[: c.n - d]
    c["y"][: c.n, : heads * dim] = y.reshape(c.n, heads * dim)


def relative_attention_all(c: Call) -> None:
    heads, dim, n = c.params["HEADS"], c.params["HEAD_DIM"], c.n
    q, k, v = c["x"][:n, : 3 * heads * dim].reshape(n, 3, heads, dim).transpose(1, 2, 0, 3)  # (heads, n, dim) each
    content, distance = c["biases"][0][: 2 * heads * dim].reshape(2, heads, 1, dim)
    span = c.params["BLOCK"] or n
    keys = c["relative"][: 2 * span - 1, : heads * dim].reshape(2 * span - 1, heads, dim).transpose(1, 2, 0)
    rows = np.arange(n)
    at = (span - 1 + rows - rows[:, None]).clip(0, 2 * span - 2)  # (n, n): of the key for a query and a row
    by_distance = np.take_along_axis((q + distance) @ keys, np.broadcast_to(at, (heads, n, n)), axis=2)
    scores = ((q + content) @ k.transpose(0, 2, 1) + by_distance) * np.float32(c.consts["scale"])
    scores = np.where(rows // span == rows[:, None] // span, scores, np.float32(-np.inf))
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True) @ v
    c["y"][:n, : heads * dim] = y.transpose(1, 0, 2).reshape(n, heads * dim)


def visible(c: Call, pos: int, seq: int) -> tuple[int, int]:
    """The first position that a token attends to, and the one after the last."""
    window, end = c.params["WINDOW"], pos + 1
    if part := c.params.get("PART"):
        encoded = -int(c.tables[c.params["SHIFTS"] + seq].view(np.int32))
        return (0, encoded) if part == "encoder" else (encoded, end)
    begin = end - (pos % window + 1 if c.params.get("CHUNKED") else min(end, window or end))
    begin = max(begin, min(c.params.get("FROM", 0), pos))
    if c.params.get("MUTUAL"):
        return begin, 1 + int(c.positions[c.sequences == seq].max())
    return begin, end - (1 if c.params.get("ANCHOR") else 0)


def split_size(c: Call, pos: int, seq: int) -> int:
    """Positions in each of the SPLIT parts of the context: whole tiles of TS."""
    begin, end = visible(c, pos, seq)
    tiles = -(-(end - begin) // c.params["TS"])
    return -(-tiles // c.params["SPLIT"]) * c.params["TS"]


def attention_combine(c: Call) -> None:
    heads = c.consts["n_head"]
    for m, (pos, seq) in enumerate(zip(c.positions, c.sequences, strict=True)):
        y = _joined(c, c["parts"][m, :heads], (int(pos), int(seq)))
        c["y"].reshape(-1, c.consts["y_stride"])[m, : y.size] = y


def merged(c: Call) -> Array:
    """The attention of each token, (n, heads * head_dim), of at most MERGED splits."""
    places = enumerate(zip(c.positions, c.sequences, strict=True))
    return np.stack(
        [_joined(c, c["parts"][m, :, : c.params["MERGED"]], (int(pos), int(seq))) for m, (pos, seq) in places]
    )


def _joined(c: Call, parts: Array, place: tuple[int, int]) -> Array:
    """The attention of all heads, one after the other. `parts`: (heads, splits, ...); `place`: position, sequence."""
    head_dim, size = c.params["HEAD_DIM"], split_size(c, *place)
    begin, end = visible(c, *place)
    parts = parts[:, : -(-(end - begin) // size)]
    top, sink = parts[..., head_dim].max(axis=1, keepdims=True), np.float32(0)
    if c.params["SINKS"]:
        sinks = c["sinks"][0, : len(parts), None]
        top = np.maximum(top, sinks)
        sink = np.exp(sinks - top)
    weight = np.exp(parts[..., head_dim] - top)
    total = (weight * parts[..., head_dim + 1]).sum(axis=1, keepdims=True) + sink
    return ((weight[..., None] * parts[..., :head_dim]).sum(axis=1) / total).reshape(-1)
