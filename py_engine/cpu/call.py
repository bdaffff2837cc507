"""The arguments of one kernel call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32, float16 or uint32


@dataclass
class Call:
    """One op on one batch: the op's params and consts, and its buffers, which the kernel writes in place."""

    params: dict[str, Any]
    consts: dict[str, Any]
    buffers: dict[str, Array]
    states: Array  # (tokens of a small batch, 4): pos, n, resampled, seq
    tables: Array  # block tables of all page groups and sequences
    grid: tuple[Any, Any, Any]

    def __getitem__(self, name: str) -> Array:
        return self.buffers[name]

    @property
    def pos(self) -> int:
        return int(self.states[0, 0])

    @property
    def n(self) -> int:
        return int(self.states[0, 1])

    @property
    def seq(self) -> int:
        return int(self.states[0, 3])

    @property
    def positions(self) -> Array:
        """Every token's position, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 0].astype(np.int64)
        return np.arange(self.pos, self.pos + self.n)

    @property
    def sequences(self) -> Array:
        """Every token's sequence, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 3].astype(np.int64)
        return np.full(self.n, self.seq)

    def pages_of(self, positions: Array, sequences: Array | int) -> Array:
        """The pages of a cache that hold (position, sequence) pairs."""
        if not self.params["PAGE"]:
            return positions * 0
        return self.tables[
            self.params["TABLE"] + sequences * self.params["PAGES"] + positions // self.params["PAGE"]
        ].astype(np.int64)

    def rows_of(self, positions: Array, sequences: Array | int) -> Array:
        """The cache rows of (position, sequence) pairs."""
        page = self.params["PAGE"]
        return self.pages_of(positions, sequences) * page + positions % page if page else positions
