"""Several models at once: the model that answers, loads that several wait for, and the order of requests."""

import asyncio
from typing import Any

import pytest

from tests.support.several_models import SIZE, Models
from tests.support.worker_page import HI, settle


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
