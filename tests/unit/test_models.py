"""Several models at once: the model that answers, the memory budget of all, and the order of requests."""

import asyncio
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.options import LoadOptions
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import HI, Engine, File, Page, Platform, settle

SIZE = 1000  # bytes of every model of these tests


class Sized(Engine):
    """An engine of SIZE bytes."""

    grown = 0

    def stats(self) -> dict[str, Any]:
        return {"memory": {"weights": 0 if self.unloaded else SIZE, "kv": self.grown}}

    async def grow(self, needed: int = SIZE) -> bool:
        async with self.room(needed) as granted:
            self.grown += needed if granted else 0
        return bool(granted)


class Models(Page):
    """A page with the files a, b and c, and a catalog with "mini"."""

    def __init__(self) -> None:
        super().__init__()
        platform = self.platform
        self.made: dict[str, list[Sized]] = {}
        self.loads: list[str] = []
        self.gate = asyncio.Event()  # cleared: loads wait
        self.gate.set()
        for name in "abc":
            platform.files[f"{name}.gguf"] = MINI.read_bytes()

        async def open_source(part: Any, on_progress: Any) -> Any:
            self.loads.append(part.name[0] if isinstance(part, File) else "mini")
            return await type(platform).open_source(platform, part, on_progress)

        async def make(source: Any, header: Any, options: LoadOptions) -> Engine:
            await self.gate.wait()
            engine = await platform._engine(source, header, options)
            engine.__class__ = Sized
            self.made.setdefault(self.loads[-1], []).append(engine)  # type: ignore[arg-type]
            return engine

        async def estimate(*_: Any, **__: Any) -> dict[str, Any]:
            return {"total": SIZE}

        platform.open_source = open_source  # type: ignore[method-assign]
        platform.estimate_engine = estimate  # type: ignore[method-assign]
        platform.make = make

    async def load(self, name: str, **fields: Any) -> Any:
        return await self.call("load", model=FILES[name], **fields)

    async def ask(self, name: str | None = None) -> str:
        answer = await self.call("chat.completions", request={"messages": HI, "model": name})
        return str(answer["model"])

    async def loaded(self) -> list[str]:
        return [m["id"] for m in (await self.call("stats"))["models"]]


FILES = {name: File(f"{name}.gguf") for name in "abc"}


@pytest.fixture
def page() -> Models:
    return Models()


async def test_a_request_names_its_model(page: Models) -> None:
    await page.load("a")
    await page.load("b")
    assert (await page.ask("a"), await page.ask("b"), await page.ask(), await page.ask("")) == ("a", "b", "b", "b")
    stats = await page.load("c", default=False)
    assert stats["model"] == "c"
    assert await page.ask() == "b"
    for kind, fields in (
        ("completions", {"request": {"prompt": "x", "model": "a"}}),
        ("responses", {"request": {"input": "x", "model": "a"}}),
    ):
        before = len(page.made["a"][0].prompts)
        assert (await page.call(kind, **fields))["model"] == "a"
        assert len(page.made["a"][0].prompts) == before + 1
    listed = {m["id"]: (m["loaded"], m["default"]) for m in (await page.call("models"))["data"]}
    assert listed == {"mini": (False, False), "a": (True, False), "b": (True, True), "c": (True, False)}
    stats = await page.call("stats", model="a")
    assert (stats["model"], stats["bytes"], stats["clients"]) == ("a", 3 * SIZE, 1)
    assert [(m["id"], m["bytes"], m["default"]) for m in stats["models"]] == [
        ("a", SIZE, False),
        ("b", SIZE, True),
        ("c", SIZE, False),
    ]
    assert await page.call("tokenize", text="Hi", model="c") == await page.call("tokenize", text="Hi")


async def test_another_worker_gets_the_same_models(page: Models) -> None:
    await page.call("budget", bytes=2 * SIZE)
    for name in "abc":
        await page.load(name, contextLength=99)
    await page.ask("b")
    (*_, loads) = (message["loads"] for message in page.platform.messages if message["kind"] == "loads")
    other = Models()
    await other.call("budget", bytes=2 * SIZE)
    for load in loads:
        await other.call("load", **load)
    assert sorted(await other.loaded()) == ["b", "c"]
    assert await other.ask() == "c"
    assert await other.ask("a") == "a"
    assert other.worker._models.loaded["a"].options == page.worker._models._known["a"]


