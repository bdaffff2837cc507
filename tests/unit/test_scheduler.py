"""Several requests at once on the numpy executor: each gets the text that it gets alone, and they share steps."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from statistics import mode
from typing import Any

import pytest

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate import joining
from py_engine.generate.answer import AnswerLimits, GenerationRequest, GenerationStats
from py_engine.plan.sampling import Batch, Sampling
from tests.support.cpu_engines import (
    GREEDY,
    PROMPT,
    PROMPTS,
    SHAPED,
    STOPS,
    WARM,
    RandomConstraint,
    collect,
    counts,
    engine,
    make,
)
from tests.support.cpu_models import GOLDEN, load
from tests.support.page import sampler_batch


async def test_several_requests_get_the_answers_that_they_get_alone() -> None:
    """Six requests, four at a time; the caches grow by a page, and most steps serve several."""
    used = engine()
    want = [await collect(make(), ids, GREEDY, 40) for ids in PROMPTS]
    got = await asyncio.gather(*(collect(used, ids, GREEDY, 40) for ids in PROMPTS))
    assert got == want
    assert pages(used) == 5, "one of them needs two"
    assert counts(used).each <= 100, "240 tokens, up to four of them a step"
    again = await asyncio.gather(
        *(collect(used, ids + text[:9], GREEDY, 9) for ids, text in zip(PROMPTS, want, strict=True))
    )
    assert again == [text[9:18] for text in want]


async def test_alone_nothing_is_shared() -> None:
    used = engine()
    assert await collect(used, PROMPT, GREEDY, 30) == await collect(make(), PROMPT, GREEDY, 30)
    assert counts(used).each == 0


@pytest.mark.slow
async def test_requests_of_all_kinds_side_by_side() -> None:
    """Requests with seeds, penalties and constraints beside others."""
    used = engine(parallel=8)
    kinds: list[tuple[Sampling, Any]] = [
        (GREEDY, None),
        (WARM, None),
        (SHAPED, None),
        (GREEDY, 0.8),
        (GREEDY, None),
        (WARM, 0.5),
    ]
    want = [
        await collect(make(), ids, sampling, 50, constraint=fraction and RandomConstraint(fraction))
        for ids, (sampling, fraction) in zip(PROMPTS, kinds, strict=True)
    ]
    for _ in range(2):
        got = await asyncio.gather(
            *(
                collect(used, ids, sampling, 50, constraint=fraction and RandomConstraint(fraction))
                for ids, (sampling, fraction) in zip(PROMPTS, kinds, strict=True)
            )
        )
        assert got == want


async def test_any_samplers_share_a_batch() -> None:
    """A sequence's tokens and log-probabilities do not depend on the samplers and masks of the others."""
    sampler_batch.check(await sampler_batch.batch_and_pairs(make(64)))


async def test_seeded_answers_share_steps() -> None:
    """Their texts are those that they get alone."""
    used = engine()
    kinds = [WARM, SHAPED, Sampling(temperature=1.4, seed=8, top_k=30)]
    want = [await collect(make(), ids, kind, 40) for ids, kind in zip(PROMPTS, kinds, strict=False)]
    got = await asyncio.gather(*(collect(used, ids, kind, 40) for ids, kind in zip(PROMPTS, kinds, strict=False)))
    assert got == want
    assert counts(used).each <= 45, "120 tokens, three a step"


async def test_a_seeded_answer_recomputes_a_prompt_that_a_small_batch_computed() -> None:
    """Small batches round like decoded tokens, not like the seeded answer's own prompt."""
    used = engine()
    counts(used).on_gpu = True  # where short prompts are fed as small batches
    await collect(used, PROMPT, GREEDY, 5)
    await collect(used, [*PROMPT, 3], GREEDY, 5)
    assert used.last.cached_tokens == len(PROMPT)
    assert await collect(used, [*PROMPT, 3], WARM, 20) == await collect(make(), [*PROMPT, 3], WARM, 20)
    assert used.last.cached_tokens == 0


