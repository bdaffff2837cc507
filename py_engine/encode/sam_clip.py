"""A tile or an overview as DeepSeek-OCR's encoders expect it, and tiles of a row as one picture."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

import numpy as np

from py_engine.encode import deepseek_ocr
from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.positions import along
from py_engine.media.kinds import SAM_SIDE, SAM_TILES
from py_engine.models.projectors.deepseek_ocr import tokens
from py_engine.models.projectors.sam_clip import CUBIC, LAST
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan

TILE = SAM_TILES["deepseekocr"]
Span = tuple[int, int, int]  # part, first row, rows


def parts(picture: Array) -> tuple[list[Array], list[Span]]:
    """The tiles of a row, which are below each other in the picture, and the rows of their results in order.

    The tiles' lines are side by side, each with its end. An overview is one part, whose rows are in order.
    """
    if picture.shape[1] != TILE:
        return [picture], []
    count, side, spans = max(1, len(picture) // TILE), isqrt(tokens(TILE)), list[Span]()
    for line in range(side):
        spans += [(tile, line * side, side) for tile in range(count)]
        spans.append((0, side**2, 1))
    return np.split(picture, count) if len(picture) == count * TILE else [picture], spans


def arrange(tower: Tower, plan: EncoderPlan, picture: Array) -> EncoderBatch:
    """The inputs for one tile or overview, uint8 (side, side, 3)."""
    deepseek_ocr.check(picture, (TILE, SAM_SIDE))
    return _layout(tower, plan, picture.shape[1]).with_contents([("pixels", 0, picture.reshape(-1))])


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan, pixels: int) -> EncoderBatch:
    """The inputs, without the pixels."""
    batch = EncoderBatch(plan, "image")
    deepseek_ocr.read(tower, batch, pixels)
    count = tokens(pixels)
    row = np.arange(count + 1)[:, None]
    batch.write_taps("read", np.maximum(row - 1, 0), row > 0)
    batch.write_taps("class", np.zeros_like(row), row == 0)
    batch.write_segments("quarters", [count + 1])
    _positions(tower, batch, count)
    batch.write_taps("found", np.concatenate([row[1:], row[:-1]], axis=1))
    batch.rows |= {"sequence": count + 1, "tokens": count}
    _ended(batch, isqrt(count), overview=pixels == SAM_SIDE)
    return batch


def _positions(tower: Tower, batch: EncoderBatch, count: int) -> None:
    """Places in the table; where it has another size, those of the values that recur, and its last row after them."""
    side, size, width = isqrt(tower.positions - 1), isqrt(count), tower.embedding_length
    row = np.arange(count + 1)[:, None]
    if side == size:
        batch.write_taps("places", row)
        for name in ("table_lines", "table_parts", "sum", "recurring_values", "last"):
            batch.write_taps(name, np.zeros((1, 1)), np.zeros((1, 1)))
        for name in ("recurring_places", "last_place"):
            batch.write_taps(name, np.zeros_like(row), np.zeros_like(row))
        batch.rows |= {"table_lines": 1, "table_parts": 1, "once": 1, "recurring": 1}
        return
    last, stride, first = row == count, -(-width // 32) * 32, side**2 // 4  # a float has four bytes
    batch.write_taps("places", np.zeros_like(row), np.zeros_like(row))
    batch.write_taps("recurring_places", np.where(last, 0, row), ~last)
    batch.write_taps("last_place", np.zeros_like(row), last)
    lines, parts = along(side**2, size, "cubic")
    of_last = first // width + np.arange(LAST)[:, None] + np.zeros(CUBIC, np.int64)
    weight = np.arange(CUBIC) == np.zeros((LAST, 1))
    batch.write_taps("table_lines", np.concatenate([lines, of_last]), np.concatenate([parts, weight]))
    value = first % width + np.arange(width)
    batch.write_taps("last", ((size + value // width) * stride + value % width)[None])
    columns, weights = along(width, size, "cubic")
    line = np.arange(size)[:, None] * stride
    batch.write_taps(
        "table_parts",
        np.stack([(line + columns[:, tap]).reshape(-1) for tap in range(columns.shape[1])]),
        np.stack([np.tile(weights[:, tap], size) for tap in range(columns.shape[1])]),
    )
    batch.write_taps("sum", np.arange(columns.shape[1])[None])
    values = np.arange(count * width).reshape(count, width) % size**2
    batch.write_taps("recurring_values", values)
    batch.rows |= {"table_lines": size + LAST, "table_parts": columns.shape[1], "once": 1, "recurring": count}


def _ended(batch: EncoderBatch, side: int, *, overview: bool) -> None:
    """An overview's lines end with a row of the file, and another one follows; one follows a tile's tokens."""
    places = np.arange(side**2).reshape(side, side)
    if overview:
        places = np.pad(places, ((0, 0), (0, 1)), constant_values=-1)
    ids = np.append(places, [-2 if overview else -1])[:, None]
    batch.write_taps("order", np.maximum(ids, 0), ids >= 0)
    batch.write_taps("breaks", np.zeros_like(ids), ids == -1)
    batch.write_taps("ends", np.zeros_like(ids), ids == -2)
    batch.rows["ended"], batch.tokens = len(ids), [len(ids)]
