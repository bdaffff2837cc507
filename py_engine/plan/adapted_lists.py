"""Which lists compute a step: those with adapters where a sequence of the step has any, else the plain ones.

A model with adapters that no sequence of a step uses then runs as one without. Both kinds of lists give a sequence
without adapters the same values, bit by bit, because what adapters add to its products is zero (low_rank.py).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from py_engine.plan.adapters import NEVER
from py_engine.plan.lists import adapted
from py_engine.plan.plan import Plan


class AdaptedSequences:
    """The sequences that adapters change."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._sequences = plan, set[int]()

    def set(self, seq: int, scales: bytes) -> None:
        """Set a sequence's scales (Adapters.pack)."""
        if any(scale and first < NEVER for scale, first in struct.iter_unpack("<2f", scales)):
            self._sequences.add(seq)
        else:
            self._sequences.discard(seq)

    def lists(self, names: Iterable[str], sequences: Sequence[int]) -> list[str]:
        """The lists that do what these do, for a step of these sequences."""
        if self._sequences.isdisjoint(sequences):
            return list(names)
        known = self.plan.lists
        return [adapted(name) if adapted(name) in known else name for name in names]
