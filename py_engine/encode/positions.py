"""Positions of patches in a picture, or of rows on a line: turns of a rotation, and taps of a resized table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.encode.batch import Array
from py_engine.models.projectors import minimax_m3
from py_engine.models.projectors.position_table import Kernel
from py_engine.models.projectors.tower import Tower

OFFSET = 0.1  # of a grid's size
CUBIC = -0.75  # of the cubic convolution
COLUMN_FIRST = ("gemma4v", "kimivl", "kimik25", "llama4", "muse-glimmer", "step3vl")
FROM_ONE = ("llama4", "muse-glimmer")  # types whose rows and columns count from 1
BASES = {"gemma4v": 100.0}  # of the frequencies; 10000 for the others


def turns(tower: Tower, place: Array) -> Array:
    """Turns of each pair of a head in units of 2^-32, u32 (n, head_dim / 2). `place`: row and column of each patch.

    Half of the pairs turn by one coordinate, half by the other. Pixtral's two halves have alternate frequencies.
    """
    place = place + (tower.kind in FROM_ONE)
    if tower.kind == "minimax_m3":
        return _thirds(tower, place)
    base, dim = BASES.get(tower.kind, 10000.0), tower.head_dim
    frequencies = base ** (-4 * np.arange(dim // 4) / dim)
    odd = base ** (-2 / dim) if tower.kind in ("pixtral", "lightonocr") else 1.0
    coordinates = np.arange(place.max() + 1)[:, None]  # far fewer than patches
    first, second = (_turns(coordinates * frequencies * factor) for factor in (1.0, odd))
    row, column = place.T
    if tower.kind in COLUMN_FIRST:
        row, column = column, row
    return np.concatenate([first[row], second[column]], axis=1)


def _thirds(tower: Tower, place: Array) -> Array:
    """MiniMax-M3: pairs that turn by rows, as many by columns, and the others not at all."""
    third = minimax_m3.third(tower.head_dim)
    frequencies = 10000.0 ** (-2 * np.arange(third // 2) / third)
    by_row, by_column = (_turns(axis[:, None] * frequencies) for axis in place.T)
    return np.pad(np.concatenate([by_row, by_column], axis=1), ((0, 0), (0, tower.head_dim // 2 - third)))


def line_turns(places: Array, dim: int, base: float) -> Array:
    """Turns of each pair of `dim` values in units of 2^-32, u32 (n, dim / 2). `places` (n,): of rows on a line."""
    return _turns(places[:, None] * base ** (-2 * np.arange(dim // 2) / dim))


def _turns(angles: Array) -> Array:
    return (np.round(angles / (2 * np.pi) * 2**32).astype(np.int64) % 2**32).astype(np.uint32)


def resized(side: int, height: int, width: int, place: Array, kernel: Kernel) -> tuple[Array, Array]:
    """Taps in a table of side x side for a grid of patches: ids and weights, (n, taps)."""
    (rows, down), (columns, across) = (along(side, size, kernel) for size in (height, width))
    y, x = place.T
    ids = rows[y, :, None] * side + columns[x, None, :]
    weights = down[y, :, None] * across[x, None, :]
    return ids.reshape(len(place), -1), weights.reshape(len(place), -1)


def along(side: int, size: int, kernel: Kernel) -> tuple[Array, Array]:
    """Entries of a table's side that each place along a grid's side is made of, and their weights: (size, taps).

    "aligned": linear between aligned corners. Otherwise, the middles of both sides' ends are scaled: "antialiased":
    a triangle, as wide as two places where the grid is smaller than the table; "cubic": Keys' cubic convolution with
    PyTorch's coefficient; "linear"; "offset": linear, as HunyuanOCR scales them. Source: ggml's `interpolate`.
    """
    if kernel == "aligned":
        at = np.arange(size) * ((side - 1) / max(1, size - 1))
        return _nearest(at, side, 1.0, lambda distance: 1 - distance)
    at = (np.arange(size) + 0.5) * (side / (size + OFFSET * (kernel == "offset"))) - 0.5
    if kernel in ("linear", "offset"):
        first = np.floor(at).astype(np.int64).clip(0, side - 1)
        second = np.clip(at - first, 0, 1)
        return np.stack([first, (first + 1).clip(0, side - 1)], axis=1), np.stack([1 - second, second], axis=1)
    if kernel == "antialiased":
        reach = max(1.0, side / size)
        ids, weights = _nearest(at, side, reach, lambda distance: 1 - distance / reach)
        return ids, weights / weights.sum(axis=1, keepdims=True)
    first = np.floor(at).astype(np.int64)[:, None] + np.arange(-1, 3)
    return first.clip(0, side - 1), _cubic(np.abs(at[:, None] - first))


def _nearest(at: Array, side: int, reach: float, weigh: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The entries nearer than `reach`, weighted by their distance: (size, taps), taps the most of any place."""
    weights = np.maximum(0, weigh(np.abs(at[:, None] - np.arange(side))))
    count = int((weights != 0).sum(axis=1).max())
    ids = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]  # those that count come first
    return ids, np.take_along_axis(weights, ids, axis=1)


def _cubic(distance: Array) -> Array:
    """The weight of an entry at a distance of up to 2."""
    a = CUBIC
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, far)
