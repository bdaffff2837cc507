"""Answers whose mask changes most tokens share steps, each with new masks: the same tokens as alone."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.sampling import Batch, Sampling
from py_engine.runners import MaskedTokens
from tests.support.cpu_engines import (
    GREEDY,
    MODEL,
    PROMPT,
    PROMPTS,
    SHAPED,
    STOPS,
    VOCAB,
    WARM,
    Counting,
    RandomConstraint,
    batches,
    collect,
    counts,
    make,
)
from tests.support.cpu_models import GOLDEN

HYBRID = GOLDEN / "granite" / "granitehybrid.F16.gguf"
LOGPROBS = Sampling(temperature=1.1, seed=6, logprobs=2)


def strict(fraction: float = 0.3, **options: Any) -> RandomConstraint:
    return RandomConstraint(fraction, has_source=True, **options)


def engine(parallel: int = 4, n_ctx: int = 256, page: int = 64, path: Path = MODEL) -> Engine:
    made = make(n_ctx, parallel=parallel, page=page, path=path)
    counting = Counting(made.plan)
    counting._cpu = made.runner._cpu  # type: ignore[attr-defined]
    return Engine(made.plan, counting, "cpu", parallel)


async def test_answers_share_steps_where_masks_change_most_tokens() -> None:
    used = engine(parallel=6)
    samplings = [GREEDY, WARM, SHAPED, LOGPROBS, WARM]
    held = [strict(), strict(0.5), strict(0.9), strict(), None]
    cases = list(zip(PROMPTS, samplings, held, strict=False))
    want = [await collect(make(), ids, how, 40, constraint=again(given)) for ids, how, given in cases]
    got = await asyncio.gather(*(collect(used, ids, how, 40, constraint=given) for ids, how, given in cases))
    assert got == want
    assert 30 <= counts(used).each < 80, "four of 200 tokens a step"


def again(constraint: RandomConstraint | None) -> RandomConstraint | None:
    return constraint and RandomConstraint(constraint.fraction)


async def test_answers_of_recurrent_models_share_steps() -> None:
    """Where another answer has ended the steps, the newest token is computed again; a next question goes on from it."""
    used, alone = engine(path=HYBRID), make(path=HYBRID)
    cases = [(ids, how, count) for ids, how, count in zip(PROMPTS, [WARM, SHAPED, GREEDY], (20, 33, 50), strict=False)]
    want = [await collect(alone, ids, how, n, constraint=RandomConstraint(0.4)) for ids, how, n in cases]
    got = await asyncio.gather(
        *(collect(used, ids, how, n, constraint=strict(0.4)) for ids, how, n in cases),
        collect(used, PROMPTS[3], WARM, 60),
    )
    assert got == [*want, await collect(alone, PROMPTS[3], WARM, 60)]
    assert 20 <= counts(used).each < 90
    for (ids, _, _), answer in zip(cases, want, strict=True):
        chat = [*ids, *answer, 5]
        assert await collect(used, chat, GREEDY, 6) == await collect(alone, chat, GREEDY, 6)


async def test_forced_tokens_are_steps_like_others() -> None:
    used = engine()
    want = await collect(make(), PROMPT, WARM, 60, constraint=RandomConstraint(0.3))
    got, other = await asyncio.gather(
        collect(used, PROMPT, WARM, 60, constraint=strict()), collect(used, PROMPTS[1], GREEDY, 60, constraint=strict())
    )
    assert got == want
    assert other == await collect(make(), PROMPTS[1], GREEDY, 60, constraint=RandomConstraint(0.3))


@pytest.mark.parametrize("options", [{"end": 20}, {"end": 20, "jumps": False}])
async def test_an_answer_ends_with_its_constraint(options: dict[str, Any]) -> None:
    used, stops = engine(), frozenset({2})
    want = await collect(make(), PROMPT, WARM, 60, constraint=RandomConstraint(0.3, **options), stops=stops)
    ended, free = await asyncio.gather(
        collect(used, PROMPT, WARM, 60, constraint=strict(**options), stops=stops),
        collect(used, PROMPTS[1], WARM, 60),
    )
    assert ended == want
    assert ended[-1] == 2
    assert free == await collect(make(), PROMPTS[1], WARM, 60)


@pytest.mark.slow
@pytest.mark.parametrize("slice_s", [0.0, 0.05])
@pytest.mark.parametrize("fraction", [0.3, 0.97])
async def test_others_come_and_go(slice_s: float, fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on alone, with masks beside them, and sampled ahead where its mask changes few tokens."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", slice_s)
    used = engine()
    want = await collect(make(), PROMPT, WARM, 120, constraint=RandomConstraint(fraction))
    passing = await collect(make(), PROMPTS[1], GREEDY, 8)
    answer = asyncio.ensure_future(collect(used, PROMPT, WARM, 120, constraint=strict(fraction)))
    while not answer.done():
        assert await collect(used, PROMPTS[1], GREEDY, 8) == passing
    assert await answer == want


@pytest.mark.slow
async def test_pages_that_are_lacking() -> None:
    used = engine(n_ctx=128, page=16)
    prompts = [[i, *range(30, 60)] for i in range(4)]
    want = [await collect(make(128), ids, WARM, 80, constraint=RandomConstraint(0.3)) for ids in prompts]
    assert await asyncio.gather(*(collect(used, ids, WARM, 80, constraint=strict()) for ids in prompts)) == want


async def test_a_token_at_the_end_of_the_context() -> None:
    used = engine(n_ctx=64, page=16)
    got, other = await asyncio.gather(
        collect(used, PROMPT, WARM, 100, constraint=strict()), collect(used, PROMPTS[3], GREEDY, 100)
    )
    assert got == await collect(make(64), PROMPT, WARM, 100, constraint=RandomConstraint(0.3))
    assert other == await collect(make(64), PROMPTS[3], GREEDY, 100)


class Failing(RandomConstraint):
    """A constraint that fails after some tokens, in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__(0.3, jumps=False, has_source=True)
        self.way = way

    async def mask(self) -> Any:
        if self.way == "mask" and len(self.accepted) == 5:
            raise ValueError("the mask engine has aborted")
        return await super().mask()

    async def accept(self, token: int) -> None:
        if self.way == "accept" and len(self.accepted) == 5:
            raise ValueError("the mask engine has aborted")
        await super().accept(token)

    async def forced(self) -> list[int]:
        if self.way == "forced" and len(self.accepted) == 5:
            raise WispError("It takes too long.", "unsupported_parameter")
        return []

    def finished(self) -> bool:
        return self.way == "forced" and len(self.accepted) == 5  # the source cannot sample


