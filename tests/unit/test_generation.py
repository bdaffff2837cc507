"""The engine's generation on the numpy executor: seeds, aborts, constraints, a full context."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.sampling import Constraint, Sampling
from tests.support.cpu_engines import (
    MODEL,
    PROMPT,
    SHAPED,
    STOPS,
    VOCAB,
    WARM,
    Anything,
    RandomConstraint,
    Runner,
    as_mask,
    batches,
    collect,
    make,
)
from tests.support.cpu_models import evaluate, load

# -- seeds and aborts


@pytest.mark.parametrize("sampling", [WARM, SHAPED], ids=["plain", "shaped"])
async def test_equal_seeds_give_equal_text(sampling: Sampling) -> None:
    """In a fresh engine, with the prompt in the cache, and with a generated answer in the cache."""
    used = make()
    first = await collect(used, PROMPT, sampling, 30)
    assert await collect(used, PROMPT, sampling, 30) == first
    assert used.last.cached_tokens == len(PROMPT) - 1
    longer = PROMPT + first[:20]
    assert await collect(used, longer, sampling, 20) == await collect(make(), longer, sampling, 20)
    await collect(used, longer, Sampling(), 2)
    assert used.last.cached_tokens == len(longer) - 1, "without a seed an answer is not computed again"
    assert await collect(make(), PROMPT, Sampling(temperature=1.5, seed=99), 30) != first


async def test_without_a_seed_text_differs() -> None:
    engine = make()
    assert len({tuple(await collect(engine, PROMPT, Sampling(temperature=2.0), 8)) for _ in range(3)}) == 3


async def test_a_seeded_answer_does_not_depend_on_prefill_batches() -> None:
    prompt = [7 * i % 250 for i in range(50)]
    assert await collect(make(batch=16), prompt, WARM, 12) == await collect(make(batch=64), prompt, WARM, 12)


async def test_an_abort_anywhere_leaves_no_trace() -> None:
    """After a hundred requests closed at random points, the next answer equals a fresh engine's."""
    engine = make()
    dice = random.Random(5)
    want = {True: await collect(make(), PROMPT, WARM, 10), False: await collect(make(), PROMPT, SHAPED, 10)}
    for number in range(100):
        prompt = PROMPT[: dice.randint(1, 6)] + [dice.randrange(250) for _ in range(dice.randint(0, 40))]
        sampling = dice.choice([Sampling(), Sampling(temperature=0, presence_penalty=1, logit_bias=((3, 9.0),)), WARM])
        constraint = OddTokensOnly() if number % 3 == 0 else None
        stream = engine.generate(GenerationRequest(prompt, sampling, AnswerLimits(30, STOPS), constraint))
        for _ in range(dice.randint(0, 12)):
            if await anext(stream, None) is None:
                break
        await stream.aclose()
        if number % 4 == 0:
            plain = bool(number % 8)
            assert await collect(engine, PROMPT, WARM if plain else SHAPED, 10) == want[plain], number


async def test_a_stop_token_ends_the_answer() -> None:
    engine = make()
    whole = await collect(engine, PROMPT, WARM, 20)
    for constraint in (None, Anything()):
        stopped = await collect(engine, PROMPT, WARM, 20, stops=frozenset([whole[7]]), constraint=constraint)
        assert stopped == whole[: whole.index(whole[7]) + 1]


# -- log-probabilities


@pytest.mark.parametrize(
    "sampling", [Sampling(seed=1, logprobs=3), Sampling(seed=1, top_k=5, typical_p=0.9, logprobs=0)]
)
async def test_logprobs_are_those_of_the_models_own_logits(sampling: Sampling) -> None:
    """Log-probabilities are those before all filters; every token of the answer has them."""
    engine = make()
    found = [b for b in await batches(engine, PROMPT, sampling, 8, STOPS) if b.ids]
    ids = [i for b in found for i in b.ids]
    rows = [row for b in found for row in b.logprobs or []]
    logits = evaluate(load(MODEL, 256), PROMPT + ids)[len(PROMPT) - 1 : -1].astype(np.float64)
    want = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    for k, row in enumerate(rows):
        assert row.token == ids[k]
        assert row.logprob == pytest.approx(want[k, ids[k]], abs=1e-3)
        assert [t for t, _ in row.top] == np.argsort(-want[k])[: sampling.logprobs].tolist()
    assert len(rows) == len(ids) == 8
    assert all(b.logprobs is None for b in await batches(engine, PROMPT, WARM, 3, STOPS))


