"""Drafts of several sequences in the same steps: each has the text that it has alone without drafts, in fewer steps."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.generate.speculation import UNKNOWN_ROW_COST, drafts_pay, lookup_gain
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import Row
from tests.support import wasm_engines
from tests.support.cpu_engines import (
    GREEDY,
    MODEL,
    PROMPT,
    PROMPTS,
    SHAPED,
    STOPS,
    WARM,
    RandomConstraint,
    batches,
    collect,
    counts,
    engine,
    make,
)

pytestmark = pytest.mark.slow

THREE = tuple((token, 40.0) for token in (5, 9, 13))  # what the model may sample, so that it repeats itself
COLD = Sampling(temperature=0.3, seed=5, logit_bias=THREE)
PENALISED = Sampling(temperature=0.2, seed=9, top_p=0.9, presence_penalty=0.1, repeat_penalty=1.01, logit_bias=THREE)
REPEATING = Sampling(temperature=0, logit_bias=THREE)
KINDS = [(PROMPT * 6, REPEATING), (PROMPT * 6, COLD), ([5] * 40, GREEDY), (PROMPTS[4] * 5, PENALISED)]


def accepted(used: Engine) -> int:
    """Draft tokens that were accepted."""
    totals = used._generation.totals
    return totals.draft_tokens - totals.draft_steps


@pytest.mark.parametrize("count", [2, 4])
async def test_sequences_share_steps_with_drafts(count: int) -> None:
    """Greedy, seeded and with penalties, where the model repeats itself: drafts are accepted."""
    used, kinds = engine(draft=True), KINDS[:count]
    want = [await collect(make(), ids, kind, 150) for ids, kind in kinds]
    assert await asyncio.gather(*(collect(used, ids, kind, 150) for ids, kind in kinds)) == want
    totals, steps = used._generation.totals, counts(used).verified
    assert totals.draft_steps > 1.4 * steps > 0, "most steps have drafts of several"
    assert accepted(used) > 0.5 * totals.draft_steps
    assert totals.model_drafted == 0
    assert used.stats()["totals"]["draft_tokens"] == totals.draft_tokens


@pytest.mark.parametrize("kind", [WARM, SHAPED], ids=["seed", "shaped"])
async def test_text_that_nothing_predicts_stays_the_same(kind: Sampling) -> None:
    used = engine(draft=True, parallel=6)
    want = [await collect(make(), ids, kind, 40) for ids in PROMPTS]
    assert await asyncio.gather(*(collect(used, ids, kind, 40) for ids in PROMPTS)) == want
    assert counts(used).verified


async def test_a_full_batch_has_no_row_for_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once half of the sequences have ended, the others have."""
    used, drafted, shared = engine(draft=True, parallel=SHORT_BATCH), set(), 0
    draft, decode = counts(used).draft, counts(used).decode

    def drafting(rows: Sequence[Row], *args: Any) -> bool:
        drafted.add(len(rows))
        return draft(rows, *args)

    def decoding(rows: Sequence[Row], steps: int) -> None:
        nonlocal shared
        shared += len(rows) == SHORT_BATCH
        decode(rows, steps)

    monkeypatch.setattr(counts(used), "draft", drafting)
    monkeypatch.setattr(counts(used), "decode", decoding)
    want = await collect(make(), [5] * 9, GREEDY, 150)
    lengths = [100, 150] * (SHORT_BATCH // 2)
    got = await asyncio.gather(*(collect(used, [5] * 9, GREEDY, length) for length in lengths))
    assert got == [want[:length] for length in lengths]
    assert drafted
    assert max(drafted) < SHORT_BATCH
    assert shared > 10, shared


async def test_an_answer_under_a_constraint_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets other States between two time slices."""
    monkeypatch.setattr("py_engine.generate.time_slices.TIME_SLICE", 0.0)
    used = engine(draft=True)
    *got, constrained = await asyncio.gather(
        *(collect(used, ids, kind, 120) for ids, kind in KINDS[:3]),
        collect(used, PROMPT, SHAPED, 30, constraint=RandomConstraint(0.6)),
    )
    assert got == [await collect(make(), ids, kind, 120) for ids, kind in KINDS[:3]]
    assert constrained == await collect(make(), PROMPT, SHAPED, 30, constraint=RandomConstraint(0.6))
    assert accepted(used)


async def test_log_probabilities_end_the_drafts_of_a_batch() -> None:
    """Verified drafts have none. Drafts begin again when that answer ends."""
    used, scored = engine(draft=True), Sampling(temperature=0, logprobs=3)
    want = await batches(make(), PROMPT, scored, 20)
    texts, got = await asyncio.gather(
        asyncio.gather(*(collect(used, ids, kind, 80) for ids, kind in KINDS[:2])), batches(used, PROMPT, scored, 20)
    )
    assert texts == [await collect(make(), ids, kind, 80) for ids, kind in KINDS[:2]]
    assert [row.token for b in got for row in b.logprobs or []] == [i for b in want for i in b.ids]
    assert counts(used).each > 5
    assert accepted(used)


async def test_aborts_and_arrivals_in_mid_answer() -> None:
    """The others go on where their drafts were accepted to, whoever comes and goes."""
    used, dice = engine(draft=True), random.Random(4)
    want = [await collect(make(), ids, kind, 100) for ids, kind in KINDS]

    async def one(which: int) -> None:
        ids, kind = KINDS[which]
        for _ in range(6):
            stream = used.generate(GenerationRequest(ids, kind, AnswerLimits(100, STOPS)))
            out: list[int] = []
            count = dice.randint(1, 90)
            while len(out) < count and (batch := await anext(stream, None)) is not None:
                out += batch.ids
            await stream.aclose()
            assert out == want[which][: len(out)]
            assert len(out) >= count

    await asyncio.gather(*(one(which) for which in range(len(KINDS))))
    assert used._generation.totals.draft_steps > 1.3 * counts(used).verified > 0
    assert [await collect(used, ids, kind, 100) for ids, kind in KINDS] == want


async def test_contexts_and_limits_end_at_different_times() -> None:
    """Two contexts end, one is shifted, and two answers end at a limit and at a stop token."""
    used, n_ctx = engine(n_ctx=96, draft=True, parallel=6), 96
    whole = await collect(make(n_ctx), [5] * 40, GREEDY, 60)
    stop = next(token for token in whole[20:] if token not in whole[:20])
    cases: list[tuple[list[int], Sampling, int, dict[str, Any]]] = [
        ([5] * 40, GREEDY, 200, {}),
        (PROMPT * 3, GREEDY, 200, {}),
        (PROMPT, COLD, 150, {"keep": 3}),
        (PROMPT * 6, GREEDY, 13, {}),
        ([5] * 40, GREEDY, 60, {"stops": frozenset([stop])}),
    ]
    want = [await collect(make(n_ctx), ids, kind, n, **more) for ids, kind, n, more in cases]
    assert await asyncio.gather(*(collect(used, ids, kind, n, **more) for ids, kind, n, more in cases)) == want
    assert len(want[0]) == n_ctx - 40 + 1
    assert accepted(used)


async def test_sequences_that_draft_wait_for_pages() -> None:
    """Young requests release their pages in mid-draft and continue later."""
    used = engine(n_ctx=128, page=8, draft=True)

    async def refuse(pages: Any, turn: Any) -> None:
        raise WispError("no memory", "out_of_memory")

    counts(used).reserve_pages = refuse  # type: ignore[method-assign]
    prompts = [[5] * 12, [7, 9] * 5, PROMPT * 2, [3, 4, 4] * 3]
    got = await asyncio.gather(*(collect(used, ids, COLD, 45) for ids in prompts))
    assert got == [await collect(make(128), ids, COLD, 45) for ids in prompts]
    assert used._generation.totals.draft_steps > counts(used).verified > 0
    for pool in used._generation.sequences.cache.pools:
        assert (pool.held, pool.available) == (0, pool.size)


async def test_the_cpu_engine_drafts_for_several() -> None:
    prompts = [[1, 5, 9, 13] * 4, [7] * 20, [3, 5, 8] * 6]
    kinds = [GREEDY, COLD, PENALISED]
    plain = await wasm_engines.load(MODEL, 256)
    plain.runner.step_ms = lambda rows, *, drafting=False, **_: 100.0 if drafting else 1.0  # type: ignore[method-assign]
    want = [await collect(plain, ids, kind, 60) for ids, kind in zip(prompts, kinds, strict=True)]
    assert plain._generation.totals.draft_steps == 0
    used = await wasm_engines.load(MODEL, 256)
    used.runner.step_ms = lambda rows, *, drafting=False, **_: 1.0 if drafting else 100.0  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, kind, 60) for ids, kind in zip(prompts, kinds, strict=True)))
    assert got == want
    assert accepted(used) > 0.3 * used._generation.totals.draft_steps > 0


# -- whether they pay


def test_the_gain_of_drafts_is_that_of_the_likeliest_ones() -> None:
    """A sequence whose text repeats itself makes drafts pay for one whose text does not, as long as a row is left."""
    assert drafts_pay(lookup_gain([0.9, 0.0], 1.0, 2.5), on=False), "6.2 tokens for 2 of plain steps"
    assert not drafts_pay(lookup_gain([0.9, 0.0], 1.0, 3.2), on=True)
    assert not drafts_pay(lookup_gain([0.0, 0.0], 1.0, 1.01), on=True)
    assert drafts_pay(lookup_gain([1.0] * 4, 1.0, 1.7), on=False), "8 tokens for 4"
    assert not drafts_pay(lookup_gain([1.0] * 4, 1.0, 1.8), on=False)
    assert drafts_pay(lookup_gain([1.0] * 4, 1.0, 1.8), on=True), "less is enough to go on"
    assert not drafts_pay(lookup_gain([1.0] * 7, 1.0, 1.0), on=False), "8 tokens for 7"


@pytest.mark.parametrize("count", [1, 2, 6])
def test_an_unknown_cost_counts_the_rows_that_drafts_may_add(count: int) -> None:
    assumed = 1 + UNKNOWN_ROW_COST * (SHORT_BATCH - count)
    for fraction in (0.1, 0.2, 0.4, 1.0):
        known = drafts_pay(lookup_gain([fraction] * count, 1.0, assumed), on=False)
        assert drafts_pay(lookup_gain([fraction] * count, 1.0, 0.0), on=False) == known
        assert drafts_pay(lookup_gain([fraction] * count, 0.0, 2.0), on=False) == known
    assert drafts_pay(lookup_gain([1.0] * count, 0.0, 0.0), on=False)
    assert not drafts_pay(lookup_gain([0.0] * count, 0.0, 0.0), on=False)
