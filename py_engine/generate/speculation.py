"""Would guessing the next tokens from the text before pay? Kept for every answer, whether it is done or not.

A guess is what followed the last LEAST_ALIKE tokens when they were there before (prompt lookup, Saxena 2023; the device
guesses the same way, in advance.wgsl). Where a share of tokens is foretold, a step of guessing gives 1 / (1 - share)
tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.plan.ops import FEW
from py_engine.plan.sampler_ops import LEAST_ALIKE

MEMORY = 0.96  # of the share of foretold tokens: the last 25 count most
MARGIN = 1.15  # the least gain that changing the way of generating is worth


class Guesses:
    """One sequence's tokens."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._last: tuple[int, ...] = ()
        self._foretold = 0.0
        self._see(ids)
        self._foretold = 0.0  # of the prompt it does not count
        self.on = False
        self.room = True  # for a whole step of guesses before the context ends

    def _see(self, ids: Sequence[int]) -> None:
        last, following = self._last, self._next
        for token in ids:
            if len(last) == LEAST_ALIKE:
                self._foretold = MEMORY * self._foretold + (1 - MEMORY) * (following.get(last) == token)
                following[last] = token
                last = (*last[1:], token)
            else:
                last = (*last, token)
        self._last = last

    def add(self, ids: Sequence[int]) -> None:
        """The next tokens."""
        self._see(ids)

    def pay(self, plain_ms: float, guessing_ms: float) -> bool:
        """Whether to guess from here on. `plain_ms` of a step of one token, `guessing_ms` of one that guesses; 0: not
        known.
        """
        price = guessing_ms / plain_ms if plain_ms and guessing_ms else 1.5
        gain = min(1 / max(1 - self._foretold, 1e-6), FEW)
        self.on = self.room and gain > price * (1 if self.on else MARGIN)
        return self.on
