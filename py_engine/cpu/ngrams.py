"""The kernels of plan/ngrams.py with numpy: twins of wgsl/embed_ngrams.wgsl and wgsl/gate_ngrams.wgsl."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.numerics import inverse_rms
from py_engine.plan.shared_constants import FIRST_MEDIA_ID

LEAST = 1e-6  # of a score's size


def embed_ngrams(c: Call) -> None:
    heads, per_length, longest, end = (c.params[name] for name in ("HEADS", "PER_LENGTH", "LONGEST", "END"))
    words = c["hashes"].reshape(-1)
    factors = np.ascontiguousarray(words[: 2 * longest]).view(np.uint64)
    ranges = words[2 * longest : 2 * (longest + heads)].reshape(heads, 2).astype(np.uint64)
    tokens, offsets = _tokens(c, longest), c.offsets
    for back in range(1, longest):
        hidden = (offsets < back) | ((tokens[back - 1] == end) if back > 1 else False)
        tokens[back] = np.where(hidden, np.uint64(end), tokens[back])
    hashes = tokens[0] * factors[0]
    x, cols = c["x"], c.params["COLS"]
    for head in range(heads):
        if head % per_length == 0:
            back = 1 + head // per_length
            hashes = hashes ^ (tokens[back] * factors[back])
        rows = (ranges[head, 0] + hashes % ranges[head, 1]).astype(np.int64) - c.consts["row0"]
        present = np.flatnonzero((rows >= 0) & (rows < c.consts["rows"]))
        x[present, head * cols : (head + 1) * cols] = c["w"][rows[present]]


def _tokens(c: Call, longest: int) -> Array:
    """Each token and those before it, (longest, n). Before a sequence's first token, any."""
    back = np.arange(longest)[:, None]
    found: Array = c["tokens"][c.sequences, np.maximum(c.positions - back, 0)].astype(np.uint64)
    return np.where(found >= FIRST_MEDIA_ID, np.uint64(c.params["PICTURE"]), found)


def gate_ngrams(c: Call) -> None:
    shape = c.n, c.grid[1], c.params["COLS"]
    wide, eps = shape[1] * shape[2], c.consts["eps"]
    key, streams = (c[name][: c.n, :wide].reshape(shape) for name in ("key", "streams"))
    value, norms = c["value"][: c.n, None, : shape[2]], c["norms"].reshape(-1)[: 3 * wide].reshape(3, *shape[1:])
    products = key * inverse_rms(key, eps) * norms[0] * streams * inverse_rms(streams, eps) * norms[1]
    scores = products.sum(axis=2, keepdims=True) / np.float32(shape[2] ** 0.5)
    gates = 1 / (1 + np.exp(-np.sign(scores) * np.sqrt(np.maximum(np.abs(scores), np.float32(LEAST)))))
    added = gates * value
    c["y"][: c.n, :wide] = (added * inverse_rms(added, eps) * norms[2]).reshape(c.n, -1)
    c["streams"][: c.n, :wide] += added.reshape(c.n, -1)
