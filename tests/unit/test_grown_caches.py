"""Caches that grow: before sequences lack pages, and for a request that was aborted meanwhile."""

import asyncio
from contextlib import nullcontext

import pytest

from py_engine.engine import Engine
from py_engine.generate.sequence_cache import SequenceCache
from tests.support.cpu_engines import GREEDY, PROMPTS, collect, engine, make

SHORT = [ids for ids in PROMPTS if len(ids) < 16]


def waits(used: Engine) -> list[int]:
    """How many tokens the caches had of each sequence that has waited for pages since."""
    sequences, found = used._generation.sequences, list[int]()
    wait_for_pages = sequences.wait_for_pages

    async def wait(sequence: SequenceCache, end: int) -> None:
        found.append(len(sequence.tokens))
        await wait_for_pages(sequence, end)

    sequences.wait_for_pages = wait  # type: ignore[method-assign]
    return found


async def test_caches_grow_while_the_sequences_go_on() -> None:
    """All requests take their next page in the same steps, and none leaves them for it."""
    used = engine(n_ctx=128, page=16, parallel=5)
    waited = waits(used)
    want = [await collect(make(128), ids, GREEDY, 100) for ids in SHORT]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 100) for ids in SHORT)) == want
    assert not waited
    (group,) = used.plan.page_groups
    assert 5 * 7 <= group.pages <= 5 * 8, "as many as the answers have"


async def test_growth_that_is_refused_is_asked_for_again_when_a_request_ends() -> None:
    used = engine(n_ctx=128, page=16, parallel=5)
    sequences, tries = used._generation.sequences, 0
    grow_for_all = sequences._grow_for_all

    async def grow() -> None:
        nonlocal tries
        tries += 1
        await grow_for_all()

    sequences._grow_for_all = grow  # type: ignore[method-assign]
    used.ask_before_growing(lambda _: nullcontext(False))
    want = [await collect(make(128), ids, GREEDY, 100) for ids in SHORT]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 100) for ids in SHORT)) == want
    assert 1 <= tries <= 1 + len(SHORT)


@pytest.mark.parametrize("more", [1, 5, 60])
async def test_pages_of_an_aborted_request_are_used(more: int) -> None:
    """The pool of pages does not know of them yet."""
    used = engine(n_ctx=64, page=8)
    used.ask_before_growing(lambda _: nullcontext(True))
    (group,) = used.plan.page_groups
    await used.runner.reserve_pages([group.pages + more], nullcontext)
    grown = group.pages
    want = [await collect(make(64), ids, GREEDY, 29) for ids in PROMPTS]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 29) for ids in PROMPTS)) == want
    assert group.pages >= grown
    (pool,) = used._generation.sequences.cache.pools
    assert (pool.held, pool.available) == (0, pool.size)
