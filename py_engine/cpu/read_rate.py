"""The time in which numpy reads a matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def product_ns(rows: int, repeats: int, clock: Callable[[], int]) -> float:
    """Nanoseconds of the fastest of some products of a float32 matrix (rows, rows) and a vector."""
    matrix, vector = np.ones((rows, rows), np.float32), np.ones(rows, np.float32)
    matrix @ vector
    times = []
    for _ in range(repeats):
        started = clock()
        matrix @ vector
        times.append(clock() - started)
    return float(max(1, min(times)))
