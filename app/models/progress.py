"""Reports the progress of loads and downloads."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

OnProgress = Callable[[str, int, int], None]  # stage, bytes loaded, total bytes


class Progress:
    """A progress reporter: about ten reports a second, with the speed of the last seconds in bytes per second."""

    INTERVAL = 0.1
    WINDOW = 3.0

    def __init__(self, report: Callable[[dict[str, Any]], None], now: Callable[[], float] = time.perf_counter) -> None:
        self._report = report
        self._now = now
        self._stage, self._total = "", 0
        self._sent = 0.0
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, stage: str, loaded: int, total: int) -> None:
        now = self._now()
        if stage != self._stage or (self._seen and loaded < self._seen[-1][1]):
            self._stage, self._sent = stage, -self.INTERVAL
            self._seen.clear()
        self._total = total
        self._seen.append((now, loaded))
        while len(self._seen) > 2 and now - self._seen[0][0] > self.WINDOW:
            self._seen.popleft()
        if now - self._sent < self.INTERVAL and loaded < total:
            return
        self._sent = now
        start, before = self._seen[0]
        speed = (loaded - before) / (now - start) if now > start else 0.0
        self._report({"stage": stage, "loaded": loaded, "total": total, "speed": speed})

    def repeat(self) -> None:
        """Report the newest bytes again: where none have come since, the speed falls to zero."""
        if self._seen:
            self(self._stage, self._seen[-1][1], self._total)