# -- constraints


class OddTokensOnly(Anything):
    """A constraint that allows odd ids only."""

    async def mask(self) -> Any | None:
        return as_mask(np.arange(VOCAB) % 2 == 1)


class TryAcceptConstraint(RandomConstraint):
    """A constraint that checks a single token without a mask."""

    async def try_accept(self, token: int) -> bool:
        allowed = self._allowed()
        if not (allowed[token] or (allowed[0] and allowed[1])):
            return False
        await self.accept(token)
        return True


CONSTRAINTS: dict[str, Callable[[], RandomConstraint]] = {
    "often refused": lambda: RandomConstraint(0.3),
    "seldom refused": lambda: RandomConstraint(0.95, jumps=False),
    "jumps": lambda: RandomConstraint(0.9),
    "tries": lambda: TryAcceptConstraint(0.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("sampling", [Sampling(temperature=0), WARM, SHAPED], ids=["greedy", "plain", "shaped"])
async def test_constrained_sampling_ahead_gives_equal_tokens(name: str, sampling: Sampling) -> None:
    """Sampling with the mask, and sampling ahead at any depth with a later check, give equal tokens. The constraint
    accepts every one of them.
    """
    slow = CONSTRAINTS[name]()
    want = await collect(make(), PROMPT, sampling, 60, constraint=slow)
    assert slow.accepted == want
    for ahead in (5, 17):
        engine, constraint = make(ahead=ahead), CONSTRAINTS[name]()
        assert await collect(engine, PROMPT, sampling, 60, constraint=constraint) == want
        assert constraint.accepted == want
    again = await collect(engine, PROMPT, sampling, 60, constraint=CONSTRAINTS[name]())
    assert again == want, "what was forgotten has left nothing behind"
    assert await collect(engine, PROMPT, WARM, 9) == await collect(make(), PROMPT, WARM, 9)


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [4, 7, 18])
async def test_sampling_ahead_computes_no_position_without_a_page(ahead: int) -> None:
    """Its keys and values would go to a page of another sequence, or of cached tokens: Runner asserts it."""
    engine = make(ahead=ahead, page=16)
    for _ in range(3):
        for sampling in (WARM, Sampling(temperature=0)):
            got = await collect(engine, PROMPT, sampling, 100, constraint=RandomConstraint(0.97, jumps=False))
            assert len(got) == 100


async def test_a_constraint_that_allows_everything_changes_nothing() -> None:
    """A constraint that allows everything changes no token and costs no additional forward passes."""
    want = await collect(make(), PROMPT, SHAPED, 60)
    engine = make(ahead=12)
    assert await collect(engine, PROMPT, SHAPED, 60, constraint=Anything()) == want
    assert isinstance(engine.runner, Runner)
    assert engine.runner.forwards <= 60


async def test_forced_tokens_are_not_computed_one_by_one() -> None:
    engine, constraint = make(), RandomConstraint(0.9)
    got = await collect(engine, PROMPT, WARM, 60, constraint=constraint)
    assert isinstance(engine.runner, Runner)
    assert len(got) == 60
    assert engine.runner.forwards < 50


async def test_constrained_logprobs() -> None:
    """Every token has log-probabilities, forced ones too; requesting them does not change the tokens."""
    for ahead in (1, 9):
        want = await collect(make(), PROMPT, WARM, 40, constraint=RandomConstraint(0.9))
        engine = make(ahead=ahead)
        scored = Sampling(temperature=1.5, seed=3, logprobs=2)
        found = [b for b in await batches(engine, PROMPT, scored, 40, STOPS, constraint=RandomConstraint(0.9)) if b.ids]
        rows = [row for b in found for row in b.logprobs or []]
        assert [row.token for row in rows] == [i for b in found for i in b.ids] == want
        logits = evaluate(load(MODEL, 256), PROMPT + want)[len(PROMPT) - 1 : -1].astype(np.float64)
        scores = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        np.testing.assert_allclose([r.logprob for r in rows], scores[np.arange(40), want], atol=2e-3)


@pytest.mark.parametrize("ahead", [1, 8])
async def test_the_end_of_a_constraint(ahead: int) -> None:
    """After the end of a constraint a stop id follows, or nothing if the request has no stop id."""
    want = await collect(make(), PROMPT, WARM, 30, constraint=RandomConstraint(1.0, jumps=False))
    for stops, end in ((frozenset([302, 303]), [302]), (STOPS, [])):
        assert not stops & set(want)
        constraint = RandomConstraint(1.0, jumps=False, end=20)
        engine = make(ahead=ahead)
        assert await collect(engine, PROMPT, WARM, 30, constraint=constraint, stops=stops) == want[:20] + end
        assert await collect(engine, PROMPT, WARM, 30) == want


# -- a full context


async def shifted(n_ctx: int, keep: int, count: int, sampling: Sampling, constraint: Constraint | None = None) -> Any:
    engine = make(n_ctx)
    got = await collect(engine, PROMPT, sampling, count, keep=keep, constraint=constraint)
    return engine, got


async def test_without_keep_the_context_ends_the_answer() -> None:
    engine = make(16)
    assert len(await collect(engine, PROMPT, WARM, 100)) == 16 - len(PROMPT) + 1
    assert engine.last.shifted_tokens == 0


@pytest.mark.parametrize("keep", [0, 4, 100])
async def test_context_shift(keep: int) -> None:
    """Each shift equals a request with the remaining tokens: exactly, because all of them are computed again."""
    n_ctx, count = 16, 60
    engine, got = await shifted(n_ctx, keep, count, Sampling(temperature=0))
    assert len(got) == count
    history, dropped = list(PROMPT), 0
    want: list[int] = []
    first = min(keep, n_ctx // 2)
    while len(want) < count:
        part = await collect(make(n_ctx), history, Sampling(temperature=0), count - len(want))
        want += part
        history += part
        drop = (len(history) - first) // 2
        dropped += drop if len(want) < count else 0
        del history[first : first + drop]
    assert got == want
    assert engine.last.shifted_tokens == dropped > 0
    assert engine.last.completion_tokens == count


async def test_context_shift_keeps_to_the_request() -> None:
    """Seeds, penalties and constraints continue across a shift."""
    for sampling in (WARM, SHAPED):
        results = [(await shifted(16, 3, 50, sampling, c))[1] for c in (None, Anything(), None)]
        assert results[0] == results[1] == results[2]
    constraint = RandomConstraint(0.5)
    _, got = await shifted(16, 3, 50, WARM, constraint)
    assert constraint.accepted == got


@pytest.mark.parametrize("n_ctx", [1, 2, 3, 5])
async def test_tiny_contexts(n_ctx: int) -> None:
    engine = make(n_ctx, batch=2)
    got = await collect(engine, PROMPT[:1], WARM, 20, keep=2)
    assert len(got) == 20


async def test_wrong_ids() -> None:
    engine = make()
    for sampling, param in (
        (Sampling(logit_bias=((VOCAB, 1.0),)), "logit_bias"),
        (Sampling(dry_breakers=(-1,)), "dry"),
    ):
        with pytest.raises(WispError) as raised:
            await collect(engine, PROMPT, sampling, 1)
        assert raised.value.param is not None
        assert raised.value.param.startswith(param)
