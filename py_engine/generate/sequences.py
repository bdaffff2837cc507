"""The sequences that run side by side, and how they share the pages of the KV caches.

A sequence takes pages as its tokens come. When none is left, pages that only finished requests have used are evicted,
least recently used first. When not every sequence could take its next page, the caches grow beside the steps, where
memory allows it. A sequence that finds no page waits. The oldest one never waits for long: the youngest releases its
pages, and later computes again what it lost. The pages that the caches start with hold a whole context, so a sequence
that is left alone can always go on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.generate.kv_cache import KvCache
from py_engine.generate.page_pool import PagePool
from py_engine.generate.sequence_cache import PageDevice, SequenceCache
from py_engine.tasks import begin, quietly

GROWTH = 4  # caches grow by at least a context's pages divided by this,
EACH = 2  # and by at least this many pages a sequence: all take their next page at about the same time


class Sequences:
    """Up to `most` sequences. `grow(pages)` gives every page group so many pages; False: not now."""

    def __init__(
        self, cache: KvCache, device: PageDevice, most: int, grow: Callable[[list[int]], Awaitable[bool]]
    ) -> None:
        self.cache, self.most = cache, most
        cache.freed, cache.taken = self._notify, self._grow_ahead
        self._device, self._reserve_pages = device, grow
        self._numbers = list(range(most))  # a heap: the lowest free number is used first
        self._running: list[SequenceCache] = []  # oldest first
        self._started = 0
        self._places = asyncio.Semaphore(most)
        self._freed = asyncio.Event()  # pages were freed; replaced each time
        self._growing = asyncio.Lock()
        self._may_grow = True  # False once the device had no memory for more pages
        self._ahead: asyncio.Task[None] | None = None  # grows the caches while the sequences go on
        self._refused = False  # the caches could not grow, and no sequence has ended since
        self._lost: set[SequenceCache] = set()  # whose device was lost
        self._paused: set[SequenceCache] = set()  # in wait_for_pages(), so not on the device

    def restart(self, cache: KvCache, device: PageDevice) -> None:
        """Continue on another device, whose caches are empty. Sequences that wait for pages of the old one fail."""
        self.cache, self._device, self._may_grow = cache, device, True
        cache.freed, cache.taken = self._notify, self._grow_ahead
        self._lost |= set(self._running)
        self._notify()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[SequenceCache]:
        """Run a sequence. Waits while there are `most`."""
        async with self._places:
            sequence = SequenceCache(self.cache, self._device, heapq.heappop(self._numbers), self._started)
            self._started += 1
            self._running.append(sequence)
            try:
                yield sequence
            finally:
                self._running.remove(sequence)
                self._refused = False
                self._lost.discard(sequence)
                self.cache.waiting.discard(sequence.age)
                heapq.heappush(self._numbers, sequence.number)
                self._release(sequence)

    @property
    def idle(self) -> bool:
        """Whether no sequence runs."""
        return not self._running

    def _release(self, sequence: SequenceCache) -> None:
        sequence.release()
        self._notify()

    def _notify(self) -> None:
        """Wake the sequences that wait for pages."""
        self._freed.set()
        self._freed = asyncio.Event()

    def may_hold(self, sequence: SequenceCache) -> bool:
        """Whether the sequence may hold more pages now: no older one waits for pages."""
        return not sequence.preempted and not self.cache.older_waits(sequence.age)

    def enough_pages(self, sequence: SequenceCache, end: int) -> bool:
        """Whether the sequence could have pages for the positions before `end` now."""
        return self.may_hold(sequence) and max(sequence.missing(end), default=0) <= 0

    async def wait_for_pages(self, sequence: SequenceCache, end: int) -> None:
        """Wait until there are pages for the positions before `end` of a sequence that is not on the device.

        No younger sequence may take them until resumed(): else it could, whenever this one waits for its turn on the
        device, and both would give way to each other without end.
        """
        self.cache.waiting.add(sequence.age)
        self._paused.add(sequence)
        try:
            while True:
                freed = self._freed
                if sequence in self._lost:
                    raise WispError("The GPU was lost. Load the model again.", "device_lost", SERVER_ERROR)
                if sequence.preempted:
                    self._release(sequence)
                elif self.enough_pages(sequence, end):
                    return
                elif self.cache.older_waits(sequence.age) or not (
                    await self._grow(partial(sequence.missing, end))
                    or self.enough_pages(sequence, end)
                    or self._preempt(sequence)
                ):
                    await freed.wait()
        finally:
            self._paused.remove(sequence)

    def resumed(self, sequence: SequenceCache) -> None:
        """Record that a sequence has taken the pages that it waited for, if it has waited."""
        if sequence.age in self.cache.waiting:
            self.cache.waiting.remove(sequence.age)
            self._notify()

    def _preempt(self, sequence: SequenceCache) -> bool:
        """Have the youngest sequence release its pages. False: wait until it has, or the store of prefixes has."""
        youngest = next((running for running in reversed(self._running) if running.holds), None)
        if youngest is None or youngest.preempted or youngest.age < sequence.age:
            return False
        if youngest is sequence or youngest in self._paused:
            self._release(youngest)
            return True
        youngest.preempted = True
        return False

    def _grow_ahead(self) -> None:
        """Begin to grow the caches if the running sequences' next pages are not all there.

        A sequence that finds no page leaves the steps of the others, and comes back as a new request does.
        """
        if self._ahead is None and self._may_grow and not self._refused and any(n > 0 for n in self._missing_soon()):
            self._ahead = quietly(begin(self._grow_for_all()))

    def _wanted(self) -> list[list[int]]:
        """By group: the pages that each running sequence may need besides those that it holds."""
        wanted = [sequence.wanted() for sequence in self._running]
        return [[pages[group] for pages in wanted] for group in range(len(self.cache.pools))]

    def _missing_soon(self) -> list[int]:
        """By group: how many pages are lacking for a next page of each running sequence; 0 for slots of states."""
        groups = zip(self._wanted(), self.cache.pools, strict=True)
        missing = [sum(map(bool, wanted)) - pool.available for wanted, pool in groups]
        return missing if self.cache.states is None else [*missing, 0]

    async def _grow_for_all(self) -> None:
        cache = self.cache
        try:
            grown = await self._grow(self._missing_soon)
            self._refused = not grown
        finally:
            self._ahead = None
        if grown and cache is self.cache:
            self._notify()

    async def _grow(self, missing_now: Callable[[], list[int]]) -> bool:
        """Give every group the pages that are missing, and more. False where memory or the limit forbids it."""
        async with self._growing:
            missing = missing_now()
            pools: list[PagePool[Any]] = [*self.cache.pools]
            spans, states = [*self.cache.most], self.cache.states
            wanted = [*map(sum, self._wanted())]
            if states is not None:
                pools, spans, wanted = [*pools, states.pool], [*spans, states.most], [*wanted, 0]
            pages = [
                min(self.most * span, pool.size + max(lacks, min(all_wanted - pool.available, self._growth(span))))
                if lacks > 0
                else pool.size
                for lacks, span, all_wanted, pool in zip(missing, spans, wanted, pools, strict=True)
            ]
            grown = [more - pool.size for more, pool in zip(pages, pools, strict=True)]
            if not self._may_grow or any(more < lacks for more, lacks in zip(grown, missing, strict=True)):
                return False
            try:
                granted = any(grown) and await self._reserve_pages(pages)
            except WispError as error:
                if error.code != "out_of_memory":
                    raise
                self._may_grow = granted = False
            if granted:
                for pool, size in zip(pools, pages, strict=True):
                    pool.grow(size)
            return granted

    def _growth(self, span: int) -> int:
        """The pages that a group grows by, if the sequences may need so many. `span`: those that one has at most."""
        return max(span // GROWTH, EACH * len(self._running))

    def stats(self) -> list[dict[str, int]]:
        """By page group: its window, and how many pages there are, free, and held by running sequences."""
        pools = zip(self.cache.windows, self.cache.pools, strict=True)
        return [{"window": w, "total": pool.size, "free": pool.free, "held": pool.held} for w, pool in pools]

    def running(self) -> list[dict[str, int]]:
        """The running sequences, oldest first: number, tokens in the caches, whether it waits for pages (0 or 1)."""
        paused = self._paused
        return [{"number": s.number, "tokens": len(s.tokens), "waits": int(s in paused)} for s in self._running]

    def clear(self) -> None:
        """Forget what no running sequence holds."""
        self.cache.clear()
