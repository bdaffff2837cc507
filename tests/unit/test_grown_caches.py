"""Caches that have more pages than the pool of pages knows of: the request that they grew for was aborted meanwhile."""

import asyncio
from contextlib import nullcontext

import pytest

from tests.support.cpu_engines import GREEDY, PROMPTS, collect, engine, make


@pytest.mark.parametrize("more", [1, 5, 60])
async def test_pages_of_an_aborted_request_are_used(more: int) -> None:
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
