"""Time slices of a device that serves one task at a time: first come, first served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SLICE = 0.05  # seconds after which the holder should release the device if another task waits


class TimeSlices:
    """A lock that grants the device to one task at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # grants in the order of the requests
        self._waiting = 0
        self._since = 0.0

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Wait for the device and hold it until the block ends."""
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

    @property
    def wanted(self) -> bool:
        """Whether another task waits."""
        return self._waiting > 0

    def expired(self) -> bool:
        """Whether the holder should release the device: its slice is over and another task waits."""
        return self._waiting > 0 and time.perf_counter() - self._since >= SLICE
