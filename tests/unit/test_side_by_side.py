"""Answers, embeddings and logits that one engine is asked for at once: each is what it is alone."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest

from app.models.loaded import Loaded
from app.models.loading import vocabulary
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.generate.access import Access
from tests.support.cpu_engines import GREEDY, PROMPTS, batches, make
from tests.support.cpu_models import GOLDEN
from wisp.engine import Engine as User
from wisp.local import LocalModels

LLAMA, BERT = GOLDEN / "llama" / "llama.F32.gguf", GOLDEN / "embedding" / "bert.F16.gguf"
SEQUENCES = [[1, 5, 9, 13, 17, 21], [7, 3, 200, 45], list(range(40, 120)), [250, 1, 250, 1, 6], [88, 12], [5] * 30]
Work = Callable[[Engine], Awaitable[Any]]


def one(ids: list[int], pooling: str | None = None) -> Work:
    async def work(engine: Engine) -> Any:
        return np.array((await engine.embeddings.one(ids, pooling))[0])

    return work


def all_of(groups: Iterable[Sequence[list[int]]]) -> Work:
    async def work(engine: Engine) -> Any:
        parts = []
        async with aclosing(engine.embeddings.all([list(group) for group in groups], "mean")) as results:
            async for rows in results:
                parts.append(np.array(rows))
                await asyncio.sleep(0)
        return np.concatenate(parts)

    return work


def logits(ids: list[int]) -> Work:
    async def work(engine: Engine) -> Any:
        return np.array((await engine.evaluate(ids))[0])

    return work


def answer(ids: list[int]) -> Work:
    async def work(engine: Engine) -> Any:
        return np.array([i for batch in await batches(engine, ids, GREEDY, 20) for i in batch.ids])

    return work


EMBEDDINGS = [
    one(SEQUENCES[0]), all_of([SEQUENCES[:3], SEQUENCES[3:]]), one(SEQUENCES[2], "none"), all_of([SEQUENCES]),
    one(SEQUENCES[4]), one(SEQUENCES[5], "none"),
]  # fmt: skip
WORK = [
    *EMBEDDINGS[:2], answer(PROMPTS[0]), logits(SEQUENCES[2]), EMBEDDINGS[2], answer(PROMPTS[1]), *EMBEDDINGS[3:],
    logits(SEQUENCES[0]), answer(PROMPTS[3]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "works"), [(LLAMA, WORK), (BERT, EMBEDDINGS)], ids=["answers", "encoder"])
async def test_each_result_is_what_it_is_alone(path: Any, works: list[Work]) -> None:
    engine = make(path=path)
    wanted = [await work(engine) for work in works]
    found = await asyncio.wait_for(asyncio.gather(*(work(engine) for work in works)), 60)
    for want, got in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(got, want)


async def test_work_that_is_cancelled_lets_the_others_run() -> None:
    engine = make()
    want = await one(SEQUENCES[0])(engine)
    tasks = [asyncio.ensure_future(work(engine)) for work in WORK]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    np.testing.assert_array_equal(await asyncio.wait_for(one(SEQUENCES[0])(engine), 10), want)


async def test_a_task_that_would_wait_for_itself_gets_an_error() -> None:
    engine = make()
    async with aclosing(engine.embeddings.all([SEQUENCES[:1], SEQUENCES[1:]], "mean")) as results:
        async for _ in results:
            with pytest.raises(WispError, match="another task") as raised:
                await engine.evaluate(SEQUENCES[0])
            assert raised.value.code == "invalid_value"
            break
    await asyncio.wait_for(engine.evaluate(SEQUENCES[0]), 10)


async def test_a_loop_that_is_left_does_not_count() -> None:
    engine = make()
    async for _ in engine.embeddings.all([SEQUENCES[:1], SEQUENCES[1:]], "mean"):
        break
    await asyncio.wait_for(engine.evaluate(SEQUENCES[0]), 10)


async def test_a_task_gets_a_second_answer_though_others_wait() -> None:
    access = Access()
    async with access.shared():
        waiting = asyncio.ensure_future(engine_alone(access))
        await asyncio.sleep(0)
        async with access.shared():
            assert not waiting.done()
    await asyncio.wait_for(waiting, 10)


async def test_a_second_answer_keeps_others_out_after_the_first_has_ended() -> None:
    access = Access()
    first, second = access.shared(), access.shared()
    await first.__aenter__()
    await second.__aenter__()
    waiting = asyncio.ensure_future(engine_alone(access))
    await first.__aexit__(None, None, None)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await second.__aexit__(None, None, None)
    await asyncio.wait_for(waiting, 10)


async def engine_alone(access: Access) -> None:
    async with access.exclusive():
        pass


@pytest.fixture
def user() -> User:
    """The engine of the `wisp` package, on a model with this module's vocabulary."""
    data = LLAMA.read_bytes()
    model = vocabulary("llama", parse(data, len(data)), {})
    model.engine = make()
    return User(model, LocalModels())


async def test_the_package_s_requests_side_by_side(user: User) -> None:
    def requests() -> list[Awaitable[Any]]:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": 12}
        return [
            user.embed(["one", "a longer text"]), user.complete("x y", **options).text(), user.evaluate(SEQUENCES[2]),
            user.embed("three"), user.complete([5, 9], **options).text(), user.evaluate(SEQUENCES[0]),
        ]  # fmt: skip

    wanted = [await request for request in requests()]
    found = await asyncio.wait_for(asyncio.gather(*requests()), 60)
    for want, got in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(got, want)


async def test_unload_waits_for_requests_and_later_ones_get_an_error(user: User) -> None:
    want = await user.evaluate(SEQUENCES[2])
    running = asyncio.ensure_future(user.evaluate(SEQUENCES[2]))
    answering = asyncio.ensure_future(user.complete([5, 9], temperature=0, max_tokens=12).text())
    await asyncio.sleep(0)
    unloading = asyncio.ensure_future(user.unload())
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(work) for work in (user.embed("x"), user.complete([5, 9]).text())]
    await asyncio.wait_for(unloading, 60)
    np.testing.assert_array_equal(await running, want)
    assert await answering
    for task in later:
        with pytest.raises(WispError, match="loaded"):
            await task
    with pytest.raises(WispError, match="loaded"):
        await user.evaluate(SEQUENCES[0])
    await user.unload()  # once more does nothing


async def test_an_unload_that_fails_leaves_no_engine(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loaded, "close", AsyncMock(side_effect=RuntimeError("lost")))
    with pytest.raises(RuntimeError):
        await user.unload()
    with pytest.raises(WispError, match="loaded"):
        await user.embed("x")
