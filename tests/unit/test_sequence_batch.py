"""Several requests at once on the numpy executor: each gets the text that it gets alone, and they share steps."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationStats
from py_engine.generate.speculation import DraftPolicy
from py_engine.plan.sampling import Batch, Sampling
from tests.support.cpu_engines import (
    PROMPT,
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

GREEDY = Sampling(temperature=0)
PROMPTS = [PROMPT, [7, 3, 200, 45], [9], list(range(40, 75)), [250, 1, 250, 1, 6], [88, 12, 13]]


async def test_several_requests_get_the_answers_that_they_get_alone() -> None:
    """Six requests, four slots; the caches grow to four sequences, and most steps serve several."""
    used = engine()
    want = [await collect(make(), ids, GREEDY, 40) for ids in PROMPTS]
    got = await asyncio.gather(*(collect(used, ids, GREEDY, 40) for ids in PROMPTS))
    assert got == want
    assert used.plan.sequences == 4
    assert counts(used).each <= 100, "240 tokens, up to four of them a step"
    again = await asyncio.gather(
        *(collect(used, ids + text[:9], GREEDY, 9) for ids, text in zip(PROMPTS, want, strict=True))
    )
    assert again == [text[9:18] for text in want]


async def test_alone_nothing_is_shared() -> None:
    used = engine()
    assert await collect(used, PROMPT, GREEDY, 30) == await collect(make(), PROMPT, GREEDY, 30)
    assert (counts(used).each, used.plan.sequences) == (0, 1)


@pytest.mark.slow
async def test_with_others_that_need_the_device_alone() -> None:
    """Requests with seeds, penalties and constraints alternate with a batch of other requests."""
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


async def test_a_turn_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests that cannot share a batch alternate in time slices, instead of running one after the other."""
    monkeypatch.setattr("py_engine.generate.time_slices.SLICE", 0.0)
    used = engine()
    order: list[str] = []

    async def one(name: str, sampling: Sampling) -> list[int]:
        out: list[int] = []
        async for batch in used.generate(PROMPT, sampling, AnswerLimits(30, STOPS)):
            order.append(name)
            out += batch.ids
        return out

    want = [await collect(make(), PROMPT, sampling, 30) for sampling in (WARM, SHAPED)]
    assert list(await asyncio.gather(one("a", WARM), one("b", SHAPED))) == want
    assert "".join(order).count("ab") > 10


@pytest.mark.slow
async def test_requests_that_come_and_are_closed_at_any_time_disturb_no_other() -> None:
    """Requests that come and are closed at random points disturb no other."""
    used, dice = engine(), random.Random(7)
    want = {tuple(ids): await collect(make(), ids, GREEDY, 60) for ids in PROMPTS}

    async def one(ids: list[int], number: int) -> None:
        await asyncio.sleep(0.03 * dice.random())
        count = dice.randint(0, 60)
        out: list[int] = []
        stream = used.generate(ids, GREEDY, AnswerLimits(60, STOPS))
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


async def test_a_failure_reaches_everyone_and_ends() -> None:
    """A device error reaches every request of the batch; the next request works."""
    used = engine()
    runner, next_batch = counts(used), counts(used).next_batch
    calls = 0

    async def fails(more: bool = True) -> list[Batch]:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise WispError("The GPU was lost.", "device_lost")
        return await next_batch(more)

    runner.next_batch = fails  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, GREEDY, 30) for ids in PROMPTS[:3]), return_exceptions=True)
    assert any(isinstance(g, WispError) for g in got)
    assert all(isinstance(g, WispError) or len(g) == 30 for g in got)  # type: ignore[arg-type]
    assert await collect(used, PROMPT, GREEDY, 30) == await collect(make(), PROMPT, GREEDY, 30)


async def test_without_memory_for_more_sequences() -> None:
    """Without memory for more sequences, requests wait for the existing slots."""
    used = engine()

    async def refuse(sequences: int) -> None:
        raise WispError("no memory", "out_of_memory")

    counts(used).reserve_sequences = refuse  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, GREEDY, 12) for ids in PROMPTS))
    assert got == [await collect(make(), ids, GREEDY, 12) for ids in PROMPTS]
    assert used.plan.sequences == 1


async def test_caches_grow_where_that_is_granted() -> None:
    """Caches grow only if memory is granted. Otherwise requests wait, and the next requests ask for memory again."""
    used, granted = engine(), False
    kv, asked = used.plan.memory()["kv"], []

    @asynccontextmanager
    async def room(needed: int) -> AsyncIterator[bool]:
        asked.append(needed)
        yield granted

    used.ask_before_growing(room)
    want = [await collect(make(), ids, GREEDY, 12) for ids in PROMPTS]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 12) for ids in PROMPTS)) == want
    assert (used.plan.sequences, set(asked)) == (1, {kv})
    granted = True
    asked.clear()
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 12) for ids in PROMPTS)) == want
    assert (used.plan.sequences, asked) == (4, [kv, 2 * kv])


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


async def test_nothing_is_taken_over_from_rings() -> None:
    """A ring cache is not copied: its rows before the window may be overwritten."""
    cpu = load(GOLDEN / "gemma" / "gemma2.F16.gguf", 128, 16, ring_slack=16)
    assert cpu.plan.ring_slack
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    used = Engine(cpu.plan, runner, "cpu", 2)
    want = await collect(used, LONG, WARM, 8)
    used.forget()
    stats = [GenerationStats() for _ in range(2)]
    assert await asyncio.gather(*(collect(used, LONG, WARM, 8, stats=one) for one in stats)) == [want] * 2
    assert used.plan.sequences == 2
    assert [one.cached_tokens for one in stats] == [0, 0]


# -- drafts


@pytest.mark.slow
async def test_accepted_drafts_are_the_tokens_of_plain_decoding() -> None:
    """The tiny model soon repeats itself, so drafts are right. The text is equal and takes fewer steps."""
    repeated = PROMPT * 6
    for prompt, sampling in ((PROMPT, GREEDY), (repeated, GREEDY), (repeated, Sampling(temperature=0.3))):
        drafting, plain = engine(draft=True), engine()
        random.seed(5)  # equal noise without a seed in the request: a seed would turn drafts off
        got = await collect(drafting, prompt, sampling, 150)
        random.seed(5)
        want = await collect(plain, prompt, sampling, 150)
        assert got == want
        assert counts(plain).verified == 0
    greedy = engine(draft=True)
    await collect(greedy, [5] * 40, GREEDY, 150)
    assert 10 < counts(greedy).verified < 130, "of 150 tokens"


async def test_drafts_end_at_the_end_of_the_context() -> None:
    used = engine(n_ctx=96, draft=True)
    assert await collect(used, PROMPT, GREEDY, 200) == await collect(make(96), PROMPT, GREEDY, 200)
    assert counts(used).verified


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 9, 30, 31])
async def test_drafts_do_not_exceed_the_limit(count: int) -> None:
    used = engine(draft=True)
    prompt = PROMPT * 5
    assert await collect(used, prompt, GREEDY, count) == await collect(make(), prompt, GREEDY, count)


def test_drafts_are_accepted_in_repetitive_text() -> None:
    dice = random.Random(3)
    text = [dice.randrange(300) for _ in range(200)]
    new, old = DraftPolicy(text), DraftPolicy(text)
    new.add([dice.randrange(300) for _ in range(60)])
    assert not new.pays(1.0, 1.4)
    old.add(text[50:110])
    assert old.pays(1.0, 1.4)
    assert not old.pays(1.0, 30.0)
    old.add([dice.randrange(300) for _ in range(60)])
    assert not old.pays(1.0, 1.4), "off by itself"
