"""Positions of patches in a picture: turns of a rotation, and taps of a position table of another size."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array
from py_engine.models.projectors.tower import Tower

BASES = {"gemma4v": 100.0}  # of the frequencies; 10000 for the others


def turns(tower: Tower, place: Array) -> Array:
    """Turns of each pair of a head in units of 2^-32, u32 (n, head_dim / 2). `place`: row and column of each patch.

    Half of the pairs turn by one coordinate, half by the other. Pixtral's two halves have alternate frequencies.
    """
    base, dim = BASES.get(tower.kind, 10000.0), tower.head_dim
    frequencies = base ** (-4 * np.arange(dim // 4) / dim)
    odd = base ** (-2 / dim) if tower.kind in ("pixtral", "lightonocr") else 1.0
    coordinates = np.arange(place.max() + 1)[:, None]  # far fewer than patches
    first, second = (_turns(coordinates * frequencies * factor) for factor in (1.0, odd))
    row, column = place.T
    if tower.kind == "gemma4v":
        row, column = column, row
    return np.concatenate([first[row], second[column]], axis=1)


def _turns(angles: Array) -> Array:
    return (np.round(angles / (2 * np.pi) * 2**32).astype(np.int64) % 2**32).astype(np.uint32)


def resized(side: int, height: int, width: int, place: Array, *, aligned: bool) -> tuple[Array, Array]:
    """Bilinear taps in a table of side x side for a grid of patches: ids and weights, (n, taps).

    `aligned`: corners are aligned; else a smaller grid averages over more than two entries (antialiasing).
    """
    kernel = _aligned if aligned else _antialiased
    rows, columns = kernel(side, height)[place[:, 0]], kernel(side, width)[place[:, 1]]  # (n, side)
    weights = (rows[:, :, None] * columns[:, None, :]).reshape(len(place), -1)
    count = int((weights != 0).sum(axis=1).max())
    ids = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]  # the taps that count come first
    return ids, np.take_along_axis(weights, ids, axis=1)


def _aligned(side: int, size: int) -> Array:
    """(size, side) weights of linear interpolation between aligned corners."""
    at = np.arange(size) * ((side - 1) / max(1, size - 1))
    return np.maximum(0, 1 - np.abs(at[:, None] - np.arange(side)[None]))


def _antialiased(side: int, size: int) -> Array:
    """(size, side) weights of a triangle as wide as two entries, or as two patches where these are larger."""
    reach = max(1.0, side / size)
    at = (np.arange(size) + 0.5) * (side / size) - 0.5
    weights = np.maximum(0, 1 - np.abs(at[:, None] - np.arange(side)[None]) / reach)
    return weights / weights.sum(axis=1, keepdims=True)