async def test_an_unknown_name_is_not_found(page: Models) -> None:
    await page.load("a")
    for kind, fields in (
        ("chat.completions", {"request": {"messages": HI, "model": "x"}}),
        ("embeddings", {"request": {"input": "x", "model": "x"}}),
        ("rerank", {"request": {"query": "x", "documents": ["y"], "model": "x"}}),
        ("tokenize", {"text": "x", "model": "x"}),
        ("detokenize", {"ids": [1], "model": "x"}),
        ("applyTemplate", {"messages": HI, "model": "x"}),
        ("evaluate", {"ids": [1], "model": "x"}),
        ("profile", {"position": 0, "n": 1, "model": "x"}),
        ("validate", {"format": {"regex": "a"}, "text": "a", "model": "x"}),
        ("stats", {"model": "x"}),
        ("unload", {"model": "x"}),
    ):
        answer = await page.call(kind, **fields)
        error = answer["error"]
        assert (error["code"], error["type"], error["param"]) == ("model_not_found", "not_found_error", "model"), kind
    assert "mini" in (await page.call("tokenize", text="x", model="x"))["error"]["message"]
    assert await page.code("tokenize", text="x", model=5) == "invalid_type"
    assert await page.code("load", default="yes") == "invalid_type"


async def test_a_catalog_model_is_loaded_on_demand_and_does_not_become_the_default(page: Models) -> None:
    await page.load("a")
    assert (await page.ask("mini"), await page.ask()) == ("mini", "a")
    assert await page.loaded() == ["a", "mini"]
    first = Models()
    assert (await first.ask("mini"), await first.ask()) == ("mini", "mini")


async def test_the_same_model_is_loaded_once(page: Models) -> None:
    page.gate.clear()
    tabs = [page.worker.connect(page.platform.post) for _ in range(2)]
    loads = [page.worker.handle({"id": 100 + i, "kind": "load"}, tab) for i, tab in enumerate(tabs)]
    asked = page.call("chat.completions", request={"messages": HI, "model": "mini"})
    everything = asyncio.gather(asked, *loads)
    await settle()
    page.gate.set()
    answer, *_ = await everything
    assert (answer["model"], page.loads) == ("mini", ["mini"])
    assert (await page.call("load"))["model"] == "mini"
    assert page.loads == ["mini"]
    progress = {m["id"] for m in page.platform.messages if m["kind"] == "progress"}
    assert {100, 101} <= progress
    await page.call("load", contextLength=100)
    assert page.loads == ["mini", "mini"]


async def test_a_load_continues_while_a_request_waits_for_it(page: Models) -> None:
    page.gate.clear()
    first, one = page.send("load")
    second, other = page.send("load")
    await settle()
    await page.call("abort", target=first)
    await one
    assert page.answers(first)[0]["error"]["code"] == "aborted"
    page.gate.set()
    await other
    assert page.answers(second)[0]["result"]["model"] == "mini"
    assert (page.loads, page.made["mini"][0].unloaded) == (["mini"], 0)
    page.gate.clear()
    last, task = page.send("load", contextLength=50)
    await settle()
    await page.call("abort", target=last)
    await task
    page.gate.set()
    assert (await page.call("load", contextLength=50))["model"] == "mini"  # not the one of the aborted load


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
        assert page.answers(one)[0]["kind"] == "result"
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


async def test_unloading_one_or_all(page: Models) -> None:
    await page.load("a")
    await page.load("b")
    await page.load("c")
    await page.ask("a")
    await page.call("unload", model="c")
    assert (await page.loaded(), await page.ask()) == (["a", "b"], "a")
    assert await page.code("chat.completions", request={"messages": HI, "model": "c"}) == "model_not_found"
    page.made["a"][0].pause = 0.005
    number, running = page.send("completions", request={"prompt": "x", "model": "a"})
    await asyncio.sleep(0)
    await page.call("unload")
    assert page.answers(number)[0]["kind"] == "result"
    await running
    assert [page.made[n][0].unloaded for n in "abc"] == [1, 1, 1]
    assert await page.code("chat.completions", request={"messages": HI}) == "model_not_loaded"
    await page.load("a")
    assert await page.ask() == "a"


async def test_an_aborted_unload_keeps_the_model(page: Models) -> None:
    await page.load("a")
    page.made["a"][0].gate.clear()
    _, running = page.send("completions", request={"prompt": "x"})
    await settle()
    number, going = page.send("unload")
    await settle()
    await page.call("abort", target=number)
    await going
    assert page.answers(number)[0]["error"]["code"] == "aborted"
    page.made["a"][0].gate.set()
    await running
    assert (await page.ask(), page.made["a"][0].unloaded) == ("a", 0)


