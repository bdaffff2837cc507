"""The link to one server: how many range requests run at once, and how large they are, from what was measured.

A slow link has one request at a time, so that little is lost when it breaks off. A fast one has several large requests,
so that some carry data while others wait for their response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import ceil

MIB = 1 << 20
SMALLEST, LARGEST = MIB, 16 * MIB  # bytes of a range request
FIRST_PART, FIRST_PARALLEL = 4 * MIB, 2  # before anything is measured
MOST = 8  # requests at once
REQUEST_S = 2.0  # that a request should take
WINDOW_S = 3.0  # the throughput is that of the last seconds
SLOW, FAST = 1_000_000, 8_000_000  # bytes a second: below, one request at a time; above, at least four


class Link:
    """Counts what arrives and grants the requests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._arrived: deque[tuple[float, int]] = deque()  # (time, bytes)
        self._waits: deque[float] = deque(maxlen=8)  # seconds until a response began
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def arrived(self, n_bytes: int) -> None:
        """Count bytes of a response."""
        now = self._clock()
        self._arrived.append((now, n_bytes))
        while now - self._arrived[0][0] > WINDOW_S:
            self._arrived.popleft()

    def waited(self, seconds: float) -> None:
        """Note how long a response took to begin."""
        self._waits.append(seconds)

    @property
    def rate(self) -> float:
        """Bytes a second of the last seconds; 0: not measured yet."""
        if len(self._arrived) < 2:
            return 0.0
        span = self._arrived[-1][0] - self._arrived[0][0]
        return (sum(size for _, size in self._arrived) - self._arrived[0][1]) / span if span > 0 else 0.0

    @property
    def part(self) -> int:
        """Bytes of a range request: about REQUEST_S of one of those that run at once."""
        if not self.rate:
            return FIRST_PART
        wanted = self.rate * REQUEST_S / self.parallel
        return min(LARGEST, max(SMALLEST, ceil(wanted / SMALLEST) * SMALLEST))

    @property
    def parallel(self) -> int:
        """Requests at once."""
        rate = self.rate
        if not rate:
            return FIRST_PARALLEL
        if rate < SLOW:
            return 1
        least = 4 if rate >= FAST else 2
        wait = sorted(self._waits)[len(self._waits) // 2] if self._waits else 0.0
        return min(MOST, least + ceil(wait / REQUEST_S * least))

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Wait for a turn, first come, first served."""
        if self._running >= self.parallel or self._waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # granted at the same time
                    self._running -= 1
                    self._grant()
                raise
        else:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._grant()

    def _grant(self) -> None:
        while self._waiting and self._running < self.parallel:
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
                turn.set_result(None)
