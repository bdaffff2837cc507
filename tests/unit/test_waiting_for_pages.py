"""Sequences that wait for pages: the oldest one gets them, whatever the others do in the meantime."""

import asyncio
from unittest.mock import Mock

from py_engine.generate.kv_cache import KvCache
from py_engine.generate.prefix_store import held
from py_engine.generate.sequences import Sequences
from py_engine.plan.pages import PageGroup
from tests.support.cpu_engines import engine


async def test_pages_stay_with_the_oldest_until_it_has_taken_them() -> None:
    """A younger sequence took them while the oldest waited for the device, and both gave way without end."""
    used = engine(n_ctx=16, page=8)
    cache = used._generation.sequences.cache
    sequences = Sequences(cache, Mock(), 2, Mock())
    async with sequences.acquire() as old, sequences.acquire() as young:
        await sequences.wait_for_pages(old, 16)
        assert young.reserve(8) == 0
        assert not sequences.may_hold(young)
        assert old.reserve(8) == 8
        sequences.resumed(old)
        assert young.reserve(8) == 8


async def test_a_sequence_that_ends_before_it_has_taken_its_pages_leaves_them() -> None:
    used = engine(n_ctx=16, page=8)
    sequences = Sequences(used._generation.sequences.cache, Mock(), 2, Mock())
    async with sequences.acquire() as old:
        await sequences.wait_for_pages(old, 16)
    async with sequences.acquire() as young:
        assert young.reserve(16) == 16


async def test_a_slot_stays_with_the_oldest_until_it_has_taken_it() -> None:
    """A younger sequence took the slot of states that an older one was about to have."""
    cache = KvCache([PageGroup(0, 0, 2, 4), PageGroup(1, 0, 1, 1, states=True)], 8)
    sequences = Sequences(cache, Mock(), 2, Mock())
    async with sequences.acquire() as old, sequences.acquire() as young:
        await sequences.wait_for_pages(old, 8)
        assert young.reserve(8) == 0
        assert old.reserve(8) == 8
        sequences.resumed(old)
        assert young.reserve(8) == 0  # there is one slot
        sequences._release(old)
        assert young.reserve(8) == 8


async def test_a_sequence_waits_for_a_page_that_is_being_stored() -> None:
    """The store of prefixes holds a page for as long as its write takes. The engine stood still: a sequence that needed
    that page, too, released its own ones again and again, and let nothing else run.
    """
    cache = KvCache([PageGroup(0, 0, 2, 2)], 8)
    asked = 0

    async def refuse(_: list[int]) -> bool:
        nonlocal asked
        asked += 1
        assert asked < 100
        return False

    sequences = Sequences(cache, Mock(), 2, refuse)
    async with sequences.acquire() as first:
        first.reserve(8)
        first.append([*range(8)])
    (_, stored), *_ = cache.full_blocks()
    async with sequences.acquire() as sequence:
        with held(cache, [stored]):
            waiting = asyncio.ensure_future(sequences.wait_for_pages(sequence, 16))
            await asyncio.sleep(0.01)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 5)
        assert sequence.reserve(16) == 16


async def test_a_slot_without_pages_is_given_to_the_oldest() -> None:
    """An older sequence needs the one slot, which a younger one has that waits for pages itself."""
    cache = KvCache([PageGroup(0, 0, 2, 2), PageGroup(1, 0, 1, 1, states=True)], 8)
    asked = 0

    async def refuse(_: list[int]) -> bool:
        nonlocal asked
        asked += 1
        assert asked < 100
        return False

    sequences = Sequences(cache, Mock(), 2, refuse)
    async with sequences.acquire() as old, sequences.acquire() as young:
        young.reuse([1, 2, 3])  # takes the slot, and no page
        cache.waiting.add(-1)  # a still older sequence waits, so the young one keeps what it has, and waits
        waiting = asyncio.ensure_future(sequences.wait_for_pages(young, 16))
        await asyncio.sleep(0)
        cache.waiting.remove(-1)
        await asyncio.wait_for(sequences.wait_for_pages(old, 16), 5)
        assert old.reserve(16) == 16
        sequences.resumed(old)
        waiting.cancel()