async def test_answers_alternate_until_a_batch_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the kernels of a batch are compiled, two requests alternate instead of running one after the other."""
    used = engine()
    monkeypatch.setattr(counts(used), "prepared", lambda lists, **_: False)
    order: list[str] = []

    async def one(name: str, sampling: Sampling) -> list[int]:
        out: list[int] = []
        async for batch in used.generate(GenerationRequest(PROMPT, sampling, AnswerLimits(30, STOPS))):
            order.append(name)
            out += batch.ids
        return out

    want = [await collect(make(), PROMPT, sampling, 30) for sampling in (WARM, SHAPED)]
    assert list(await asyncio.gather(one("a", WARM), one("b", SHAPED))) == want
    assert "".join(order).count("ab") > 10


async def test_a_long_prompt_is_read_between_the_steps_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a prompt of 120 tokens is read, 16 at a time, the other answer gets a token after each part."""
    used = engine()
    monkeypatch.setattr(counts(used), "prompt_tokens_in", lambda ms: 16)
    long = [7 * i % 250 for i in range(120)]
    want = [await collect(make(), PROMPT, GREEDY, 60), await collect(make(), long, GREEDY, 5)]
    order: list[str] = []

    async def one(name: str, ids: list[int], count: int) -> list[int]:
        out: list[int] = []
        async for batch in used.generate(GenerationRequest(ids, GREEDY, AnswerLimits(count, STOPS))):
            order.append(name)
            out += batch.ids
            if name == "a" and len(out) == 10:
                others.append(asyncio.ensure_future(one("b", long, 5)))
        return out

    others: list[asyncio.Future[list[int]]] = []
    assert [await one("a", PROMPT, 60), await others[0]] == want
    parts = "".join(order).rindex("b", 0, "".join(order).index("b") + 16)
    assert "bb" not in "".join(order)[:parts], "a token of the other answer after each part"


def submitted(monkeypatch: pytest.MonkeyPatch, used: Engine) -> list[str]:
    """What is submitted from now on: "prompt", or "steps" with the number of sequences."""
    runner, order = counts(used), list[str]()
    feed, decode = runner.feed, runner.decode

    def fed(*args: Any, **options: Any) -> Any:
        order.append("prompt")
        return feed(*args, **options)

    def decoded(rows: Any, steps: int) -> None:
        order.append(f"steps of {len(rows)}")
        decode(rows, steps)

    monkeypatch.setattr(runner, "feed", fed)
    monkeypatch.setattr(runner, "decode", decoded)
    return order


@pytest.mark.parametrize(("prompt_ms", "first"), [(5.0, 4), (14.0, 3), (100.0, 2)])
async def test_several_requests_join_before_more_steps(
    monkeypatch: pytest.MonkeyPatch, prompt_ms: float, first: int
) -> None:
    """After the first prompt, as many follow each other as take SLICE_MS: its stream waits no longer for a token."""
    used = engine(parallel=4)
    monkeypatch.setattr(joining, "WAIT_SECONDS", 10.0)  # on a busy machine
    monkeypatch.setattr(counts(used), "prompt_ms", lambda n: prompt_ms)
    order = submitted(monkeypatch, used)
    prompts = [*PROMPTS[:3], *PROMPTS[4:5]]  # each is one part
    want = [await collect(make(), ids, GREEDY, 30) for ids in prompts]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 30) for ids in prompts)) == want
    assert order[: first + 1] == ["prompt"] * first + [f"steps of {first}"]


@pytest.mark.parametrize(("step_ms", "ahead"), [(1.0, 3), (30.0, 2), (500.0, 1)])
async def test_the_device_is_given_work_ahead(monkeypatch: pytest.MonkeyPatch, step_ms: float, ahead: int) -> None:
    """The device has a next submit, however long one takes: else it would wait for the host after each."""
    monkeypatch.setattr(joining, "SOON_SECONDS", 0.0)
    used = engine()
    runner, queued = counts(used), []
    monkeypatch.setattr(runner, "queues", True)
    monkeypatch.setattr(runner, "step_ms", lambda rows, *, drafting=False: step_ms)
    monkeypatch.setattr(runner, "steps_in", lambda rows, ms, *, drafting=False: max(1, int(ms / step_ms)))
    result = runner.result

    async def counted() -> list[Batch]:
        queued.append(len(runner._work))
        return await result()

    monkeypatch.setattr(runner, "result", counted)
    await collect(used, PROMPT, GREEDY, 60)
    assert mode(queued) == ahead


