"""A spectrum as MiMo-V2.5's encoders of sound expect it: convolutions, who sees whom, and groups of codes."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array, EncoderBatch
from py_engine.encode.convolutions import line_taps
from py_engine.models.projectors.convolutions import halved
from py_engine.models.projectors.tower import Tower

BASE, GROUP_BASE = 10000.0, 640000.0  # of the frequencies of both encoders


def arrange(tower: Tower, batch: EncoderBatch, frames: int) -> None:
    """Set the inputs, but for the frames."""
    assert tower.coded is not None
    halves = halved(frames)
    pairs = halves // 2
    tokens = -(-pairs // tower.stack)
    padded = tokens * tower.stack
    batch.write_taps("first", *line_taps(frames, frames, 1))
    batch.write_taps("second", *line_taps(halves, frames, 2))
    batch.write_taps("pairs", np.arange(2 * pairs).reshape(pairs, 2))
    own = np.arange(padded)
    batch.write_taps("padded", np.minimum(own, pairs - 1)[:, None], (own < pairs)[:, None])
    if batch.takes("joined"):
        batch.write_taps("joined", own.reshape(tokens, -1))
    batch.write("turns", _turns(tower, np.arange(halves), BASE))
    batch.write("group_turns", _turns(tower, own % tower.stack, GROUP_BASE))
    _earlier(batch, "pictures", halves, halves)
    _earlier(batch, "windows", halves, max(tower.coded.reaches))
    batch.write_segments("quarters", [tower.stack] * tokens)
    batch.rows = {"frames": frames, "halves": halves, "pairs": pairs, "padded": padded, "tokens": tokens}
    batch.tokens = [tokens]


def _earlier(batch: EncoderBatch, table: str, count: int, reach: int) -> None:
    """Each row sees itself and so many rows before it."""
    row = np.arange(count)
    seen = np.stack([np.maximum(row - reach, 0), row + 1, np.zeros_like(row)], axis=1)
    batch.tables[batch.plan.segments[table]] = seen.astype(np.uint32)


def _turns(tower: Tower, place: Array, base: float) -> Array:
    """Turns of each pair of a head in units of 2^-32, u32 (n, head_dim / 2)."""
    pairs = np.arange(tower.head_dim // 2)
    turns = place[:, None] * base ** (-2 * pairs / tower.head_dim) / (2 * np.pi)
    return (np.round(turns * 2**32).astype(np.int64) % 2**32).astype(np.uint32)
