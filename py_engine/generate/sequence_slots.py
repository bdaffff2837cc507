"""The sequences that one model keeps side by side, each with its own part of the KV caches: a seat for each request.

A request takes the free seat whose cache holds most of its prompt. Caches begin with room for one sequence, and grow
when several requests come at once.
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
class Seat:
    """A sequence: its number, and what its cache holds."""

    number: int
    cache: KvCache
    taken: bool = False
    held: int = 0  # tokens of its request that the cache holds so far
    used: int = 0  # when, counted in requests


@dataclass
class Seats:
    """Up to `most` of them; `grow` makes room for that many, or says that it may not now."""

    spare: int
    most: int
    grow: Callable[[int], Awaitable[bool]]
    all: list[Seat] = field(default_factory=list)
    _requests: int = 0
    _growing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._add(1)

    def _add(self, count: int) -> None:
        while len(self.all) < count:
            self.all.append(Seat(len(self.all), KvCache(self.spare)))

    @property
    def first(self) -> Seat:
        """The one that is always there: who works alone uses it."""
        return self.all[0]

    @asynccontextmanager
    async def seat(self, ids: list[int]) -> AsyncIterator[Seat]:
        """A seat for a request with this prompt; waits for one where all are taken and there is no room for more."""
        while not (seat := self._free(ids)):
            if not await self._more():
                await self._wait()
        self._requests += 1
        seat.taken, seat.used = True, self._requests
        try:
            yield seat
        finally:
            seat.taken = False
            while self._waiting:
                waiting = self._waiting.popleft()
                if not waiting.done():
                    waiting.set_result(None)
                    break

    def _free(self, ids: list[int]) -> Seat | None:
        free = [seat for seat in self.all if not seat.taken]
        return max(free, key=lambda seat: (seat.cache.holds(ids), -seat.used), default=None)

    async def _more(self) -> bool:
        async with self._growing:
            if any(not seat.taken for seat in self.all):
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

    def forget(self) -> None:
        """What the caches hold is not used again."""
        for seat in self.all:
            if not seat.taken:
                seat.cache.reuse([])
