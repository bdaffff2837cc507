"""A picture as Reka Edge's encoder expects it: its pixels, and the taps of all convolutions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.convolutions import same_taps
from py_engine.errors import WispError
from py_engine.media.kinds import CONVNEXT_SIDE
from py_engine.models.projectors.convnext import HALF, KERNEL, rows_of
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan


def arrange(tower: Tower, plan: EncoderPlan, picture: Array) -> EncoderBatch:
    """The inputs for one picture, uint8 (side, side, 3)."""
    side = CONVNEXT_SIDE * tower.merge * tower.patch
    if picture.shape != (side, side, 3):
        height, width = picture.shape[:2]
        raise WispError(f"A picture of {width} x {height} pixels is not one of {side} x {side}.", "invalid_value")
    return _layout(tower, plan).with_contents([("pixels", 0, picture.reshape(-1))])


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan) -> EncoderBatch:
    """The inputs, without the pixels."""
    batch, side = EncoderBatch(plan, "image"), CONVNEXT_SIDE * tower.merge
    y, x = np.divmod(np.arange(side**2), side)
    stride = 3 * side * tower.patch
    first = tower.patch * (y * stride + 3 * x)
    batch.write("patches", np.stack([first, np.full_like(first, stride)], axis=1).astype(np.uint32)[:, None])
    stage = 0
    while rows_of(stage) in plan.capacity:
        if stage:
            batch.write_taps(f"squares_{stage}", *same_taps(HALF, HALF, side))
            side //= HALF
        batch.write_taps(f"near_{stage}", *same_taps(KERNEL, 1, side))
        batch.rows[rows_of(stage)] = side**2
        stage += 1
    if batch.takes("positions"):
        batch.write_taps("positions", np.arange(side**2)[:, None])
    step = side // CONVNEXT_SIDE
    pool = same_taps(step, step, side)[0]
    batch.write_taps("pool", pool, np.full(pool.shape, step**-2))
    batch.rows["tokens"], batch.tokens = CONVNEXT_SIDE**2, [CONVNEXT_SIDE**2]
    return batch
