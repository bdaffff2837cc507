"""Decide for each answer whether drafting tokens by prompt lookup pays. draft_model.py decides on those of a model.

A draft is what followed the last MIN_MATCH tokens when they occurred before (prompt lookup decoding, Saxena 2023).
advance.wgsl drafts by the same rule. If a fraction p of the tokens is predicted, a step with a draft yields about
1 / (1 - p) tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from py_engine.plan.sampler_ops import MIN_MATCH
from py_engine.plan.shared import MAX_SMALL_BATCH

DECAY = 0.96  # per token, of the predicted fraction: the last 25 tokens weigh most
MARGIN = 1.15  # gain over the cost at which drafting is switched on
UNKNOWN_COST = 1.5  # steps that a drafting step is assumed to cost before one was timed


class Drafts(IntEnum):
    """How steps draft tokens."""

    NONE = 0
    LOOKUP = 1
    MODEL = 2


class DraftPolicy:
    """The draft decision of one sequence, updated with each token."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._last: tuple[int, ...] = ()
        self._predicted = 0.0
        self.add(ids)
        self._predicted = 0.0  # the prompt does not count
        self.on = False
        self.fits = True  # a whole draft still fits before the context ends

    def add(self, ids: Sequence[int]) -> None:
        """Record the next tokens of the sequence."""
        last, following = self._last, self._next
        for token in ids:
            if len(last) == MIN_MATCH:
                self._predicted = DECAY * self._predicted + (1 - DECAY) * (following.get(last) == token)
                following[last] = token
                last = (*last[1:], token)
            else:
                last = (*last, token)
        self._last = last

    def pays(self, plain_ms: float, drafting_ms: float) -> bool:
        """Whether to draft from here on.

        `plain_ms`: a step of one token; `drafting_ms`: a step with a draft; 0: not measured yet.
        """
        cost = drafting_ms / plain_ms if plain_ms and drafting_ms else UNKNOWN_COST
        gain = min(1 / max(1 - self._predicted, 1e-6), MAX_SMALL_BATCH)
        self.on = self.fits and gain > cost * (1 if self.on else MARGIN)
        return self.on
