"""Answers, embeddings and logits that one engine is asked for at once: each is what it is alone."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any
from unittest.mock import AsyncMock

import numpy as np
import pytest

from app.models.loaded import Loaded
from app.models.loading import vocabulary
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.tasks import in_background
from tests.support.cpu_engines import GREEDY, PROMPTS, STOPS, Anything, batches, make
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


def held_answer(engine: Engine, **options: Any) -> AsyncGenerator[Any, None]:
    return engine.generate(GenerationRequest(PROMPTS[1], GREEDY, AnswerLimits(40, STOPS), **options))


@pytest.mark.parametrize("turns", [*range(8), 1000])
async def test_an_answer_continues_an_embedded_text(turns: int) -> None:
    """Texts of one group share block tables, one after the other. It is cancelled after some turns of the loop."""
    engine, prompt = make(), list(range(40, 75))
    want = await answer(prompt)(make())
    task = asyncio.ensure_future(all_of([[[3] * 10, list(range(40, 120)), [5] * 30]])(engine))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    np.testing.assert_array_equal(await asyncio.wait_for(answer(prompt)(engine), 20), want)


# What a task may hold, begun and not read to its end. A constraint holds the device in time slices.
HELD: dict[str, Callable[[Engine], AsyncGenerator[Any, None]]] = {
    "answer": held_answer,
    "constrained": lambda engine: held_answer(engine, constraint=Anything()),
    "embeddings": lambda engine: engine.embeddings.all([SEQUENCES[:1], SEQUENCES[1:]], "mean"),
}


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("other_task", [False, True], ids=["itself", "another task"])
async def test_who_holds_results_may_wait_for_others(held: str, other_task: bool) -> None:
    """Also of 9 streams, where 8 sequences run at once, and all of them together need more pages than there are."""
    engine = make(n_ctx=96, parallel=8)
    constrained = Anything()
    works = [
        EMBEDDINGS[0], logits(SEQUENCES[2]), answer(PROMPTS[0]),
        lambda engine: batches(engine, PROMPTS[0], GREEDY, 12, constraint=constrained),
    ]  # fmt: skip
    wanted = await asyncio.gather(*(work(engine) for work in works[:3]))
    streams = [HELD[held](engine) for _ in range(9)]
    async with AsyncExitStack() as stack:
        for stream in streams:
            await stack.enter_async_context(aclosing(stream))
            await asyncio.wait_for(anext(stream), 20)
        for work, want in zip(works, [*wanted, None], strict=True):
            coroutine: Any = work(engine)
            got = await asyncio.wait_for(asyncio.ensure_future(coroutine) if other_task else coroutine, 60)
            if want is not None:
                np.testing.assert_array_equal(got, want)
        rest = [[batch async for batch in stream] for stream in streams]
    assert constrained.accepted
    assert all(len(one) == len(rest[0]) or held != "embeddings" for one in rest)
    np.testing.assert_array_equal(await asyncio.wait_for(works[0](engine), 10), wanted[0])


class Asking(Anything):
    """A constraint that asks for something else before its second token."""

    def __init__(self, what: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self.what, self.calls = what, 0

    async def process(self, logits: Any) -> bytes:
        self.calls += 1
        if self.calls == 2:
            await self.what()
        return bytes(memoryview(logits).cast("B"))


@pytest.mark.parametrize("asked", ["evaluate", "embedding", "answer", "in a task"])
async def test_a_hook_that_would_wait_for_its_own_answer_is_told(asked: str) -> None:
    engine = make()
    whats: dict[str, Callable[[], Awaitable[object]]] = {
        "evaluate": lambda: engine.evaluate(SEQUENCES[0]),
        "embedding": lambda: engine.embeddings.one(SEQUENCES[0], "mean"),
        "answer": lambda: anext(held_answer(engine)),
        "in a task": lambda: asyncio.gather(engine.evaluate(SEQUENCES[0])),
    }
    request = GenerationRequest([5, 9, 3], GREEDY, AnswerLimits(8, frozenset()), Asking(whats[asked]))

    async def read() -> None:
        async for _ in engine.generate(request):
            pass

    with pytest.raises(WispError, match="would wait for itself"):
        await asyncio.wait_for(read(), 10)
    await asyncio.wait_for(engine.evaluate(SEQUENCES[0]), 10)


async def test_what_is_read_late_is_all_there() -> None:
    engine = make()
    want = [i for batch in [b async for b in held_answer(engine)] for i in batch.ids]
    stream = held_answer(engine)
    got = list((await anext(stream)).ids)
    await engine.evaluate(SEQUENCES[0])  # waits for the end of the answer
    async for batch in stream:
        got += batch.ids
    assert got == want


async def test_an_error_comes_after_what_was_yielded_before_it() -> None:
    async def items() -> AsyncGenerator[int, None]:
        yield 1
        yield 2
        raise WispError("lost", "device_lost")

    stream = in_background(items())
    assert await anext(stream) == 1
    await asyncio.sleep(0.01)
    assert await anext(stream) == 2
    with pytest.raises(WispError, match="lost"):
        await anext(stream)


async def test_closing_a_stream_frees_the_engine_at_once() -> None:
    engine = make()
    for held in HELD.values():
        async with aclosing(held(engine)) as stream:
            await anext(stream)
        await asyncio.wait_for(engine.evaluate(SEQUENCES[0]), 10)
        assert engine._generation.sequences.idle


async def test_a_loop_that_is_left_does_not_count() -> None:
    engine = make()
    async for _ in engine.embeddings.all([SEQUENCES[:1], SEQUENCES[1:]], "mean"):
        break
    await asyncio.wait_for(engine.evaluate(SEQUENCES[0]), 10)


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