@pytest.mark.parametrize(
    ("way", "code"),
    [("mask", "internal_error"), ("accept", "internal_error"), ("forced", "unsupported_parameter")],
)
async def test_a_constraint_that_fails_ends_its_own_request_only(way: str, code: str) -> None:
    used = engine()
    failed, held, free = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 60, constraint=Failing(way)),
        collect(used, PROMPTS[2], WARM, 60, constraint=strict()),
        collect(used, PROMPTS[1], WARM, 60),
        return_exceptions=True,
    )
    assert isinstance(failed, WispError)
    assert failed.code == code
    assert held == await collect(make(), PROMPTS[2], WARM, 60, constraint=RandomConstraint(0.3))
    assert free == await collect(make(), PROMPTS[1], WARM, 60)


class Slow(RandomConstraint):
    """A constraint whose masks take long."""

    def __init__(self) -> None:
        super().__init__(0.3, jumps=False, has_source=True)

    async def mask(self) -> Any:
        time.sleep(0.012)  # noqa: ASYNC251, as a grammar's
        return await super().mask()


async def test_a_newcomer_ends_steps_with_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the step that runs, not for all that the batch may take."""
    monkeypatch.setattr("py_engine.generate.scheduler.MASKED_MS", 1e6)
    used, newcomer = engine(), asyncio.Event()
    decode: Any = used.runner.decode_masked
    masks = steps = 0  # of the batch that the newcomer finds

    async def watched(*args: Any) -> Any:
        nonlocal masks, steps
        masks = 0
        found = await decode(*args)
        if newcomer.is_set() and not steps:
            steps = max(len(tokens.batch.ids) for tokens in found)
        return found

    monkeypatch.setattr(used.runner, "decode_masked", watched)

    class Watched(RandomConstraint):
        async def mask(self) -> Any:
            nonlocal masks
            masks += 1
            if masks == 3:
                newcomer.set()
            for _ in range(20):  # it joins meanwhile
                await asyncio.sleep(0)
            return await super().mask()

    async def joins() -> list[int]:
        await newcomer.wait()
        return await collect(used, PROMPTS[2], GREEDY, 8)

    held, free, joined = await asyncio.gather(
        collect(used, PROMPT, WARM, 90, constraint=Watched(0.3, jumps=False, has_source=True)),
        collect(used, PROMPTS[1], WARM, 90),
        joins(),
    )
    assert 3 <= steps <= 4, "of 32"
    assert held == await collect(make(), PROMPT, WARM, 90, constraint=RandomConstraint(0.3, jumps=False))
    assert free == await collect(make(), PROMPTS[1], WARM, 90)
    assert joined == await collect(make(), PROMPTS[2], GREEDY, 8)


async def test_slow_masks_do_not_hold_up_others_for_long() -> None:
    used = engine()
    held, _ = await asyncio.gather(
        collect(used, PROMPT, WARM, 60, constraint=Slow()), collect(used, PROMPTS[1], WARM, 60)
    )
    assert held == await collect(make(), PROMPT, WARM, 60, constraint=RandomConstraint(0.3, jumps=False))
    assert counts(used).each < 45, "until it is known that they take long"


async def test_a_banned_token_that_is_forced_is_fed() -> None:
    ban = Sampling(temperature=0, logit_bias=tuple((token, -100.0) for token in range(0, VOCAB, 2)))
    want = await collect(make(), PROMPT, ban, 60, constraint=RandomConstraint(0.3))
    assert any(token % 2 == 0 for token in want), "a forced one"
    used = engine()
    got, _ = await asyncio.gather(
        collect(used, PROMPT, ban, 60, constraint=strict()), collect(used, PROMPTS[1], WARM, 60)
    )
    assert got == want


async def test_log_probabilities_are_those_alone() -> None:
    """They need Python for each token, so their answer shares no step with masks."""
    used = engine()
    got, _ = await asyncio.gather(
        batches(used, PROMPTS[1], LOGPROBS, 40), collect(used, PROMPT, WARM, 60, constraint=strict())
    )
    want = await batches(make(), PROMPTS[1], LOGPROBS, 40)
    assert [row for batch in got for row in batch.logprobs or []] == [
        row for batch in want for row in batch.logprobs or []
    ]


@pytest.mark.parametrize("tokens", [0, 3])
async def test_a_constraint_that_fails_beside_the_runner_ends_the_answer(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever would come next, such as steps without masks: the device may have computed tokens after the last one."""
    used, got, asked = engine(), list[int](), list[int]()
    ids = list(range(7, 7 + tokens))

    async def failing(source: Any, most: int, unchanged: int) -> MaskedTokens:
        asked.append(most)
        assert len(asked) == 1, "it is not asked again"
        return MaskedTokens(Batch(ids), [False] * tokens, error="it rejects token 8")

    monkeypatch.setattr(used.runner, "sample_masked", failing)

    async def held() -> None:
        async for batch in used.generate(GenerationRequest(PROMPT, GREEDY, AnswerLimits(40, STOPS), strict())):
            got.extend(batch.ids)

    with pytest.raises(WispError, match=r"it rejects token 8") as error:
        await held()
    assert (got, error.value.code) == (ids, "internal_error")


