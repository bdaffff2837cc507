"""Prefixes that outlive the page: full blocks of the KV caches are stored while the engine is idle, and read later.

A prompt that begins with stored blocks is computed from where they end. What is read is bit for bit what was computed,
because a store holds blocks of one layout only: the same model, the same type of cache, the same kernels.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Protocol

from py_engine.errors import WispError
from py_engine.files.stored_blocks import BlockStore, Put, StoredBlock
from py_engine.generate.kv_cache import START, Block, KvCache, key_after, runs_of
from py_engine.plan.plan import Plan
from py_engine.tasks import begin, quietly

VERSION = 3  # of the layout; another one where blocks are computed or stored differently
IDLE_S = 0.3  # without a request before blocks are stored
READ_RATE = 1.0e9  # bytes a second: a block is stored, and read, if this is quicker than computing it


class BlockDevice(Protocol):
    """What a device does with blocks (runners.py)."""

    def prompt_token_ms(self) -> float:
        """Milliseconds of a prompt token; 0: not measured yet."""

    async def read_pages(self, pages: Sequence[tuple[int, int]]) -> Any:
        """The contents of pages (group, page), one after the other: an ArrayBuffer, or bytes on the CPU."""

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: Any) -> None:
        """Write pages (group, page, first byte in `data`). `data`: of read_pages()."""


def layout_of(content: str, plan: Plan, kernels: str) -> str:
    """The name of a layout. `content`: identifies the model's bytes; `kernels`: what computes the plan."""
    groups = [(group.window, [(n, plan.buffers[n].dtype, plan.buffers[n].shape[1]) for n in group.stored])
              for group in plan.page_groups]  # fmt: skip
    directions = sorted(plan.adapters.directions.items())
    described = repr((VERSION, content, plan.n_ctx, plan.page, groups, kernels, *([directions] if directions else [])))
    return hashlib.sha256(described.encode()).hexdigest()[:32]


