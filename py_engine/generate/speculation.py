"""Decide whether drafting tokens by prompt lookup pays. draft_model.py decides on those of a model.

A draft is what followed the last MIN_MATCH tokens when they occurred before (prompt lookup decoding, Saxena 2023).
advance.wgsl drafts by the same rule. If a fraction p of a sequence's tokens is predicted, its draft of n tokens yields
p + p^2 + ... + p^n more of them a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from py_engine.plan.sampler_ops import MIN_MATCH
from py_engine.plan.shared_constants import SHORT_BATCH

DECAY = 0.96  # per token, of the predicted fraction: the last 25 tokens weigh most
MARGIN = 1.15  # gain over the cost at which drafting is switched on
MOST_PROMPT = 1 << 15  # a prompt's last tokens that predict: these take 25 ms beside the other answers
UNKNOWN_ROW_COST = 1 / 14  # steps that each more row of a small batch is assumed to cost before a step was timed


class Drafts(IntEnum):
    """How steps draft tokens."""

    NONE = 0
    LOOKUP = 1
    MODEL = 2


class Predictions:
    """How many of one sequence's tokens prompt lookup predicts."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._last: tuple[int, ...] = ()
        self.fraction = 0.0  # of the last tokens
        self.add(ids[-MOST_PROMPT:])
        self.fraction = 0.0  # the prompt does not count

    def add(self, ids: Sequence[int]) -> None:
        """Record the next tokens of the sequence."""
        last, following = self._last, self._next
        for token in ids:
            if len(last) == MIN_MATCH:
                self.fraction = DECAY * self.fraction + (1 - DECAY) * (following.get(last) == token)
                following[last] = token
                last = (*last[1:], token)
            else:
                last = (*last, token)
        self._last = last


def lookup_gain(fractions: Sequence[float], plain_ms: float, drafting_ms: float) -> float:
    """How many times as fast sequences that share steps are with drafts.

    `fractions`: of each one's tokens that are predicted. `plain_ms`: a step of a token each; `drafting_ms`: a step with
    drafts; 0: not measured yet.
    """
    count = len(fractions)
    unknown = 1 + UNKNOWN_ROW_COST * (SHORT_BATCH - count)
    cost = drafting_ms / plain_ms if plain_ms and drafting_ms else unknown
    return _tokens(fractions) / count / cost


def drafts_pay(gain: float, other: float = 1.0, *, on: bool) -> bool:
    """Whether sequences are to draft so from here on. `other`: the gain of the other way; `on`: they draft so now."""
    return gain > other * (1 if on else MARGIN)


def _tokens(fractions: Sequence[float]) -> float:
    """The tokens that a step with drafts yields at most: as if the likeliest draft tokens got the rows that are left.

    draft_rows.wgsl gives the rows in turn, which is less where one sequence's drafts are much better than another's.
    """
    found, chances = float(len(fractions)), list(fractions)
    for _ in range(SHORT_BATCH - len(fractions)):
        best = max(range(len(chances)), key=chances.__getitem__)
        found += chances[best]
        chances[best] *= fractions[best]
    return found
