"""The arguments of one kernel call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from py_engine.plan.pages import PREFIX_WORDS, RECORD_WORDS, SEGMENT_WORDS

Array = NDArray[Any]  # float32, float16 or uint32


@dataclass
class Call:
    """One op on one batch: the op's params and consts, and its buffers, which the kernel writes in place."""

    params: dict[str, Any]
    consts: dict[str, Any]
    buffers: dict[str, Array]
    states: Array  # (tokens of a small batch, 4): pos, n, resampled, seq
    tables: Array  # block tables of all page groups and sequences, then the segments of a packed batch
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
        if anchor := self.params.get("ANCHOR", 0):
            return self.tables[anchor + self.sequences].astype(np.int64)
        return self.token_indices + self.prefixes[:, 1]

    @property
    def token_indices(self) -> Array:
        """Where every token is among those of its sequence, which have no gaps, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 0].astype(np.int64)
        return np.arange(self.pos, self.pos + self.n)

    @property
    def prefixes(self) -> Array:
        """Every token's prefix, int64 (n, PREFIX_WORDS): its length, the gaps before the token."""
        if not (first := self.params.get("PREFIXES", 0)):
            return np.zeros((self.n, PREFIX_WORDS), np.int64)
        return self.tables[first : first + PREFIX_WORDS * self.n].astype(np.int64).reshape(self.n, PREFIX_WORDS)

    @property
    def sequences(self) -> Array:
        """Every token's sequence, int64 (n,)."""
        if self.params.get("STATE_PER_TOKEN"):
            return self.states[: self.n, 3].astype(np.int64)
        return np.full(self.n, self.seq)

    @property
    def segments(self) -> Array:
        """Every token's segment, int64 (n, SEGMENT_WORDS): first position, end, row of the result."""
        if not self.params.get("PACKED"):
            return np.tile((0, self.pos + self.n, 0), (self.n, 1))
        first = self.params["SEGMENTS"]
        return self.tables[first : first + SEGMENT_WORDS * self.n].astype(np.int64).reshape(self.n, SEGMENT_WORDS)

    def segment_parts(self) -> list[tuple[int, int, int, int]]:
        """The batch's part of each segment: (first token, end, the segment's first position, row of the result).

        Tokens that see up to different ends are parts of their own.
        """
        segments = self.segments
        starts = [m for m in range(self.n) if not m or (segments[m, :2] != segments[m - 1, :2]).any()]
        ends = [*starts[1:], self.n]
        return [(m, end, int(segments[m, 0]), int(segments[m, 2])) for m, end in zip(starts, ends, strict=True)]

    @property
    def offsets(self) -> Array:
        """Every token's position within its own sequence, int64 (n,)."""
        return self.positions - self.segments[:, 0]

    @property
    def media_records(self) -> Array:
        """Of a batch with media, every token's record, int64 (n, 5): end of what it sees, rotary positions."""
        first = self.params["RECORDS"]
        return self.tables[first : first + RECORD_WORDS * self.n].astype(np.int64).reshape(self.n, RECORD_WORDS)

    @property
    def rotary_positions(self) -> Array:
        """The positions by which every token's pairs are rotated, int64 (n, 1), or (n, pairs) in a batch with media."""
        if not self.params.get("MROPE"):
            return self.offsets[:, None]
        if self.params.get("MEDIA"):
            axes = self["rope_freqs"][self.params["ROPE_DIM"] // 2 :][: self.params["ROPE_DIM"] // 2]
            return self.media_records[:, 1 + axes.astype(np.int64)]
        shifts = self.tables[self.params["SHIFTS"] + self.sequences].view(np.int32)
        return (self.offsets + shifts)[:, None]

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
