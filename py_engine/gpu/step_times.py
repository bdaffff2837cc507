"""Estimates how long a step takes in each kind of submit, from the times between results.

A batch of a prompt has a kind for each power of two of its tokens: one of few tokens takes up to ten times as long per
token as one of many.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any, TypeGuard

SMOOTHING = 0.3  # weight of the newest time in the estimate
FASTER = 0.7  # weight of a shorter newest time, where those before may be too long
MOST = 3.0  # times the estimate: a longer step counts only as this, the first time, as it may have been delayed
DRAFTS = 1.1  # times a plain step, which a step with drafts takes at least
GROWTH = 1.02  # of the shortest time per submit: what is short for one context is not for a longer one
MORE = 1.4  # how many times longer than the smallest batch of a prompt a larger one may take
RETRIED = 0.1  # weight of a prompt's time per token in that of batches twice as large, where theirs is longer
PROMPT = "prompt"
ONE, ONE_DRAFTING = (1, False, 0), (1, True, 0)  # the kinds of one sequence's steps
TIMED_TOKENS = 16  # tokens timed together, because the browser reports finished work in bursts


def prompt_kind(n: int) -> tuple[str, int]:
    """The kind of a batch of n tokens of a prompt, whose step is a token: (PROMPT, e), 2^(e - 1) < n <= 2^e."""
    return PROMPT, (n - 1).bit_length()


def _of_prompt(kind: Any) -> TypeGuard[tuple[str, int]]:
    return bool(kind[0] == PROMPT)


class StepTimes:
    """Estimated milliseconds of a step, by the kind of submit."""

    def __init__(self) -> None:
        self._times: dict[Hashable, float] = {}
        self._shortest: dict[Hashable, float] = {}
        self._newest: dict[Hashable, float] = {}  # of prompts
        self._undelayed: dict[Hashable, float] = {}  # of prompts: the shortest time that two results in turn confirm
        self._queued: set[Hashable] = set()  # kinds that were measured without waiting
        self._tokens, self._ms = 0, 0.0  # of add_waiting() since it last added a time
        self._delayed: set[Hashable] = set()  # kinds whose newest step took more than MOST times the estimate

    def add(self, kind: Hashable, ms: float, queued: bool, *, falls: bool = False) -> None:
        """Add the measured milliseconds of a step. `queued`: the device went on to it from the submit before.

        `falls`: a shorter time than the estimate counts more, because the first ones of a kind are too long.

        The time of a submit that was not queued includes waiting for the host, so it only counts where it is shorter
        than the estimate. It has to count there: after a delay the estimate may be so long that the scheduler sends
        one submit at a time. Then none is queued, and the estimate would never recover. A prompt's batch is often
        alone, so it also counts where nothing is known: too small parts of prompts are better than too large ones.
        """
        before = self._times.get(kind)
        if _of_prompt(kind):
            # A result that came together with the one before looks too short, but follows one that looks too long.
            confirmed = max(ms, self._newest.get(kind, inf))
            self._undelayed[kind] = min(confirmed, self._undelayed.get(kind, inf))
            self._newest[kind] = ms
            # A delay made those times longer. Without this, batches of that size would not be tried again.
            larger = PROMPT, kind[1] + 1
            if (longer := self._times.get(larger, 0.0)) > ms:
                self._times[larger] = longer + RETRIED * (ms - longer)
        self._shortest[kind] = min(ms, GROWTH * self._shortest.get(kind, ms))
        if queued:  # the first one takes the place of what waited
            known = before if kind in self._queued else None
            self._queued.add(kind)
            if known is not None:
                newest = self._without_delay(kind, ms, known)
                weight = FASTER if falls and newest < known else SMOOTHING
                ms = (1 - weight) * known + weight * newest
            self._times[kind] = ms
        elif ms < before if before is not None else _of_prompt(kind):
            self._times[kind] = ms

    def add_waiting(self, tokens: int, ms: float) -> None:
        """Add the time of tokens of one sequence, which may include waits for the host."""
        self._tokens, self._ms = self._tokens + tokens, self._ms + ms
        if self._tokens >= TIMED_TOKENS:
            per_token, before = self._ms / self._tokens, self.plain_ms(ONE, ONE_DRAFTING)
            if not before or per_token < before:
                self.add(ONE, per_token, queued=True)
            self._tokens, self._ms = 0, 0.0

    def _without_delay(self, kind: Hashable, ms: float, known: float) -> float:
        """A newest time, or the most that it counts if it is the first one after the estimate `known` to be so long.

        Not of prompts: where a result came with the one before, their estimate must soon be right again.
        """
        if ms <= MOST * known or kind in self._delayed or _of_prompt(kind):
            self._delayed.discard(kind)
            return ms
        self._delayed.add(kind)
        return MOST * known

    def ms(self, kind: Hashable) -> float:
        """Estimated milliseconds of a step; 0: not measured yet."""
        return self._times.get(kind, 0.0)

    def plain_ms(self, kind: Hashable, drafting: Hashable) -> float:
        """ms() of a plain step, given the kind that has drafts as well.

        While all steps have drafts, a plain one's time may be out of date, and is not measured again. If it is longer
        than a step with drafts, it is.
        """
        plain, longer = self.ms(kind), self.ms(drafting)
        return min(plain, longer / DRAFTS) if longer else plain

    def shortest(self, kind: Hashable) -> float:
        """Milliseconds that a step takes at least; 0: not measured yet.

        A lower bound: to sleep for so long never delays a result. The estimate is none: where a result is only seen
        after a sleep, the estimate follows the sleep.
        """
        return self._shortest.get(kind, 0.0)

    def steps_in(self, kind: Hashable, ms: float, most: int) -> int:
        """Steps that take about `ms`; at least 1, at most `most`."""
        step = self.ms(kind)
        if not step:
            return 1
        # A browser that reports submits late makes a submit of one step look twice as long. With two steps or more,
        # the next estimate is right again.
        least = 2 if step <= 2 * ms else 1
        return max(least, min(most, int(ms / step)))

    # -- prompts

    def _batches(self) -> list[tuple[int, float]]:
        """(tokens, milliseconds) of the largest batch of each kind that was measured, in order.

        What waited for the host or for a compilation looks too long. Such a batch takes no longer than a larger one,
        and no more time per token than a smaller one.
        """
        kinds = sorted(kind[1] for kind in self._times if _of_prompt(kind))
        found = [(1 << e, self._times[PROMPT, e] * (1 << e)) for e in kinds]
        waited = [(PROMPT, e) not in self._queued for e in kinds]
        for i in range(len(found) - 2, -1, -1):
            if waited[i]:
                found[i] = found[i][0], min(found[i][1], found[i + 1][1])
        for i in range(1, len(found)):
            if waited[i]:
                (smaller, ms), (n, most) = found[i - 1], found[i]
                found[i] = n, min(most, ms * n / smaller)
        return found

    def prompt_token_ms(self) -> float:
        """Milliseconds of a token in the longest batches measured, when nothing else delayed them; 0: none was.

        Prefixes are stored if to compute them takes longer. Where storing delayed the prompts that are measured, an
        average would find prefixes of any GPU worth storing.
        """
        batches = self._batches()
        if not batches:
            return 0.0
        n, ms = batches[-1]
        return min(ms / n, self._undelayed.get(prompt_kind(n), ms / n))

    def prompt_ms(self, n: int) -> float:
        """Estimated milliseconds of a batch of n tokens; 0: none was measured."""
        return _between(self._batches(), n)

    def prompt_timed(self, n: int) -> bool:
        """Whether a batch of about n tokens was timed that did not wait for the host."""
        return prompt_kind(n) in self._queued

    def prompt_tokens_in(self, ms: float, least: int, most: int) -> int:
        """Tokens of a batch that takes about `ms`, up to `most`: a multiple of `least`, of 4 `least` if it is many.

        It may take MORE times what `least` tokens take, if that exceeds `ms`. A batch twice as large is tried once,
        in a queue, where one fits into `ms` and the time of the larger is not known well.
        """
        batches = self._batches()
        sizes = (most, *range(most // (4 * least) * 4 * least, 8 * least, -4 * least))
        sizes = (*sizes, *range(min(most // least, 8) * least, least, -least))
        if prompt_kind(least) in self._queued:
            ms = max(ms, MORE * _between(batches, least))
        n = next((n for n in sizes if _between(batches, n) <= ms), least)
        larger = min(most, 2 << (n.bit_length() - 1))
        if prompt_kind(larger) in self._queued or _between(batches, n) > ms:
            return n
        return max(n, larger)


def _between(batches: list[tuple[int, float]], n: int) -> float:
    """Milliseconds of n tokens, interpolated between (tokens, milliseconds); 0 if there are none.

    A batch shorter than the first takes as long, at most; one longer than the last takes as long per token.
    """
    if not batches:
        return 0.0
    before = (0, batches[0][1])
    for size, ms in batches:
        if n <= size:
            return before[1] + (ms - before[1]) * (n - before[0]) / (size - before[0])
        before = size, ms
    return before[1] * n / before[0]
