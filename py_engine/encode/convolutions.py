"""Taps of convolutions: the rows of the input that a result is made of."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array


def line_taps(count: int, size: int, stride: int) -> tuple[Array, Array]:
    """Taps of a kernel of 3, padded by 1, over a line of `size` places, and whether each is inside: (count, 3)."""
    ids = np.arange(count)[:, None] * stride + np.arange(-1, 2)
    inside = (ids >= 0) & (ids < size)
    return np.where(inside, ids, 0), inside


def plane_taps(
    parts: int, rows: int, columns: int, stride: int = 2, *, rows_first: bool = False
) -> tuple[Array, Array, int, int]:
    """Taps of a kernel of 3 x 3, padded by 1, over `parts` planes, and whether each is inside of its plane: (n, 9).

    Also a result's rows and columns. The kernel's places are (column, row), or with `rows_first` (row, column).
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


def same_taps(kernel: int, stride: int, size: int) -> tuple[Array, Array]:
    """Taps of a square kernel over a plane of size x size places, and whether each is inside: (n, kernel^2).

    An odd padding has one place more after the plane than before it. n = ceil(size / stride)^2.
    """
    count = -(-size // stride)
    before = max(0, (count - 1) * stride + kernel - size) // 2
    line = np.arange(count)[:, None] * stride + np.arange(kernel) - before
    inside = (line >= 0) & (line < size)
    line = np.where(inside, line, 0)
    ids = line[:, None, :, None] * size + line[None, :, None, :]
    both = inside[:, None, :, None] & inside[None, :, None, :]
    return ids.reshape(-1, kernel**2), both.reshape(-1, kernel**2)