async def test_a_constraint_shares_the_device_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer under a constraint pauses for others and continues where it stopped, with the same text."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    used = engine()
    want = await collect(make(), PROMPT, SHAPED, 40, constraint=RandomConstraint(0.6))
    plain = await collect(make(), [9], GREEDY, 40)
    order: list[str] = []

    async def one(name: str, ids: list[int], sampling: Sampling, constraint: Any = None) -> list[int]:
        out: list[int] = []
        request = GenerationRequest(ids, sampling, AnswerLimits(40, STOPS), constraint)
        async for batch in used.generate(request):
            order.append(name)
            out += batch.ids
        return out

    got = await asyncio.gather(one("a", PROMPT, SHAPED, RandomConstraint(0.6)), one("b", [9], GREEDY))
    assert list(got) == [want, plain]
    assert "".join(order).count("ab") > 5


@pytest.mark.slow
async def test_requests_that_come_and_are_closed_at_any_time_disturb_no_other() -> None:
    """Requests that come and are closed at random points disturb no other."""
    used, dice = engine(), random.Random(7)
    want = {tuple(ids): await collect(make(), ids, GREEDY, 60) for ids in PROMPTS}

    async def one(ids: list[int], number: int) -> None:
        await asyncio.sleep(0.03 * dice.random())
        count = dice.randint(0, 60)
        out: list[int] = []
        stream = used.generate(GenerationRequest(ids, GREEDY, AnswerLimits(60, STOPS)))
        while len(out) < count and (batch := await anext(stream, None)) is not None:
            out += batch.ids
        await stream.aclose()
        assert out == want[tuple(ids)][: len(out)], number
        assert len(out) >= count

    await asyncio.gather(*(one(dice.choice(PROMPTS), i) for i in range(40)))
    assert await collect(used, PROMPT, GREEDY, 60) == want[tuple(PROMPT)]


async def test_stop_ids_and_limits() -> None:
    used = engine()
    whole = await collect(make(), PROMPT, GREEDY, 40)
    stop = frozenset([whole[7]])
    got = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 40, stops=stop), *(collect(used, PROMPT, GREEDY, n) for n in (1, 2, 13))
    )
    assert got == [whole[: whole.index(whole[7]) + 1], whole[:1], whole[:2], whole[:13]]


async def test_answers_of_a_batch_reach_the_end_of_the_context_at_different_times() -> None:
    """Two answers reach the end of the context at different times; a third shifts its context and continues."""
    used = engine(n_ctx=32)
    shifted = await collect(make(32), PROMPT, GREEDY, 60, keep=3)
    got = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 100), collect(used, [9], GREEDY, 100), collect(used, PROMPT, GREEDY, 60, keep=3)
    )
    assert [len(text) for text in got] == [27, 32, 60]
    assert got[0] == await collect(make(32), PROMPT, GREEDY, 100)
    assert got[2] == shifted


def pages(used: Engine) -> int:
    return used.plan.page_groups[0].pages


def assert_all_released(used: Engine) -> None:
    """No page is held, and every page is in one place."""
    for pool in used._generation.sequences.cache.pools:
        assert (pool.held, pool.available) == (0, pool.size)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_requests_wait_for_pages(sampling: Sampling) -> None:
    """Where the caches may not grow, young requests release their pages and continue later; the texts stay the same."""
    used = engine(n_ctx=64, page=8)

    async def refuse(pages: Any, turn: Any) -> None:
        raise WispError("no memory", "out_of_memory")

    counts(used).reserve_pages = refuse  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, sampling, 29) for ids in PROMPTS))
    assert got == [await collect(make(64), ids, sampling, 29) for ids in PROMPTS]
    assert pages(used) == 8
    assert_all_released(used)


