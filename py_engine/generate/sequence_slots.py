"""Sequence slots: one KV cache per request that runs side by side with others.

A request gets the free slot whose cache holds the longest prefix of its prompt. The caches start with capacity for one
sequence and grow when several requests come at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from py_engine.errors import WispError
from py_engine.generate.kv_cache import KvCache


@dataclass
class SequenceSlot:
    """One sequence: its number on the device, and what its cache holds."""

    number: int
    cache: KvCache
    busy: bool = False
    computed: int = 0  # tokens of the current request whose keys and values are in the cache
    last_used: int = 0  # the request's number, for least recently used


@dataclass
class SequenceSlots:
    """Up to `most` slots. `grow(count)` reserves caches for `count` sequences; False: not now."""

    ring_slack: int
    most: int
    grow: Callable[[int], Awaitable[bool]]
    all: list[SequenceSlot] = field(default_factory=list)
    _requests: int = 0
    _growing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._add(1)

    def _add(self, count: int) -> None:
        while len(self.all) < count:
            self.all.append(SequenceSlot(len(self.all), KvCache(self.ring_slack)))

    @property
    def first(self) -> SequenceSlot:
        """The slot that always exists. Callers that have the engine to themselves use it."""
        return self.all[0]

    @asynccontextmanager
    async def acquire(self, ids: list[int]) -> AsyncIterator[SequenceSlot]:
        """Hold a slot for a request with prompt `ids`. Waits while all slots are busy and no more can be added."""
        while not (slot := self._best_free(ids)):
            if not await self._grow():
                await self._wait()
        self._requests += 1
        slot.busy, slot.last_used = True, self._requests
        try:
            yield slot
        finally:
            slot.busy = False
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    def _best_free(self, ids: list[int]) -> SequenceSlot | None:
        free = [slot for slot in self.all if not slot.busy]
        return max(free, key=lambda slot: (slot.cache.common_prefix(ids), -slot.last_used), default=None)

    async def _grow(self) -> bool:
        """Double the number of slots. False when the limit is reached or memory is refused."""
        async with self._growing:
            if any(not slot.busy for slot in self.all):
                return True
            count = min(2 * len(self.all), self.most)
            if count == len(self.all):
                return False
            try:
                if not await self.grow(count):
                    return False
            except WispError as error:
                if error.code != "out_of_memory":
                    raise
                self.most = len(self.all)
                return False
            self._add(count)
            return True

    async def _wait(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def clear(self) -> None:
        """Empty the caches of all free slots."""
        for slot in self.all:
            if not slot.busy:
                slot.cache.reuse([])
