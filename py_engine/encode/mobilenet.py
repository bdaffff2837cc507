"""A picture as Gemma 3n's encoder expects it: its pixels, and the taps of all convolutions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.convolutions import same_taps
from py_engine.errors import WispError
from py_engine.media.kinds import MOBILE_SIDE
from py_engine.models.projectors.mobilenet import ATTENDED, KERNELS, PHASES, STAGES, rows_of, sides
from py_engine.models.projectors.stages import SEGMENT_TABLES
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan


def arrange(tower: Tower, plan: EncoderPlan, picture: Array) -> EncoderBatch:
    """The inputs for one picture, uint8 (side, side, 3)."""
    side = MOBILE_SIDE * tower.patch
    if picture.shape != (side, side, 3):
        height, width = picture.shape[:2]
        raise WispError(f"A picture of {width} x {height} pixels is not one of {side} x {side}.", "invalid_value")
    edged = np.pad(picture, ((0, 1), (0, 1), (0, 0))).reshape(-1)  # kernels reach beyond the right and the lower end
    return _layout(tower, plan).with_contents([("pixels", 0, np.pad(edged, (0, -len(edged) % 4)))])


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan) -> EncoderBatch:
    """The inputs, without the pixels."""
    batch, found = EncoderBatch(plan, "image"), sides(tower)
    batch.tokens = [MOBILE_SIDE**2]
    batch.write_taps("once", np.zeros((1, 1)))
    squares = np.stack(np.divmod(np.arange(found[0] ** 2), found[0]), axis=1)
    stride = 3 * (4 * found[0] + 1)
    for phase in range(PHASES):
        first = (4 * squares + 2 * np.array(divmod(phase, 2))) @ np.array([stride, 3])
        batch.write(f"stem_{phase}", np.stack([first, np.full_like(first, stride)], axis=1).astype(np.uint32)[:, None])
    _convolutions(batch, "patches", 2 * found[0], found[0], stem_order(found[0]))
    for stage in range(1, STAGES):
        _convolutions(batch, rows_of(stage), found[stage - 1], found[stage])
    for stage in range(STAGES):
        _convolutions(batch, f"keys_{stage}", found[stage], found[stage] // 2)
    for table, side in zip(SEGMENT_TABLES, (*found[ATTENDED:], found[-1] // 2), strict=True):
        batch.tables[plan.segments[table]] = np.tile(np.array([0, side**2, 0], np.uint32), (found[ATTENDED] ** 2, 1))
    y, x = np.divmod(np.arange(found[-2] ** 2), found[-2])
    batch.write_taps("raised", (y // 2 * found[-1] + x // 2)[:, None])
    scale = found[-2] // MOBILE_SIDE
    pool = same_taps(scale, scale, found[-2])[0]
    batch.write_taps("pool", pool, np.full(pool.shape, scale**-2))
    batch.rows |= {"once": 1, "tokens": MOBILE_SIDE**2}
    return batch


def stem_order(side: int) -> Array:
    """The row of each place of the first convolution: it has the places of a square after each other."""
    y, x = np.divmod(np.arange(4 * side**2), 2 * side)
    return PHASES * (y // 2 * side + x // 2) + y % 2 * 2 + x % 2


def _convolutions(batch: EncoderBatch, name: str, before: int, side: int, order: Array | None = None) -> None:
    """The taps of convolutions whose results are rows of a name, side x side places.

    `before`: places along a side of what those with a stride of 2 read; `order`: the row of each of these.
    """
    batch.rows[name] = side**2
    for kernel in KERNELS:
        if batch.takes(f"{name}_near_{kernel}"):
            batch.write_taps(f"{name}_near_{kernel}", *same_taps(kernel, 1, side))
        if batch.takes(f"{name}_half_{kernel}"):
            ids, inside = same_taps(kernel, 2, before)
            batch.write_taps(f"{name}_half_{kernel}", ids if order is None else order[ids], inside)
