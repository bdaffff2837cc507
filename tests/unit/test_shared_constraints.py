"""Answers under a constraint that share steps with others: the same tokens as alone, in about as many steps."""

import asyncio
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import (
    GREEDY,
    PROMPT,
    PROMPTS,
    SHAPED,
    STOPS,
    VOCAB,
    WARM,
    Anything,
    Counting,
    RandomConstraint,
    collect,
    make,
)

LOGPROBS = Sampling(temperature=1.1, seed=6, logprobs=2)


def engine(parallel: int = 4, n_ctx: int = 256, page: int = 64, batch: int = 16) -> Engine:
    made = make(n_ctx, batch, parallel=parallel, page=page)
    counting = Counting(made.plan)
    counting._cpu = made.runner._cpu  # type: ignore[attr-defined]
    return Engine(made.plan, counting, "cpu", parallel)


def counts(used: Engine) -> Counting:
    assert isinstance(used.runner, Counting)
    return used.runner


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED, LOGPROBS], ids=["greedy", "seed", "shaped", "logprobs"])
@pytest.mark.parametrize("fraction", [0.97, 0.3])
async def test_a_constrained_answer_shares_steps_with_free_ones(sampling: Sampling, fraction: float) -> None:
    used = engine()
    want = await collect(make(), PROMPT, sampling, 40, constraint=RandomConstraint(fraction))
    free = await collect(make(), PROMPTS[1], WARM, 60)
    got = await asyncio.gather(
        collect(used, PROMPT, sampling, 40, constraint=RandomConstraint(fraction)),
        collect(used, PROMPTS[1], WARM, 60),
    )
    assert list(got) == [want, free]
    assert counts(used).each >= (30 if fraction > 0.9 else 3), "not where the mask changes most tokens"


async def test_constrained_answers_share_steps_with_each_other() -> None:
    used = engine(parallel=6)
    samplings = [GREEDY, WARM, SHAPED, LOGPROBS]
    want = [
        await collect(make(), ids, sampling, 40, constraint=RandomConstraint(0.9))
        for ids, sampling in zip(PROMPTS, samplings, strict=False)
    ]
    got = await asyncio.gather(
        *(
            collect(used, ids, sampling, 40, constraint=RandomConstraint(0.9))
            for ids, sampling in zip(PROMPTS, samplings, strict=False)
        )
    )
    assert got == want
    assert counts(used).each >= 30, "160 tokens"


@pytest.mark.slow
@pytest.mark.parametrize("slice_s", [0.0, 0.002, 0.05])
@pytest.mark.parametrize("pauses", [0, 5])
async def test_a_constrained_answer_goes_on_alone_and_beside_others_again(
    slice_s: float, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others come and go while it is decoded; what it has forced and masked is not lost between."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", slice_s)
    used = engine()
    want = await collect(make(), PROMPT, WARM, 120, constraint=RandomConstraint(0.8))
    passing = await collect(make(), PROMPTS[1], GREEDY, 8)
    answer = asyncio.ensure_future(collect(used, PROMPT, WARM, 120, constraint=RandomConstraint(0.8)))
    rounds = 0
    while not answer.done():
        assert await collect(used, PROMPTS[1], GREEDY, 8) == passing
        rounds += 1
        for _ in range(pauses):
            await asyncio.sleep(0)
    assert await answer == want
    assert rounds > 3


