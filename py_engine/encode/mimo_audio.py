"""A spectrum as MiMo-V2.5's encoders of sound expect it: convolutions, which rows a row sees, and groups of codes."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import EncoderBatch
from py_engine.encode.convolutions import line_taps
from py_engine.encode.positions import line_turns
from py_engine.models.projectors.convolutions import halved
from py_engine.models.projectors.tower import Tower

BASE, GROUP_BASE = 10000.0, 640000.0  # of the frequencies of the first encoder, and of the second


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
    batch.write("turns", line_turns(np.arange(halves), tower.head_dim, BASE))
    batch.write("group_turns", line_turns(own % tower.stack, tower.head_dim, GROUP_BASE))
    _earlier(batch, "pictures", halves, halves)
    _earlier(batch, "windows", halves, max(tower.coded.reaches))
    batch.write_segments("quarters", [tower.stack] * tokens)
    batch.rows = {"frames": frames, "halves": halves, "pairs": pairs, "padded": padded, "tokens": tokens}
    batch.tokens = [tokens]


def _earlier(batch: EncoderBatch, table: str, count: int, reach: int) -> None:
    """Set a table of segments: each row sees itself and up to `reach` rows before it."""
    row = np.arange(count)
    seen = np.stack([np.maximum(row - reach, 0), row + 1, np.zeros_like(row)], axis=1)
    batch.tables[batch.plan.segments[table]] = seen.astype(np.uint32)
