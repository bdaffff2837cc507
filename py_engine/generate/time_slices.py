"""A device that serves one thing at a time, shared out in turns: first come, first served, a slice each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SLICE = 0.05  # seconds after which a turn should end if somebody waits


class Slices:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # passes the turn on in the order of asking
        self._waiting = 0
        self._since = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn, and have it until the block ends."""
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._lock.release()

    def over(self) -> bool:
        """Whether the one who has the turn has had his share, and others wait."""
        return self._waiting > 0 and time.perf_counter() - self._since >= SLICE