@pytest.mark.slow
@pytest.mark.parametrize("may_grow", [True, False], ids=["grows", "waits"])
async def test_fifty_mixed_requests(may_grow: bool) -> None:
    """32 at a time, with common prefixes, of any kind, some closed early: each gets the text that it gets alone."""
    used, dice = engine(n_ctx=96, parallel=32, page=8), random.Random(11)
    used.ask_before_growing(lambda _: nullcontext(may_grow))
    kinds: list[tuple[Sampling, Any]] = [(GREEDY, None), (WARM, None), (SHAPED, None), (GREEDY, 0.8), (WARM, 0.5)]
    prefix = [7 * i % 250 for i in range(30)]

    async def one(number: int, alone: bool) -> list[int]:
        sampling, fraction = kinds[number % len(kinds)]
        prompt = [*prefix[: 10 * (number % 4)], *PROMPTS[number % len(PROMPTS)], number]
        constraint = RandomConstraint(fraction) if fraction else None
        return await collect(make(96) if alone else used, prompt, sampling, 10 + number % 17, constraint=constraint)

    async def closed(number: int) -> None:
        await asyncio.sleep(0.1 * dice.random())
        stream = used.generate(GenerationRequest([*prefix, number], GREEDY, AnswerLimits(40, STOPS)))
        for _ in range(dice.randrange(9)):
            await anext(stream, None)
        await stream.aclose()

    want = [await one(number, alone=True) for number in range(50)]
    *_, got = await asyncio.gather(
        *(closed(number) for number in range(20)), asyncio.gather(*(one(number, alone=False) for number in range(50)))
    )
    assert got == want
    assert pages(used) == 12 or may_grow
    assert_all_released(used)


async def test_caches_grow_where_that_is_granted() -> None:
    """Caches grow only if memory is granted. Otherwise requests wait, and the next requests ask for memory again."""
    used, granted = engine(n_ctx=64, page=8), False
    page, asked = used.plan.page_bytes(used.plan.page_groups[0]), []

    @asynccontextmanager
    async def headroom(needed: int) -> AsyncIterator[bool]:
        asked.append(needed)
        yield granted

    used.ask_before_growing(headroom)
    want = [await collect(make(64), ids, GREEDY, 29) for ids in PROMPTS]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 29) for ids in PROMPTS)) == want
    assert pages(used) == 8
    assert asked
    granted = True
    asked.clear()
    used.forget()
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 29) for ids in PROMPTS)) == want
    assert sum(asked) == page * (pages(used) - 8) > 0
    assert used.plan.memory()["kv"] == page * pages(used)
    assert pages(used) < 24, "by what was needed, not by whole contexts"
    assert_all_released(used)


async def test_caches_evict_what_finished_requests_have_left() -> None:
    """Pages of finished requests are evicted, least recently used first, before the caches grow."""
    used = engine(n_ctx=64, page=8)
    for first in range(20):
        await collect(used, [first, *PROMPT], GREEDY, 12)
    assert pages(used) == 8
    await collect(used, [19, *PROMPT], GREEDY, 12)
    assert used.last.cached_tokens == 6
    await collect(used, [0, *PROMPT], GREEDY, 12)
    assert used.last.cached_tokens == 0
    assert_all_released(used)


LONG = [7 * i % 250 for i in range(100)]


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_a_prompt_that_several_have_is_computed_once(sampling: Sampling) -> None:
    """The first request computes the shared prompt; the others copy its cache. The texts are those without sharing."""
    used = engine()
    prompts = [[*LONG, *ids] for ids in PROMPTS[:4]]
    want = [await collect(make(), ids, sampling, 20) for ids in prompts]
    for _ in range(2):
        stats = [GenerationStats() for _ in prompts]
        got = await asyncio.gather(
            *(collect(used, ids, sampling, 20, stats=one) for ids, one in zip(prompts, stats, strict=True))
        )
        assert got == want
        assert sum(one.cached_tokens for one in stats) >= 2 * len(LONG), "of four times"


@pytest.mark.parametrize("name", ["gemma/gemma2", "lfm2/lfm2"])
async def test_windows_share_a_prompt_whose_last_window_has_pages(name: str) -> None:
    """Pages before a window are freed; another request reuses the prompt where its last window is still there."""
    cpu = load(GOLDEN / f"{name}.F16.gguf", 768, 16, page=16)
    windows = [group for group in cpu.plan.page_groups if group.window]
    assert windows
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    used = Engine(cpu.plan, runner, "cpu", 2)
    long = LONG * 7
    want = await collect(used, long, WARM, 8)
    assert used.last.cached_tokens == 0
    stats = [GenerationStats() for _ in range(2)]
    assert await asyncio.gather(*(collect(used, long, WARM, 8, stats=one) for one in stats)) == [want] * 2
    assert [one.cached_tokens for one in stats] == [len(long) - 1] * 2
    assert {group.pages for group in windows} == {group.most for group in windows}
    used.forget()
    assert await collect(used, long, WARM, 8) == want
    assert used.last.cached_tokens == 0
    assert_all_released(used)