class PrefixStore:
    """The stored blocks of one layout. `page_bytes`: of a page in all stored caches of its group, by group."""

    def __init__(self, store: BlockStore, page_bytes: Sequence[int]) -> None:
        self._store, self._page_bytes = store, page_bytes
        self._stored: dict[str, StoredBlock] | None = None  # None: must be listed
        self._writing: asyncio.Task[None] | None = None
        self._touching: asyncio.Task[None] | None = None  # notes which blocks were used
        self._full = False  # nothing more can be stored
        self._removals = store.removals()
        self._unwanted: set[bytes] = set()  # keys of blocks that were computed before a user removed the stored ones
        self.read_tokens = self.written_tokens = 0

    async def blocks(self) -> dict[str, StoredBlock]:
        """What is stored."""
        if self._stored is None or self._store.changed():
            self._stored = await self._store.blocks()
        return self._stored

    def stats(self) -> dict[str, int]:
        """Tokens whose keys and values were read from the store, and written to it."""
        return {"read_tokens": self.read_tokens, "written_tokens": self.written_tokens}

    # -- reading

    async def restore(
        self, ids: list[int], cache: KvCache, device: BlockDevice, exact: bool, root: bytes = START
    ) -> None:
        """Read the stored blocks that continue what the caches have of `ids`. `exact`, `root`: as in KvCache.find()."""
        self._note_removals(cache)
        stored = await self.blocks()
        if not stored or cache.waiting:
            return
        known, n = cache.find(ids[:-1], exact, root)
        known = known[: n // cache.page]
        wanted = _following(ids, known, cache.page, stored, exact, root)
        wanted = wanted[: _readable(known, [entry for _, entry in wanted], cache)]
        if wanted and self._pays(range(len(cache.pools)), cache.page * device.prompt_token_ms()):
            with held(cache, known):
                used = await self._read(wanted, ids, known, cache, device, root)
            self.read_tokens += cache.page * len(used)
            self._touching = quietly(begin(self._store.touch(used)))  # the answer need not wait for it

    async def _read(
        self,
        wanted: list[tuple[str, StoredBlock]],
        ids: list[int],
        known: list[Block],
        cache: KvCache,
        device: BlockDevice,
        root: bytes,
    ) -> list[str]:
        """Add stored blocks after the known ones to the caches, as far as they are whole; return their keys."""
        page, first, end = cache.page, len(known), cache.page * (len(known) + len(wanted))
        before, used = known[-1] if known else None, list[str]()
        async with aclosing(self._store.read(wanted)) as found:
            async for data in found:
                key, entry = wanted[len(used)]
                at = first + len(used)
                groups = [g for g in range(len(cache.pools)) if at >= cache.first_block(g, end)]
                if not all(cache.pools[group].available for group in groups):
                    break
                block = Block([cache.take(g) if g in groups else None for g in range(len(cache.pools))])
                device.write_pages(self._places(block, entry), data)
                cache.fill(block, before, ids[page * at : page * (at + 1)], False, root)
                block.prompted = entry.prompted
                for group in groups:
                    cache.release(group, block)
                before = block
                used.append(key)
                await asyncio.sleep(0)  # let streams run: blocks that were read ahead come without a wait
        if len(used) < len(wanted):
            self._stored = None
        return used

    def _places(self, block: Block, entry: StoredBlock) -> list[tuple[int, int, int]]:
        """(group, page, first byte in the data) of each page of a block."""
        places, at = [], 0
        for group, (page, size) in enumerate(zip(block.pages, self._page_bytes, strict=True)):
            if page is not None:
                places.append((group, page, at))
            at += size if entry.has(group) else 0
        return places

    def _note_removals(self, cache: KvCache) -> None:
        """Where the user has removed stored blocks since the last call, store nothing that the caches have now."""
        if self._removals != self._store.removals():
            self._removals = self._store.removals()
            self._unwanted = {block.key for _, block in cache.full_blocks()}

    # -- writing

    def write_when_idle(self, cache: KvCache, device: BlockDevice, idle: Callable[[], bool]) -> None:
        """Store what the caches have, once there was no request for a while, and until there is one."""
        if not self._full and (self._writing is None or self._writing.done()):
            self._writing = asyncio.ensure_future(self._write(cache, device, idle))

    def close(self) -> None:
        """Store nothing more."""
        self._full = True
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self, cache: KvCache, device: BlockDevice, idle: Callable[[], bool]) -> None:
        await asyncio.sleep(IDLE_S)
        if not idle():  # the end of the answer that runs now begins this again
            return
        stored, before = await self.blocks(), self.written_tokens
        self._note_removals(cache)
        block_ms = cache.page * device.prompt_token_ms()
        read: list[Block] = []
        for depth, block in list(cache.full_blocks()):
            if block.key in self._unwanted or block.before_key in self._unwanted:
                self._unwanted.add(block.key)
                continue
            if any(page is None and not window for page, window in zip(block.pages, cache.windows, strict=True)):
                continue  # evicted since it was listed
            groups = [group for group, page in enumerate(block.pages) if page is not None]
            entry, key = StoredBlock(depth, block.prompted, sum(1 << g for g in groups)), block.key.hex()
            if (key in stored and stored[key].covers(entry)) or not self._pays(groups, block_ms):
                continue
            if not idle():
                break
            read.append(block)
            with held(cache, [block]):
                try:
                    data = await device.read_pages([(group, block.pages[group] or 0) for group in groups])
                except WispError:  # the device is lost
                    break
            if self._removals != self._store.removals():  # while its pages were read
                break
            put = await self._store.put(key, entry, data)
            if put is Put.FULL:
                self._full = True
                break
            if put is Put.IN_USE:
                continue  # the next time that the engine is idle tries again
            if self._removals != self._store.removals():
                break
            stored[key] = entry
            self.written_tokens += cache.page
        with held(cache, read):  # which makes the first blocks the last ones to be evicted again
            pass
        if self.written_tokens > before:
            await self._store.tidy()
            self._stored = None
            await self.blocks()

    def _pays(self, groups: Sequence[int], ms: float) -> bool:
        """Whether a block is read sooner than computed. `ms`: time to compute one; 0: not known."""
        return not ms or sum(self._page_bytes[group] for group in groups) < READ_RATE * ms / 1000


@contextmanager
def held(cache: KvCache, blocks: list[Block]) -> Iterator[None]:
    """Keep the pages of blocks from being evicted."""
    pages = [(group, block) for block in blocks for group, page in enumerate(block.pages) if page is not None]
    for group, block in pages:
        cache.hold(group, block)
    try:
        yield
    finally:
        for group, block in reversed(pages):  # the first block last: evicted last, since the others need it
            cache.release(group, block)
        cache.freed()


def _following(
    ids: list[int], known: list[Block], page: int, stored: dict[str, StoredBlock], exact: bool, root: bytes
) -> list[tuple[str, StoredBlock]]:
    """The stored blocks of `ids` that follow the known ones. The last token of `ids` is never among their tokens."""
    found: list[tuple[str, StoredBlock]] = []
    key = known[-1].key if known else root
    for at in range(page * len(known), len(ids) - page, page):
        key = key_after(key, ids[at : at + page])
        entry = stored.get(key.hex())
        if entry is None or (exact and entry.prompted < page):
            break
        found.append((key.hex(), entry))
    return found


def _readable(known: list[Block], entries: list[StoredBlock], cache: KvCache) -> int:
    """How many of the entries to read: as many as have pages, and whose last windows are in the caches or stored."""
    first, n = len(known), len(known) + len(entries)
    runs = [
        runs_of([*(block.pages[group] is not None for block in known), *(entry.has(group) for entry in entries)])
        for group in range(len(cache.pools))
    ]
    available = [pool.available for pool in cache.pools]
    while n > first:
        begins = [cache.first_block(group, n * cache.page) for group in range(len(runs))]
        whole = all(n - run[n] <= begin for run, begin in zip(runs, begins, strict=True))
        if whole and all(n - max(begin, first) <= free for begin, free in zip(begins, available, strict=True)):
            return n - first
        n -= 1
    return 0
