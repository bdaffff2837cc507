"""How long requests wait for each other's prompts, on a device with a clock of its own; texts are those alone."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest, GenerationStats
from py_engine.generate.prompt_slices import PROMPTS_MS, SLICE_MS
from py_engine.generate.scheduler import SUBMIT_MS
from py_engine.generate.time_slices import TIME_SLICE
from py_engine.plan.lists import PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import PROMPT, STOPS, WARM, Anything, RandomConstraint, collect, make
from tests.support.sliced_runner import TimedRunner, timed_engine, until

LONG = [7 * i % 250 for i in range(192)]
SHORT = [9, 13, 17]
PART_MS = 32 * TimedRunner.token_ms  # a sixth of the long prompt
ALONE_MS = 6 * PART_MS
SHORT_MS = len(SHORT) * TimedRunner.token_ms


async def timed(used: Engine, ids: list[int], count: int, constraint: Any = None) -> tuple[list[int], list[float]]:
    """The tokens of an answer, and when it was begun and got tokens."""
    runner, out = used.runner, list[int]()
    assert isinstance(runner, TimedRunner)
    times = [runner.now]
    async for batch in used.generate(GenerationRequest(ids, WARM, AnswerLimits(count, STOPS), constraint)):
        if batch.ids:
            out += batch.ids
            times.append(runner.now)
    return out, times


def longest_wait(times: list[float]) -> float:
    """The longest time between two tokens, after the first one."""
    return max(b - a for a, b in pairwise(times[1:]))


async def alone(ids: list[int], count: int, constraint: Any = None) -> list[int]:
    return await collect(make(batch=32), ids, WARM, count, constraint=constraint)


async def test_a_short_question_waits_for_one_part_of_a_long_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    used, runner = timed_engine(monkeypatch)
    long = asyncio.ensure_future(timed(used, LONG, 4))
    await until(lambda: len(runner.submitted) >= 2)
    text, times = await timed(used, SHORT, 8)
    assert text == await alone(SHORT, 8)
    assert times[1] - times[0] <= PART_MS + SHORT_MS
    text, times = await long
    assert text == await alone(LONG, 4)
    assert times[1] <= ALONE_MS + SHORT_MS + 8 * runner.step_time


async def test_a_long_prompt_has_half_of_the_time_however_many_short_ones_come(monkeypatch: pytest.MonkeyPatch) -> None:
    used, runner = timed_engine(monkeypatch)
    long = asyncio.ensure_future(timed(used, LONG, 1))
    await until(lambda: len(runner.submitted) >= 2)

    async def questions(first: int) -> None:
        number = first
        while not long.done():
            await timed(used, [number % 250, *range(100, 116)], 1)
            number += 3

    await asyncio.gather(*(questions(first) for first in range(3)))
    _, times = await long
    assert 1.5 * ALONE_MS < times[1] < 2.5 * ALONE_MS


async def test_a_long_prompt_does_not_pass_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    used, runner = timed_engine(monkeypatch)
    first = asyncio.ensure_future(timed(used, LONG, 1))
    await until(lambda: len(runner.submitted) >= 2)
    _, times = await timed(used, [3, *LONG], 1)
    assert (await first)[1][1] == pytest.approx(ALONE_MS)
    assert times[1] > 2 * ALONE_MS


async def test_what_a_short_prompt_has_in_common_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the parts of the long prompt that it begins with, and not for all."""
    used, runner = timed_engine(monkeypatch)
    long = asyncio.ensure_future(timed(used, LONG, 1))
    await until(lambda: len(runner.submitted) >= 2)
    stats = GenerationStats()
    ids = [*LONG[:64], *SHORT]
    assert await collect(used, ids, WARM, 4, stats=stats) == await alone(ids, 4)
    assert stats.cached_tokens == 64
    assert runner.now < 4 * PART_MS
    await long


class Processed(Anything):
    """A constraint that processes logits on the host, so its answer never shares steps."""

    async def process(self, logits: Any) -> bytes:
        return np.asarray(logits, np.float32).tobytes()


class Forcing(Processed):
    """One that also forces 20 tokens after each one that is sampled."""

    async def forced(self) -> list[int]:
        after = len(self.accepted) % 21
        return [5 + i for i in range(after, 21)] if after else []


def rejecting() -> RandomConstraint:
    """A constraint that allows few tokens, so its answer soon goes on alone."""
    return RandomConstraint(0.2, jumps=False)


