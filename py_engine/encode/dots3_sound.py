"""A spectrum as dots3-note's encoder of sound expects it: in parts, each with all rows that its tokens need."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array, EncoderBatch
from py_engine.encode.positions import line_turns
from py_engine.models.projectors.convolutions import halved
from py_engine.models.projectors.dots3_sound import PART, PARTS, bins, rotated
from py_engine.models.projectors.tower import Tower

BASE = 10000.0  # of the frequencies


def arrange(tower: Tower, batch: EncoderBatch, frames: int) -> dict[str, tuple[Array, Array]]:
    """Set the inputs; return the taps of the first convolution of each part."""
    first, sizes = {}, [frames]
    for _ in range(3):
        sizes.append(halved(sizes[-1]))
    tokens = sizes[-1]
    for k in range(PARTS):
        first[f"frames.{k}"] = _part(tower, batch, k, sizes)
    own = np.arange(tokens)
    for k in range(PARTS):
        batch.write_taps(f"of.{k}", (own % PART)[:, None], (own // PART == k)[:, None])
    batch.write_taps("bins", np.arange(PART * bins(tower)[-1]).reshape(PART, -1))
    batch.write("turns", line_turns(own, rotated(tower), BASE))
    batch.rows["tokens"], batch.tokens = tokens, [tokens]
    return first


def _part(tower: Tower, batch: EncoderBatch, k: int, sizes: list[int]) -> tuple[Array, Array]:
    """Set the rows and taps of a part; return the first convolution's taps.

    A part beyond the clip has one token, which is not used.
    """
    begin = k * PART
    end = max(begin + 1, min(begin + PART, sizes[-1]))
    spans = [(0, sizes[0]), (4 * begin - 3, 4 * end), (2 * begin - 1, 2 * end), (begin, end)]
    found, places = [], (tower.mels, *bins(tower))
    for i in range(3):
        found.append(_taps(spans[i + 1], spans[i], sizes[i], places[i]))
    for name, (ids, inside) in zip(("second", "third"), found[1:], strict=True):
        batch.write_taps(f"{name}.{k}", ids, inside)
    for name, (ids, _) in zip(("first", "second", "third"), found, strict=True):
        batch.rows[f"{name}.{k}"] = len(ids)
    batch.rows[f"joined.{k}"] = end - begin
    return found[0]


def _taps(span: tuple[int, int], given: tuple[int, int], size: int, columns: int) -> tuple[Array, Array]:
    """Taps of a convolution for the rows of a span, and whether each is inside: (n, 9), as plane_taps() orders them.

    Its inputs are the rows `given` of all `size` rows, each of `columns` places.
    """
    row, row_inside = _line(np.arange(*span), size)
    column, column_inside = _line(np.arange(halved(columns)), columns)
    row = np.clip(row - given[0], 0, given[1] - given[0] - 1)
    ids = row[:, None, None, :] * columns + np.clip(column, 0, columns - 1)[None, :, :, None]
    inside = row_inside[:, None, None, :] & column_inside[None, :, :, None]
    return ids.reshape(-1, 9), inside.reshape(-1, 9)


def _line(places: Array, size: int) -> tuple[Array, Array]:
    """The three places that each place after a stride of 2 is made of, and whether each is inside: (n, 3)."""
    found = 2 * places[:, None] + np.arange(-1, 2)
    return found, (found >= 0) & (found < size)