async def test_an_error_of_a_step_leaves_no_wrong_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not known how many steps have run, so no later prompt of a recurrent model goes on from their states."""
    used, ids, got = engine(path=HYBRID), PROMPTS[3], list[int]()
    runner: Any = used.runner
    sample = runner.sample_masked_rows

    async def failing(rows: Any, lists: Any) -> Any:
        if len(got) >= 10:
            raise RuntimeError("a step failed")
        return await sample(rows, lists)

    monkeypatch.setattr(runner, "sample_masked_rows", failing)

    async def held() -> None:
        constraint = strict(jumps=False)
        async for batch in used.generate(GenerationRequest(ids, GREEDY, AnswerLimits(90, STOPS), constraint)):
            got.extend(batch.ids)

    await asyncio.gather(held(), collect(used, PROMPTS[1], WARM, 80), return_exceptions=True)
    assert 10 <= len(got) < 90
    monkeypatch.undo()
    chat = [*ids, *got, 5]
    assert await collect(used, chat, GREEDY, 8) == await collect(make(path=HYBRID), chat, GREEDY, 8)


async def test_an_abort_before_forced_tokens_are_fed_leaves_no_wrong_states() -> None:
    """The first token is handed on before its check has the mask of the next one."""
    used, ids = engine(path=HYBRID), PROMPTS[3]

    class Waits(RandomConstraint):
        async def mask(self) -> Any:
            await asyncio.sleep(0.01)
            return await super().mask()

        async def forced(self) -> list[int]:
            return [9, 4] if len(self.accepted) == 1 else []

    async def aborted() -> None:
        request = GenerationRequest(ids, GREEDY, AnswerLimits(60, STOPS), Waits(0.3, has_source=True))
        stream = used.generate(request)
        async for batch in stream:
            if batch.ids:
                break
        await stream.aclose()

    await asyncio.gather(aborted(), collect(used, PROMPTS[1], WARM, 80))
    for chat in (ids, [*ids, 9, 7]):
        assert await collect(used, chat, GREEDY, 8) == await collect(make(path=HYBRID), chat, GREEDY, 8)
