"""A picture as DeepSeek-OCR 2's encoders expect it: patches, windows, places in grids, and who sees what."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.convolutions import plane_taps
from py_engine.encode.positions import line_turns, resized
from py_engine.errors import WispError
from py_engine.media.kinds import SAM_PATCH, SAM_SIDE
from py_engine.models.projectors.deepseek_ocr import ROPE_BASE, SIDES, tokens
from py_engine.models.projectors.sam import GRID
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan


def arrange(tower: Tower, plan: EncoderPlan, picture: Array) -> EncoderBatch:
    """The inputs for one picture, uint8 (side, side, 3)."""
    check(picture, SIDES)
    return _layout(tower, plan, len(picture)).with_contents([("pixels", 0, picture.reshape(-1))])


def check(picture: Array, sides: tuple[int, ...]) -> None:
    """Raise WispError unless a picture is a square of one of these sizes."""
    height, width = picture.shape[:2]
    if height != width or height not in sides:
        raise WispError(f"A picture of {width} x {height} pixels is no square of {sides} pixels.", "invalid_value")


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan, pixels: int) -> EncoderBatch:
    """The inputs, without the pixels."""
    batch = EncoderBatch(plan, "image")
    read(tower, batch, pixels)
    _sequence(tower, batch, pixels)
    return batch


def read(tower: Tower, batch: EncoderBatch, pixels: int) -> None:
    """The inputs of the first encoder."""
    side = pixels // SAM_PATCH
    place = np.stack(np.divmod(np.arange(side**2), side), axis=1)
    first = SAM_PATCH * (place @ np.array([3 * pixels, 3]))
    batch.write("patches", np.stack([first, np.full_like(first, 3 * pixels)], axis=1).astype(np.uint32)[:, None])
    batch.write_taps("positions", *resized(GRID, side, side, place, "cubic"))
    batch.write_segments("pictures", [side**2])
    batch.write("cells", _cells(place, side))
    if batch.takes("distances"):
        batch.rows["distances"] = 2 * side - 1
        batch.write_taps("distances", *_stretched(2 * GRID - 1, 2 * side - 1))
    if batch.takes("windowed"):
        _windows(tower, batch, side)
    batch.rows["patches"] = side**2
    batch.write_taps("near", *plane_taps(1, side, side, 1, rows_first=True)[:2])
    for stage in ("halves", "quarters"):
        ids, inside, side, _ = plane_taps(1, side, side, rows_first=True)
        batch.write_taps(stage, ids, inside)
        batch.rows[stage] = side**2


def _cells(place: Array, side: int) -> Array:
    """Column and line of each place in a grid, and the grid's side, as wgsl/grid_heads.wgsl reads them."""
    return np.stack([place[:, 1] + (place[:, 0] << 16), np.full(len(place), side)], axis=1).astype(np.uint32)[:, None]


def _stretched(count: int, size: int) -> tuple[Array, Array]:
    """Taps in a table of `count` rows for one of `size`: linear, with the middles of the ends scaled."""
    at = np.maximum((np.arange(size) + 0.5) * (count / size) - 0.5, 0)
    first = np.minimum(at.astype(np.int64), count - 1)
    part = np.clip(at - first, 0, 1)
    return np.stack([first, np.minimum(first + 1, count - 1)], axis=1), np.stack([1 - part, part], axis=1)


def _windows(tower: Tower, batch: EncoderBatch, side: int) -> None:
    """The places of each window, row by row; those beyond the picture are empty."""
    assert tower.sam is not None
    window = tower.sam.window
    count = -(-side // window)
    y, x = np.divmod(np.arange((count * window) ** 2), count * window)
    places = np.where((y < side) & (x < side), y * side + x, -1).reshape(count, window, count, window)
    ids = places.swapaxes(1, 2).reshape(-1)
    inside = ids >= 0
    batch.write_taps("windowed", np.maximum(ids, 0)[:, None], inside[:, None])
    back = np.empty(side**2, np.int64)
    back[ids[inside]] = np.flatnonzero(inside)
    batch.write_taps("unwindowed", back[:, None])
    cell = np.stack(np.divmod(np.arange(window**2), window), axis=1)
    batch.write("window_cells", np.tile(_cells(cell, window), (count**2, 1, 1)))
    batch.write_segments("windows", [window**2] * count**2)
    batch.write_taps("window_distances", *_stretched(2 * window - 1, 2 * window - 1))
    batch.rows |= {"windowed": len(ids), "window_distances": 2 * window - 1}


def _sequence(tower: Tower, batch: EncoderBatch, pixels: int) -> None:
    """What the first encoder has read, then as many queries; and the results, with a row after an overview's."""
    count, ended = tokens(pixels), int(pixels == SAM_SIDE)
    row = np.arange(2 * count)
    is_query, query = row >= count, np.maximum(row - count, 0)
    batch.write_taps("read", np.where(is_query, 0, row)[:, None], ~is_query[:, None])
    for side in SIDES:
        batch.write_taps(f"queries_{side}", query[:, None], (is_query & (side == pixels))[:, None])
    batch.write("turns", line_turns(row, tower.head_dim, ROPE_BASE))
    seen = np.stack([np.zeros_like(row), np.where(is_query, row + 1, count), np.zeros_like(row)], axis=1)
    batch.tables[batch.plan.segments["quarters"]] = seen.astype(np.uint32)
    batch.write_taps("found", (count + np.arange(count))[:, None])
    last = np.arange(count + ended) == count
    batch.write_taps("between", np.minimum(np.arange(count + ended), count - 1)[:, None], ~last[:, None])
    batch.write_taps("ends", np.zeros((count + ended, 1)), last[:, None])
    batch.rows |= {"sequence": 2 * count, "tokens": count, "ended": count + ended}
    batch.tokens = [count + ended]
