"""Tables of positions that are resized to a picture's grid of patches, and how many of its rows a position takes."""

from __future__ import annotations

from math import ceil, isqrt
from typing import Literal

from py_engine.media.kinds import LFM2
from py_engine.models.projectors.tower import Tower

Kernel = Literal["aligned", "antialiased", "cubic", "linear", "offset"]
KERNELS: dict[str, Kernel] = {
    **dict.fromkeys(("qwen3vl_merger", "ling3vl"), "aligned"),
    **dict.fromkeys(("glm4v", "glm5v", "kimik25"), "cubic"),
    "hunyuanvl": "offset",
    "muse-glimmer": "linear",
    **dict.fromkeys((*LFM2, "paddleocr", "kimivl", "phi4", "step3vl"), "antialiased"),
}
TAPS: dict[Kernel, int] = {"aligned": 4, "cubic": 16, "linear": 4, "offset": 4}
TWO_TABLES = ("gemma4v", "gemma4uv")  # of columns, and of rows


def most_taps(tower: Tower) -> int:
    """Rows of the table that a patch's position is made of, at most."""
    kernel = KERNELS.get(tower.kind)
    if kernel == "antialiased":
        return _most_antialiased(isqrt(tower.positions), tower.min_patches, tower.merge)
    if kernel is not None:
        return TAPS[kernel]
    return 2 if tower.kind in TWO_TABLES else 1


def _most_antialiased(side: int, fewest: int, merge: int) -> int:
    """Most taps of an antialiased resize, for grids of at least `fewest` patches.

    A side of `size` patches takes up to 2 * side / size entries, as encode/positions.py has it.
    """
    taps = [2] + [ceil(2 * max(1, side / size)) for size in range(1, side + 1)]
    heights = range(merge, side + merge, merge)
    return max(taps[min(side, height)] * taps[min(side, max(merge, -(-fewest // height)))] for height in heights)
