"""Several answers to one request in a batch: their texts, chunks and counts equal those of answers in sequence."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from py_engine.errors import WispError
from tests.support import worker_page
from tests.support.cpu_engines import counts
from tests.support.tiny_page import REQUEST, Tiny
from tests.support.worker_page import HELLO, HI, Page, chunks_of


@pytest.fixture
async def page() -> Tiny:
    return await Tiny().start()


@pytest.mark.parametrize("shape", [{}, {"presence_penalty": 0.5, "repeat_penalty": 1.1}], ids=["plain", "shaped"])
async def test_each_choice_is_that_of_its_seed(page: Tiny, shape: dict[str, Any]) -> None:
    """Choice i has the text of seed + i, for any number of choices, streamed or whole."""
    alone = [(await (await Tiny().start()).texts(**shape, seed=seed))[0] for seed in range(11, 17)]
    assert len(set(alone)) == 6
    answer = await page.call("completions", request={**REQUEST, **shape, "n": 6, "seed": 11})
    assert [choice["text"] for choice in answer["choices"]] == alone
    assert [choice["index"] for choice in answer["choices"]] == [*range(6)]
    length = answer["usage"]["prompt_tokens"]
    assert answer["usage"]["completion_tokens"] == 6 * 12
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == length, "of six prompts five are not computed"
    chunks = await page.stream("completions", **REQUEST, **shape, n=6, seed=11, stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["completion_tokens"] == 6 * 12
    got = ["".join(c["choices"][0]["text"] for c in chunks[:-1] if c["choices"][0]["index"] == i) for i in range(6)]
    assert got == alone
    assert Counter(c["choices"][0]["finish_reason"] for c in chunks[:-1])["length"] == 6


async def test_choices_share_chunks_and_steps(page: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices that need only their logits share a batch."""
    # With longer slices, this model's answers would end before the others begin.
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    plain = {"temperature": 0, "ignore_eos": False, "max_tokens": 40}
    want = await page.texts(**plain)
    assert await page.texts(**plain, n=4) == want * 4
    assert counts(page.used).each >= 8
    chunks = await page.stream("completions", **REQUEST, n=4)
    order = [c["choices"][0]["index"] for c in chunks]
    assert set(order) == {0, 1, 2, 3}
    assert order != sorted(order)


async def test_an_abort_ends_every_choice(page: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    request = {**REQUEST, "max_tokens": 150, "n": 6, "stream": True}
    number, task = page.send("completions", request=request)
    while len(page.answers(number)) < 8:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert page.running_sequences() > 1
    await page.call("abort", target=number)
    await task
    answers = page.answers(number)
    assert answers[-1]["error"]["code"] == "aborted"
    assert not any(chunk["choices"][0]["finish_reason"] for chunk in chunks_of(answers))
    assert page.running_sequences() == 0
    assert len(await page.texts(n=2)) == 2


async def test_an_error_of_one_choice_ends_all(page: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, next_step = 0, page.used.runner.result

    async def fails() -> Any:
        nonlocal calls
        calls += 1
        if calls == 9:
            raise WispError("The device failed.", "internal_error")
        return await next_step()

    monkeypatch.setattr(page.used.runner, "result", fails)
    answer = await page.call("completions", request={**REQUEST, "n": 6, "seed": 1})
    assert answer["error"]["code"] == "internal_error"
    assert page.running_sequences() == 0
    assert len(await page.texts(n=2)) == 2


class Counted(worker_page.Engine):
    """An engine for two requests at once that records how many run."""

    parallel = 2
    one_at_a_time = False
    most = 0

    async def generate(self, *arguments: Any, **options: Any) -> Any:
        async for batch in super().generate(*arguments, **options):
            self.most = max(self.most, self.running)
            yield batch


async def test_no_more_choices_at_once_than_the_engine_batches() -> None:
    page = Page()
    await page.call("load")
    page.engine.__class__ = Counted
    page.engine.pause = 0.001
    answer = await page.call("chat.completions", request={"messages": HI, "n": 5})
    assert [choice["message"]["content"] for choice in answer["choices"]] == [HELLO] * 5
    assert getattr(page.engine, "most", 0) == 2
    assert page.engine.closed == 5
