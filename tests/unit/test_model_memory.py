"""The memory budget of all models: which one is evicted, and what counts against the budget."""

import asyncio
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.options import LoadOptions
from tests.support.several_models import FILES, SIZE, Models
from tests.support.worker_page import Engine, Platform, settle


@pytest.fixture
def page() -> Models:
    return Models()


async def test_the_least_recently_used_goes_first_and_comes_back_when_named(page: Models) -> None:
    assert await page.call("budget", bytes=2 * SIZE) == 2 * SIZE
    await page.load("a")
    await page.load("b")
    await page.ask("a")
    await page.load("c")
    assert await page.loaded() == ["a", "c"]
    assert [page.made[n][0].unloaded for n in "abc"] == [0, 1, 0]
    assert await page.ask("b") == "b"
    assert await page.loaded() == ["c", "b"]
    assert await page.ask() == "c"
    stats = await page.call("stats")
    assert (stats["bytes"], stats["budget"], stats["model"]) == (2 * SIZE, 2 * SIZE, "c")
    listed = {m["id"]: m["loaded"] for m in (await page.call("models"))["data"]}
    assert listed == {"mini": False, "c": True, "b": True, "a": False}


async def test_a_default_that_was_unloaded_for_another_answers_again(page: Models) -> None:
    await page.call("budget", bytes=SIZE)
    await page.load("a")
    await page.load("b", default=False)
    assert await page.loaded() == ["b"]
    assert await page.ask() == "a"
    assert await page.loaded() == ["a"]


async def test_a_busy_model_stays_if_an_idle_one_can_be_evicted(page: Models) -> None:
    await page.call("budget", bytes=2 * SIZE)
    await page.load("a")
    await page.load("b")
    page.made["a"][0].gate.clear()
    number, running = page.send("completions", request={"prompt": "x", "model": "a"})
    await settle()
    await page.ask("b")
    await page.load("c")
    assert not running.done()
    assert await page.loaded() == ["a", "c"]
    # No model can be evicted now: the next load waits until one has no requests, queued ones included.
    page.made["c"][0].gate.clear()
    others = [page.send("completions", request={"prompt": "x", "model": name}) for name in ("c", "a")]
    loading = asyncio.create_task(page.load("b"))
    await settle()
    assert not loading.done()
    for name in "ca":
        page.made[name][0].gate.set()
    await loading
    await asyncio.gather(running, *(task for _, task in others))
    for one in (number, *(n for n, _ in others)):
        assert page.answers(one)[-1]["kind"] == "result"  # after journals, where the machine is slow
    assert "b" in await page.loaded()
    assert (await page.call("stats"))["bytes"] == 2 * SIZE


async def test_a_model_larger_than_the_budget_is_refused_without_eviction(page: Models) -> None:
    await page.load("a")
    await page.call("budget", bytes=SIZE - 1)
    error = (await page.load("b"))["error"]
    assert error["code"] == "out_of_memory"
    assert "memoryBudget" in error["message"]
    assert await page.ask() == "a"
    await page.call("budget", bytes=None)
    assert (await page.load("b"))["budget"] == 4 << 30
    for bad in ("much", 0, -5, True):
        assert await page.code("budget", bytes=bad) in ("invalid_type", "invalid_value")


async def test_a_failed_load_restores_the_evicted_model(page: Models) -> None:
    await page.call("budget", bytes=SIZE)
    await page.load("a")
    make = page.platform.make

    async def refuse(source: Any, header: Any, options: LoadOptions) -> Engine:
        if page.loads[-1] == "b":
            raise WispError("No.", "missing_tensor")
        return await make(source, header, options)

    page.platform.make = refuse
    assert (await page.load("b"))["error"]["code"] == "missing_tensor"
    assert (await page.loaded(), await page.ask()) == (["a"], "a")


async def test_without_a_budget_the_device_says_when_to_unload(page: Models) -> None:
    make = page.platform.make

    async def small(source: Any, header: Any, options: LoadOptions) -> Engine:
        if sum(not e.unloaded for e in page.platform.engines) >= 2:
            raise WispError("No room.", "out_of_memory")
        return await make(source, header, options)

    page.platform.make = small
    for name in "abc":
        assert (await page.load(name))["model"] == name
    assert await page.loaded() == ["b", "c"]


async def test_growing_caches_count_against_the_budget(page: Models) -> None:
    """Growing caches evict idle models, the least recently used first; none if that would not free enough."""
    await page.call("budget", bytes=4 * SIZE)
    for name in "abc":
        await page.load(name)
    await page.ask("b")
    (a, b, c) = (page.made[name][0] for name in "abc")
    assert await b.grow()
    assert (await page.call("stats"))["bytes"] == 4 * SIZE
    assert not await b.grow(3 * SIZE)
    assert await page.loaded() == ["a", "b", "c"]
    assert await b.grow()
    assert (await page.loaded(), a.unloaded) == (["b", "c"], 1)
    c.gate.clear()
    _, running = page.send("completions", request={"prompt": "x", "model": "c"})
    await settle()
    assert not await b.grow(), "c has a request"
    c.gate.set()
    await running
    assert await b.grow()
    assert (await page.loaded(), (await page.call("stats"))["bytes"]) == (["b"], 4 * SIZE)
    assert await page.ask("a") == "a", "what went is loaded again, in the place of the caches"
    assert await page.loaded() == ["a"]


async def test_users_are_warned_once_at_80_percent_of_a_budget(page: Models) -> None:
    def warnings() -> int:
        return sum("of the memory budget" in str(message.get("text")) for message in page.platform.messages)

    await page.call("budget", bytes=SIZE * 100 // 79)
    await page.load("a")
    assert not warnings()
    await page.call("budget", bytes=SIZE * 100 // 80)
    await page.call("budget", bytes=SIZE * 100 // 90)
    assert warnings() == 1
    await page.call("budget", bytes=2 * SIZE)
    await page.call("budget", bytes=SIZE)
    assert warnings() == 2


async def test_users_are_warned_before_caches_may_not_grow(page: Models) -> None:
    await page.call("budget", bytes=4 * SIZE)
    await page.load("a")
    warned = []
    for _ in range(100):
        warned.append(any("of the memory budget" in str(message.get("text")) for message in page.platform.messages))
        if not await page.made["a"][0].grow(SIZE // 4):
            break
    assert warned == [False] * 9 + [True] * 4, "from 80 % of the budget on"


async def test_loads_in_progress_count_against_the_budget(page: Models) -> None:
    await page.call("budget", bytes=2 * SIZE)
    await page.load("a")
    one = page.made["a"][0]
    async with one.room(SIZE) as granted:
        assert granted
        assert not await one.grow()
    page.gate.clear()
    _, coming = page.send("load", model=FILES["b"])
    await settle()
    assert not await one.grow(), "b will take the rest"
    page.gate.set()
    await coming
    assert await page.loaded() == ["a", "b"]


async def test_one_model_s_caches_may_exceed_an_estimated_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Platform, "device_memory", lambda _: 4 * SIZE / (1 << 30))
    page = Models()
    await page.load("a")
    await page.load("b")
    assert await page.made["b"][0].grow(3 * SIZE)
    assert await page.loaded() == ["b"]
