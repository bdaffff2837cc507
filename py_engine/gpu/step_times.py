"""Estimates how long a step takes in each kind of submit, from the times between results."""

from __future__ import annotations

from collections.abc import Hashable

SMOOTHING = 0.3  # weight of the newest time in the estimate
GROWTH = 1.02  # of the shortest time per submit: what is short for one context is not for a longer one


class StepTimes:
    """Estimated milliseconds of a step, by the kind of submit."""

    def __init__(self) -> None:
        self._times: dict[Hashable, float] = {}
        self._shortest: dict[Hashable, float] = {}

    def add(self, kind: Hashable, ms: float, queued: bool) -> None:
        """Add the measured milliseconds of a step. `queued`: the device went on to it from the submit before.

        The time of a submit that was not queued includes waiting for the host, so it only counts where it is shorter
        than the estimate. It has to count there: after a delay the estimate may be so long that the scheduler sends
        one submit at a time. Then none is queued, and the estimate would never recover.
        """
        before = self._times.get(kind)
        self._shortest[kind] = min(ms, GROWTH * self._shortest.get(kind, ms))
        if queued:
            self._times[kind] = ms if before is None else (1 - SMOOTHING) * before + SMOOTHING * ms
        elif before is not None and ms < before:
            self._times[kind] = ms

    def ms(self, kind: Hashable) -> float:
        """Estimated milliseconds of a step; 0: not measured yet."""
        return self._times.get(kind, 0.0)

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
