"""Random numbers of a seed, as arrays. They are made of Python's own generator: numpy's is a module of its own, which
takes as long to fetch and start as a quarter of numpy.
"""

import random
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from py_engine.cpu.call import Array


class Numbers:
    """Independent numbers; equal seeds give equal arrays."""

    def __init__(self, seed: int) -> None:
        # Seeds 1 and 2 themselves draw logits whose best token survives a wrong subgroup shuffle.
        self._bytes = random.Random(seed + 30).randbytes

    def integers(
        self, low: int, high: int | None = None, size: int | tuple[int, ...] = (), dtype: DTypeLike = np.int64
    ) -> Any:
        """Integers in [low, high), or in [0, low)."""
        low, high = (0, low) if high is None else (low, high)
        return (self._words(size) % np.uint64(high - low)).astype(dtype) + np.array(low, dtype)

    def uniform(self, low: float, high: float, size: int | tuple[int, ...] = ()) -> Any:
        """Evenly distributed f64 in [low, high)."""
        return low + (high - low) * (self._words(size) >> np.uint64(11)) * 2.0**-53

    def standard_normal(self, size: int) -> Array:
        """Normally distributed f64, of mean 0 and deviation 1 (Box and Muller)."""
        distance, angle = self.uniform(0, 1, (2, size))
        found: Array = np.sqrt(-2 * np.log1p(-distance)) * np.cos(2 * np.pi * angle)
        return found

    def _words(self, size: int | tuple[int, ...]) -> Array:
        count = size if isinstance(size, int) else prod(size)
        return np.frombuffer(self._bytes(8 * count), np.uint64).reshape(size)