async def test_a_long_prompt_of_another_request_does_not_stop_a_constrained_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It joins the scheduler at once, and gets tokens between the parts of that prompt."""
    used = engine()
    monkeypatch.setattr(counts(used), "prompt_tokens_in", lambda ms: 16)
    order: list[str] = []

    async def one(name: str, ids: list[int], sampling: Sampling, count: int, constraint: Any = None) -> list[int]:
        out: list[int] = []
        request = GenerationRequest(ids, sampling, AnswerLimits(count, STOPS), constraint)
        async for batch in used.generate(request):
            if batch.ids or name == "prompt":
                order.append(name)
            out += batch.ids
            if name == "held" and len(out) == 10:
                begun.set()
        return out

    begun = asyncio.Event()
    long = [7 * i % 250 for i in range(160)]
    held = asyncio.ensure_future(one("held", PROMPT, WARM, 60, RandomConstraint(0.97)))
    await begun.wait()
    await one("prompt", long, GREEDY, 1)
    assert await held == await collect(make(), PROMPT, WARM, 60, constraint=RandomConstraint(0.97))
    during = order[order.index("prompt") : len(order) - order[::-1].index("prompt")]
    assert during.count("prompt") >= 8
    assert during.count("held") >= 4


async def test_forced_tokens_are_fed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    used = engine()
    fed: list[int] = []
    feed = used.runner.feed

    def counting(position: int, ids: list[int], lists: Any, *args: Any, **kwargs: Any) -> Any:
        if tuple(lists) == (SMALL_BATCH,) and not kwargs:
            fed.append(len(ids))
        return feed(position, ids, lists, *args, **kwargs)

    monkeypatch.setattr(used.runner, "feed", counting)
    want = await collect(make(), PROMPT, GREEDY, 60, constraint=RandomConstraint(0.97))
    free = collect(used, PROMPTS[1], WARM, 100)
    got, _ = await asyncio.gather(collect(used, PROMPT, GREEDY, 60, constraint=RandomConstraint(0.97)), free)
    assert got == want
    assert max(fed) == 3, "the token before three forced ones, and two of them"


async def test_a_constraint_that_ends_the_answer() -> None:
    used = engine()
    ended, free = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 60, constraint=RandomConstraint(0.9, end=7), stops=frozenset({2})),
        collect(used, PROMPTS[1], WARM, 60),
    )
    assert ended == await collect(
        make(), PROMPT, GREEDY, 60, constraint=RandomConstraint(0.9, end=7), stops=frozenset({2})
    )
    assert ended[-1] == 2
    assert free == await collect(make(), PROMPTS[1], WARM, 60)


class Failing(Anything):
    """A constraint that fails after some tokens."""

    async def try_accept(self, token: int) -> bool:
        if len(self.accepted) == 5:
            raise WispError("The mask engine has failed.", "constraint_failed")
        await self.accept(token)
        return True


async def test_a_constraint_that_fails_ends_its_own_request_only() -> None:
    used = engine()
    failed, free = await asyncio.gather(
        collect(used, PROMPT, GREEDY, 60, constraint=Failing()),
        collect(used, PROMPTS[1], WARM, 60),
        return_exceptions=True,
    )
    assert isinstance(failed, WispError)
    assert failed.code == "constraint_failed"
    assert free == await collect(make(), PROMPTS[1], WARM, 60)
    again = await collect(used, PROMPT, WARM, 20, constraint=RandomConstraint())
    assert again == await collect(make(), PROMPT, WARM, 20, constraint=RandomConstraint())


@pytest.mark.parametrize("has_source", [False, True])
async def test_an_aborted_constrained_answer_leaves_no_mask(has_source: bool) -> None:
    used = engine()

    async def aborted() -> None:
        request = GenerationRequest(
            PROMPT, GREEDY, AnswerLimits(60, STOPS), RandomConstraint(0.2, has_source=has_source)
        )
        count = 0
        async for batch in used.generate(request):
            count += len(batch.ids)
            if count > 5:
                return

    free, _ = await asyncio.gather(collect(used, PROMPTS[1], WARM, 60), aborted())
    assert free == await collect(make(), PROMPTS[1], WARM, 60)
    assert await collect(used, PROMPT, GREEDY, 20) == await collect(make(), PROMPT, GREEDY, 20)


@pytest.mark.slow
@pytest.mark.parametrize("slice_s", [0.0, 0.05])
async def test_pages_that_are_lacking(slice_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers wait for pages of others, and none writes to a page that it does not have."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", slice_s)
    used = engine(n_ctx=128, page=16)
    prompts = [[i, *range(30, 60)] for i in range(4)]
    want = [await collect(make(128), ids, WARM, 80, constraint=RandomConstraint(0.9)) for ids in prompts]
    got = await asyncio.gather(*(collect(used, ids, WARM, 80, constraint=RandomConstraint(0.9)) for ids in prompts))
    assert got == want


class Literal(Anything):
    """A constraint that forces a long text from its token `first` on."""

    def __init__(self, first: int = 3) -> None:
        super().__init__()
        self.first = first

    async def forced(self) -> list[int]:
        at = len(self.accepted)
        return [(i * 7) % VOCAB for i in range(at, 50)] if self.first <= at < 50 else []


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [WARM, GREEDY], ids=["seed", "greedy"])
@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("count", [60, 50, 40, 10])
async def test_a_forced_text_longer_than_a_batch(count: int, first: int, sampling: Sampling) -> None:
    """A batch of these engines has 16 tokens. The answer may end within the text."""
    used = engine()
    got, free = await asyncio.gather(
        collect(used, PROMPT, sampling, count, constraint=Literal(first), stops=frozenset({2})),
        collect(used, PROMPTS[1], WARM, 80),
    )
    assert got == await collect(make(), PROMPT, sampling, count, constraint=Literal(first), stops=frozenset({2}))
    assert free == await collect(make(), PROMPTS[1], WARM, 80)


HELD = [9, *PROMPT, 9]


class Rounds(Counting):
    """A runner that notes which lists compute the positions of each sequence."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.computed: dict[int, list[tuple[int, str]]] = {}
        self.held = 0  # the sequence whose prompt begins with HELD's first token

    def _note(self, seq: int, first: int, count: int, name: str) -> None:
        self.computed.setdefault(seq, []).extend((at, name) for at in range(first, first + count))

    def feed(self, position: int, ids: list[int], lists: Any, seq: int = 0, **options: Any) -> Any:
        if not position and ids[0] == HELD[0]:
            self.held = seq
        self._note(seq, position, len(ids), lists[0])
        return super().feed(position, ids, lists, seq, **options)

    def decode(self, rows: Any, steps: int) -> None:
        for row in rows:
            self._note(row.seq, row.position, steps, DECODE)
        super().decode(rows, steps)

    def rewind(self, position: int, count: int) -> None:
        self._note(self._row.seq, position - 1, 1, DECODE)
        super().rewind(position, count)


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("constraint", [RandomConstraint, Literal, lambda: Literal(0)], ids=["random", "text", "first"])
async def test_positions_are_rounded_alike_alone_and_beside_others(others: int, constraint: Any) -> None:
    """The text of a seed depends on it: positions of the prompt are computed once, all others as in decoding."""
    made = make(256, 16, parallel=4)
    rounds = Rounds(made.plan)
    rounds._cpu = made.runner._cpu  # type: ignore[attr-defined]
    used = Engine(made.plan, rounds, "cpu", 4)
    beside = [asyncio.ensure_future(collect(used, PROMPTS[1], WARM, 150)) for _ in range(others)]
    await asyncio.sleep(0)
    got = await collect(used, HELD, WARM, 60, constraint=constraint())
    assert len(got) == 60
    for task in beside:
        task.cancel()
    computed = rounds.computed[rounds.held]
    assert [name for at, name in computed if at < len(HELD)] == [PREFILL] * len(HELD)
    assert {name for at, name in computed if at >= len(HELD)} <= {DECODE, SMALL_BATCH}


