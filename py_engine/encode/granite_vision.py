"""An overview and tiles as Granite Vision's encoder expects them: windows of their patches, and the order of tokens."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from py_engine.encode import pictures
from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.errors import WispError
from py_engine.media.layout import Shown
from py_engine.media.prepared import Stacked
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan


def arrange(tower: Tower, plan: EncoderPlan, picture: Stacked) -> EncoderBatch:
    """The inputs for one picture: an overview, then tiles, below each other."""
    pixels, shown = picture.pixels, picture.shown
    count = 1 + shown.grid[0] * shown.grid[1]
    assert tower.windowed is not None
    side = tower.patch * tower.windowed.patches
    if pixels.shape != (count * side, side, 3) or count * tower.positions > plan.capacity["patches"]:
        raise WispError(f"{pixels.shape[:2]} pixels are no {count} tiles of this projector.", "invalid_value")
    batch, further = pictures.arrange(tower, plan, np.split(pixels, count)), _layout(tower, plan, shown)
    return replace(
        batch,
        writes=batch.writes | further.writes,
        tables=batch.tables | further.tables,
        rows=batch.rows | further.rows,
        tokens=further.tokens,
    )


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan, shown: Shown) -> EncoderBatch:
    """The inputs besides those of the patches."""
    assert tower.windowed is not None
    batch, window, queries = EncoderBatch(plan, "image"), tower.windowed.side, tower.windowed.queries
    side, count = tower.windowed.patches, 1 + shown.grid[0] * shown.grid[1]
    windows, step = count * (side // window) ** 2, window // queries
    patches = np.arange(count * side**2).reshape(count, side, side)
    batch.write_taps("windowed", _squares(patches, window).reshape(-1, 1))
    batch.write_taps("places", np.tile(np.arange(window**2), windows)[:, None])
    squares = _squares(patches, step)  # (tile, line, column, step, step)
    each = _squares(np.arange(squares[..., 0, 0].size).reshape(squares.shape[:3]), queries).reshape(-1)
    members = squares.reshape(-1, step**2)[each]
    if batch.takes("means"):
        batch.write_taps("means", members, np.full(members.shape, step**-2))
    for offset in range(4):
        if batch.takes(f"corners_{offset}"):
            batch.write_taps(f"corners_{offset}", members[:, offset : offset + 1])
    batch.write_taps("queries", np.tile(np.arange(queries**2), windows)[:, None])
    begins = np.arange(windows) * window**2
    seen = np.stack([begins, begins + window**2, np.arange(windows)], axis=1)
    batch.tables[plan.segments["windows"]] = np.repeat(seen, queries**2, axis=0).astype(np.uint32)
    batch.write_segments("quarters", [queries**2] * windows)
    _lines(batch, shown, np.argsort(each).reshape(squares.shape[:3]), len(tower.windowed.features))
    batch.rows |= {"windowed": patches.size, "tokens": len(each), "lines": batch.tokens[0]}
    return batch


def _squares(grids: Array, side: int) -> Array:
    """The squares of grids, row by row in each: (grid, height / side, width / side, side, side)."""
    count, h, w = grids.shape
    return grids.reshape(count, h // side, side, w // side, side).swapaxes(2, 3)


def _lines(batch: EncoderBatch, shown: Shown, results: Array, slices: int) -> None:
    """The overview's tokens, then those of the tiles that show the picture, line by line, each with a row of the file.

    `results`: the row of each token's result, (tile, line, column).
    """
    (columns, rows), (left, top), (width, height) = shown.grid, shown.at, shown.size
    side = results.shape[1]
    tiles = results[1:].reshape(rows, columns, side, side).swapaxes(1, 2).reshape(rows * side, columns * side)
    lines = np.pad(tiles[top : top + height, left : left + width], ((0, 0), (0, 1)))
    is_break = np.zeros(lines.shape)
    is_break[:, width] = 1
    breaks = np.concatenate([np.zeros(side**2), is_break.reshape(-1)])[:, None]
    batch.write_taps("order", np.concatenate([results[0].reshape(-1), lines.reshape(-1)])[:, None], 1 - breaks)
    breaks = np.repeat(breaks, slices, axis=1)
    batch.write_taps("breaks", np.zeros_like(breaks), breaks)
    batch.tokens = [len(breaks)]
