"""Time slices of a device that serves one task at a time: first come, first served.

The scheduler may release the device while a part of a prompt is open: some of its slices were submitted, and not all
(prompt_slices.py). Until the last one was, no other list for prompts may run, because these lists share buffers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TIME_SLICE = 0.05  # seconds after which the holder should release the device if another task waits


class TimeSlices:
    """A lock that grants the device to one task at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()  # grants in the order of the requests
        self._waiting = 0
        self._waiting_beside = 0  # of them, those that can run beside an open part
        self._waiting_at_once = 0  # of them, those that do not wait until a time slice is over
        self._passed_over = 0  # of the others, those that gave their turn back because a part was open
        self._since = 0.0
        self._closed = asyncio.Event()  # no part is open
        self._closed.set()

    @asynccontextmanager
    async def acquire(self, *, beside_part: bool = False, at_once: bool = False) -> AsyncIterator[None]:
        """Wait for the device and hold it until the block ends.

        `beside_part`: the block runs no lists for prompts, so it need not wait for the end of an open part. `at_once`:
        nor for the end of the holder's time slice, because it is short.
        """
        self._waiting += 1
        self._waiting_beside += beside_part
        self._waiting_at_once += at_once
        passed_over = False
        try:
            await self._lock.acquire()
            while self.part_open and not beside_part:
                self._passed_over += not passed_over
                passed_over = True
                self._lock.release()
                await asyncio.sleep(0)
                await self._lock.acquire()  # after the scheduler, which has waited to go on with the part
        finally:
            self._waiting -= 1
            self._waiting_beside -= beside_part
            self._waiting_at_once -= at_once
            self._passed_over -= passed_over
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._lock.release()

    @property
    def wanted(self) -> bool:
        """Whether another task waits."""
        return self._waiting > 0

    def expired(self, ahead: float = 0.0) -> bool:
        """Whether the holder should release the device: its time is over, and another task waits that could begin.

        `ahead`: seconds that the device needs for what was submitted, or would be next.
        """
        if not (self._waiting_beside if self.part_open else self._waiting):
            return False
        return self._waiting_at_once > 0 or time.perf_counter() + ahead - self._since >= TIME_SLICE

    # -- parts of prompts

    @property
    def part_open(self) -> bool:
        """Whether a part of a prompt is open."""
        return not self._closed.is_set()

    @property
    def part_awaited(self) -> bool:
        """Whether no part is open, and a task that gave its turn back to one waits for the device."""
        return self._passed_over > 0 and not self.part_open

    def open_part(self) -> None:
        """Record that a part was begun whose other slices follow."""
        self._closed.clear()

    def close_part(self) -> None:
        """Record that all of the open part was submitted, or dropped."""
        self._closed.set()

    async def wait_for_part(self) -> None:
        """Wait until no part is open."""
        while self.part_open:
            await self._closed.wait()
