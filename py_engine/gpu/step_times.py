"""How long the steps of each kind of submit take, from the times at which their results came."""

from __future__ import annotations

from collections.abc import Hashable

SMOOTHING = 0.3  # weight of the newest time


class StepTimes:
    """Milliseconds of a step, by the submits' kind."""

    def __init__(self) -> None:
        self._times: dict[Hashable, float] = {}

    def add(self, kind: Hashable, ms: float, queued: bool) -> None:
        """Add the time of a step. Unless another submit ran before it (`queued`), it includes waiting.

        Waiting makes a time longer. So one that is shorter than the estimate counts anyway: after a delay, the estimate
        may be so long that one submit seems enough work for the device, and no submit is queued any more.
        """
        before = self._times.get(kind)
        if queued:
            self._times[kind] = ms if before is None else (1 - SMOOTHING) * before + SMOOTHING * ms
        elif before is not None and ms < before:
            self._times[kind] = ms

    def ms(self, kind: Hashable) -> float:
        """Milliseconds of a step; 0: not measured yet."""
        return self._times.get(kind, 0.0)

    def steps_in(self, kind: Hashable, ms: float, most: int) -> int:
        """Steps that take about `ms`; at least 1, at most `most`."""
        step = self.ms(kind)
        if not step:
            return 1
        # Where the browser reports submits late, a step alone in one seems to take twice its time, and stayed alone.
        least = 2 if step <= 2 * ms else 1
        return max(least, min(most, int(ms / step)))
