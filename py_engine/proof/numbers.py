"""Random numbers of a seed, as arrays. They are made of Python's own generator: numpy's is a module of its own, which
takes as long to fetch and start as a quarter of numpy.
"""

import random
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from py_engine.cpu.call import Array

TERMS = 6  # of a sum that is nearly normally distributed


class Numbers:
    """Independent numbers; equal seeds give equal arrays."""

    def __init__(self, seed: int) -> None:
        # Seeds 1 and 2 themselves draw logits whose best token survives a wrong subgroup shuffle.
        self._bytes = random.Random(seed + 30).randbytes

    def integers(
        self, low: int, high: int | None = None, size: int | tuple[int, ...] = (), dtype: DTypeLike = np.int64
    ) -> Any:
        """Integers in [low, high), or in [0, low): fewer than 2**32."""
        low, high = (0, low) if high is None else (low, high)
        kind = np.dtype(dtype)
        if low == 0 and high == 1 << 8 * kind.itemsize:  # all bits are random
            return self._words(size, kind).copy()
        return (self._words(size, np.uint32) % np.uint32(high - low)).astype(kind) + kind.type(low)

    def uniform(self, low: float, high: float, size: int | tuple[int, ...] = ()) -> Any:
        """Evenly distributed f64 in [low, high)."""
        return low + (high - low) * (self._words(size, np.uint64) >> np.uint64(11)) * 2.0**-53

    def standard_normal(self, size: int) -> Array:
        """Nearly normally distributed f32, of mean 0 and deviation 1: sums of uniform numbers are made fast."""
        sums = self._words((TERMS, size), np.uint16).sum(axis=0, dtype=np.float32)
        found: Array = (sums - np.float32(TERMS * 2**15)) / np.float32(2**16 * (TERMS / 12) ** 0.5)
        return found

    def _words(self, size: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        count = size if isinstance(size, int) else prod(size)
        return np.frombuffer(self._bytes(np.dtype(dtype).itemsize * count), dtype).reshape(size)
