"""Taps of convolutions with a kernel of 3, or 3 x 3, padded by 1: the rows of the input that a result is made of."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array


def line_taps(count: int, size: int, stride: int) -> tuple[Array, Array]:
    """Taps over a line of `size` places, and whether each is inside of it: (count, 3)."""
    ids = np.arange(count)[:, None] * stride + np.arange(-1, 2)
    inside = (ids >= 0) & (ids < size)
    return np.where(inside, ids, 0), inside


def plane_taps(
    parts: int, rows: int, columns: int, stride: int = 2, *, rows_first: bool = False
) -> tuple[Array, Array, int, int]:
    """Taps over `parts` planes of rows x columns, and whether each is inside: (n, 9). Also a result's rows and columns.

    The kernel's places are (column, row), or with `rows_first` (row, column).
    """
    height, width = (-(-size // stride) for size in (rows, columns))
    (y, y_inside), (x, x_inside) = line_taps(height, rows, stride), line_taps(width, columns, stride)
    place = y[:, None, None, :] * columns + x[None, :, :, None]  # (height, width, 3 columns, 3 rows)
    inside = y_inside[:, None, None, :] & x_inside[None, :, :, None]
    if rows_first:
        place, inside = place.swapaxes(2, 3), inside.swapaxes(2, 3)
    ids = np.arange(parts)[:, None, None] * rows * columns + place.reshape(height * width, 9)
    weights = np.broadcast_to(inside.reshape(height * width, 9), ids.shape)
    return ids.reshape(-1, 9), weights.reshape(-1, 9), height, width