async def test_streams_wait_for_one_part_where_parts_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part takes longer than a slice, so none follows a short prompt before the streams' steps."""
    used, runner = timed_engine(monkeypatch)
    runner.divides_prompts, runner.token_ms = False, 1.0
    stream = asyncio.ensure_future(timed(used, PROMPT, 80))
    await until(lambda: runner.submitted.count("steps") > 2)
    short, long = [3, *range(100, 108)], LONG[:120]
    texts = await asyncio.gather(timed(used, short, 1), timed(used, long, 1))
    assert [text for text, _ in texts] == [await alone(short, 1), await alone(long, 1)]
    assert longest_wait((await stream)[1]) <= PROMPTS_MS + SUBMIT_MS


@pytest.mark.parametrize("constraint", [Processed, rejecting])
async def test_a_constrained_answer_waits_for_slices_of_another_prompt(
    monkeypatch: pytest.MonkeyPatch, constraint: Any
) -> None:
    """The scheduler releases the device while a part is open. Those of 256 ms took as long."""
    used, runner = timed_engine(monkeypatch)
    constrained = asyncio.ensure_future(timed(used, PROMPT, 150, constraint()))
    await until(lambda: runner.submitted.count("step") > 60)
    assert (await timed(used, LONG, 4))[0] == await alone(LONG, 4)
    text, times = await constrained
    assert text == await alone(PROMPT, 150, constraint())
    assert longest_wait(times) < 1000 * TIME_SLICE + SLICE_MS


@pytest.mark.parametrize("constraint", [Processed, rejecting])
async def test_a_question_waits_for_one_part_of_a_constrained_prompt(
    monkeypatch: pytest.MonkeyPatch, constraint: Any
) -> None:
    used, runner = timed_engine(monkeypatch)
    long = asyncio.ensure_future(timed(used, LONG, 4, constraint()))
    await until(lambda: len(runner.submitted) >= 1)
    text, times = await timed(used, SHORT, 8)
    assert text == await alone(SHORT, 8)
    assert times[1] - times[0] <= PART_MS + SHORT_MS
    assert (await long)[0] == await alone(LONG, 4, constraint())


async def test_a_constrained_prompt_waits_for_the_end_of_a_part_and_streams_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both prompts are long. Their parts alternate, because they share buffers; a stream has steps between slices."""
    used, runner = timed_engine(monkeypatch)
    runner.step_time = 4.0
    stream = asyncio.ensure_future(timed(used, PROMPT, 56))
    await until(lambda: runner.submitted.count("steps") > 2)
    long = asyncio.ensure_future(timed(used, [3, *LONG[:180]], 1))
    await until(lambda: "slice" in runner.submitted)
    assert (await timed(used, LONG[:96], 4, Processed()))[0] == await alone(LONG[:96], 4)
    assert (await stream)[0] == await alone(PROMPT, 56)
    assert longest_wait((await stream)[1]) < 1000 * TIME_SLICE + SLICE_MS + 2 * runner.step_time
    assert (await long)[0] == await alone([3, *LONG[:180]], 1)


async def test_forced_tokens_of_an_answer_alone_are_small_batches_while_a_part_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a seed they would be read like a prompt, whose lists share buffers with the part's."""
    used, runner = timed_engine(monkeypatch)
    feed, fed = runner.feed, set[tuple[str, bool]]()

    def noted(position: int, ids: list[int], lists: Sequence[str], *args: Any, **options: Any) -> Any:
        fed.add((lists[0], used._generation.time_slices.part_open))
        return feed(position, ids, lists, *args, **options)

    monkeypatch.setattr(runner, "feed", noted)
    constrained = asyncio.ensure_future(collect(used, PROMPT, Sampling(temperature=1.0), 200, constraint=Forcing()))
    await until(lambda: runner.submitted.count("step") > 1)
    assert (await timed(used, LONG, 4))[0] == await alone(LONG, 4)
    await constrained
    assert (SMALL_BATCH, True) in fed
    assert (PREFILL, False) in fed
    assert (PREFILL, True) not in fed


async def test_a_prompt_waits_for_the_end_of_a_part_that_another_scheduler_has_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the loss of a device, the old one may not have noticed yet."""
    used, runner = timed_engine(monkeypatch)
    used._generation.time_slices.open_part()
    text = asyncio.ensure_future(collect(used, SHORT, WARM, 8))
    for _ in range(200):
        await asyncio.sleep(0)
    assert not runner.submitted
    used._generation.time_slices.close_part()
    assert await text == await alone(SHORT, 8)