class Ends(Anything):
    """A constraint that forces some tokens after six, and then ends."""

    def __init__(self, forced: int) -> None:
        super().__init__()
        self.count = 6 + forced

    async def forced(self) -> list[int]:
        at = len(self.accepted)
        return [(i * 7) % VOCAB + 3 for i in range(at, self.count)] if at >= 6 else []

    def finished(self) -> bool:
        return len(self.accepted) >= self.count


@pytest.mark.slow
@pytest.mark.parametrize("forced", [1, 4, 10])
@pytest.mark.parametrize("most", [60, 12])
async def test_what_a_constrained_answer_leaves_in_the_caches_is_right(forced: int, most: int) -> None:
    """Its last tokens are forced: the next question of the chat, without a seed, goes on from what they left."""
    cold = Sampling(temperature=1e-5)
    used, fresh = engine(page=16), make(page=16)
    for length in range(1, 18):
        prompt = [11, *(5 * i % 250 for i in range(length))]
        got, _ = await asyncio.gather(
            collect(used, prompt, cold, most, constraint=Ends(forced), stops=frozenset({2})),
            collect(used, PROMPTS[1], WARM, 40),
        )
        chat = [*prompt, *got, 5]
        again = await collect(used, chat, cold, 6)
        assert used.last.cached_tokens >= len(prompt)
        assert again == await collect(fresh, chat, Sampling(temperature=1e-5, seed=1), 6)


@pytest.mark.parametrize("length", [24, 31])
async def test_forced_tokens_at_the_end_of_the_context(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is fed beyond the context, where the next sequence's block table begins."""
    used = engine(n_ctx=64, page=16, batch=64)
    feed, ends = used.runner.feed, list[int]()

    def noting(position: int, ids: list[int], *args: Any, **kwargs: Any) -> Any:
        ends.append(position + len(ids))
        return feed(position, ids, *args, **kwargs)

    monkeypatch.setattr(used.runner, "feed", noting)
    prompt = [7 * i % 250 for i in range(length)]
    free, got = await asyncio.gather(
        collect(used, PROMPTS[1], WARM, 55), collect(used, prompt, WARM, 60, constraint=Literal())
    )
    assert got == await collect(make(64, 64), prompt, WARM, 60, constraint=Literal())
    assert free == await collect(make(64, 64), PROMPTS[1], WARM, 55)
    assert max(ends) <= 64