async def test_models_answer_side_by_side(page: Models) -> None:
    await page.load("a")
    await page.load("b")
    for name in "ab":
        page.made[name][0].pause = 0.003
    tasks = [page.send("completions", request={"prompt": "x", "model": name, "stream": True}) for name in "abab"]
    await asyncio.gather(*(task for _, task in tasks))
    chunks = [m["id"] for m in page.platform.messages if m["kind"] == "chunks"]
    (a1, b1, a2, b2) = (number for number, _ in tasks)
    assert chunks.index(b1) < len(chunks) - 1 - chunks[::-1].index(a1)  # b begins before a has ended
    assert chunks.index(a2) > len(chunks) - 1 - chunks[::-1].index(a1)  # a client's own requests run in order
    assert chunks.index(b2) > len(chunks) - 1 - chunks[::-1].index(b1)


async def test_the_ids_of_two_clients_do_not_mix(page: Models) -> None:
    """Each client has its own request ids. A client that leaves aborts its own requests and no others."""
    await page.load("a")
    page.made["a"][0].gate.clear()
    seen: dict[str, list[dict[str, Any]]] = {"first": [], "second": []}
    tabs = {name: page.worker.connect(messages.append) for name, messages in seen.items()}
    message = {"id": 1, "kind": "completions", "request": {"prompt": "x"}}
    first, second = (asyncio.create_task(page.worker.handle(message, tab)) for tab in tabs.values())
    await settle()
    await page.worker.handle({"id": 2, "kind": "abort", "target": 1}, tabs["second"])
    await second
    assert seen["second"][-1]["error"]["code"] == "aborted"
    assert not first.done()
    page.worker.leave(tabs["first"])
    page.made["a"][0].gate.set()
    await first
    assert [m["error"]["code"] for m in seen["first"] if "id" in m] == ["aborted"]
    assert await page.ask() == "a"
    late = asyncio.create_task(
        page.worker.handle({"id": 3, "kind": "completions", "request": {"prompt": "x"}}, tabs["first"])
    )
    await late
    assert seen["first"][-1]["error"]["code"] == "aborted"


async def test_what_the_browser_keeps_is_listed_and_removed() -> None:
    page = Models()

    def cached(url: str, n_bytes: int) -> dict[str, Any]:
        return {
            "url": url,
            "size": 100,
            "bytes": n_bytes,
            "complete": n_bytes == 100,
            "used": 7,
            "verified": n_bytes == 5,
            "pinned": False,
        }

    mini = "https://wisp/models/mini.gguf"
    page.platform.cached = [
        cached(mini, 100),
        cached("https://host/big%20one.gguf?x=1", 40),
        cached("https://host/c.gguf", 5),
    ]
    assert await page.call("load")
    found = await page.call("models.cached")
    assert [(m["id"], m["bytes"], m["complete"], m["loaded"]) for m in found] == [
        ("mini", 100, True, True),
        ("big one", 40, False, False),
        ("c", 5, False, False),
    ]
    assert found[0]["last_used"] == 7
    assert page.worker.urls_in_use() == {mini}
    await page.call("models.pin", model="c", pinned=True)
    assert [m["pinned"] for m in await page.call("models.cached")] == [False, False, True]
    assert await page.code("models.pin", model="c", pinned="yes") == "invalid_type"
    assert await page.code("models.pin", model="no", pinned=True) == "model_not_found"
    assert await page.call("models.delete", model="big one") == 40
    assert await page.call("models.delete", model="https://host/c.gguf") == 5
    assert await page.code("models.delete", model="no") == "model_not_found"
    assert await page.call("models.delete") == 100
    assert await page.call("models.cached") == []
    assert await page.ask() == "mini", "what is loaded stays loaded"


async def test_a_changed_model_is_offered_and_updated() -> None:
    page = Models()
    url = "https://host/one.gguf"
    page.platform.files[url] = page.platform.files["https://wisp/models/mini.gguf"]
    page.platform.cached = [
        {"url": url, "size": 1, "bytes": 1, "complete": True, "used": 1, "verified": False, "pinned": False}
    ]
    page.platform.newer = {url, "https://wisp/models/mini.gguf"}
    await page.call("load")
    await settle()
    assert not [m for m in page.platform.messages if m["kind"] == "modelUpdate"], "the catalog's names have hashes"
    await page.call("load", model=url)
    await settle()
    told = [m for m in page.platform.messages if m["kind"] == "modelUpdate"]
    assert told == [{"kind": "modelUpdate", "model": "one", "url": url}]
    await page.call("models.update", model=url)
    assert url not in page.platform.newer
    assert await page.code("models.update", model="no") == "model_not_found"
