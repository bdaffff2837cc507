"""Drafts that follow from the text so far: the same text in fewer steps, within the answer's limits."""

import asyncio
import random

import pytest

from py_engine.generate.speculation import Predictions, drafts_pay, lookup_gain
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import GREEDY, PROMPT, SHAPED, RandomConstraint, collect, counts, engine, make


@pytest.mark.slow
async def test_accepted_drafts_are_the_tokens_of_plain_decoding() -> None:
    """The tiny model soon repeats itself, so drafts are right. The text is equal and takes fewer steps."""
    repeated = PROMPT * 6
    for prompt, sampling in ((PROMPT, GREEDY), (repeated, GREEDY), (repeated, Sampling(temperature=0.3, seed=5))):
        drafting, plain = engine(draft=True), engine()
        got = await collect(drafting, prompt, sampling, 150)
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


async def test_drafts_go_on_after_another_answer_held_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer under a constraint sets other States between two time slices."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    used, constraint = engine(draft=True), RandomConstraint(0.6)
    got = await asyncio.gather(
        collect(used, [5] * 40, GREEDY, 120), collect(used, PROMPT, SHAPED, 40, constraint=constraint)
    )
    assert counts(used).verified
    assert got[0] == await collect(make(), [5] * 40, GREEDY, 120)
    assert got[1] == await collect(make(), PROMPT, SHAPED, 40, constraint=RandomConstraint(0.6))


def test_drafts_are_accepted_in_repetitive_text() -> None:
    dice = random.Random(3)
    text = [dice.randrange(300) for _ in range(200)]
    new, old = Predictions(text), Predictions(text)
    new.add([dice.randrange(300) for _ in range(60)])
    assert not drafts_pay(lookup_gain([new.fraction], 1.0, 1.4), on=False)
    old.add(text[50:110])
    assert drafts_pay(lookup_gain([old.fraction], 1.0, 1.4), on=False)
    assert not drafts_pay(lookup_gain([old.fraction], 1.0, 30.0), on=True)
    old.add([dice.randrange(300) for _ in range(60)])
    assert not drafts_pay(lookup_gain([old.fraction], 1.0, 1.4), on=True), "off by itself"
