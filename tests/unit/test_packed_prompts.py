"""Requests that come together: which batches read their prompts, and that every text is the one that it is alone."""

import asyncio
from pathlib import Path

import pytest

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import EVERY, GREEDY, MODEL, SHAPED, STOPS, WARM
from tests.support.cpu_models import GOLDEN
from tests.support.packing_runner import packing_engine

PAGE, N_CTX = 16, 256
SAMPLINGS = (GREEDY, WARM, EVERY, SHAPED)
SYSTEM = [7 * i % 250 + 1 for i in range(40)]  # ends within the third page
GEMMA = GOLDEN / "gemma" / "gemma3.F16.gguf"
LFM = GOLDEN / "lfm2" / "lfm2.F16.gguf"


def question(number: int, length: int) -> list[int]:
    return [(number + 3) * (j + 5) * 11 % 250 + 1 for j in range(length)]


async def text(engine: Engine, ids: list[int], sampling: Sampling, count: int = 6) -> list[int]:
    request = GenerationRequest(ids, sampling, AnswerLimits(count, STOPS))
    return [token async for batch in engine.generate(request) for token in batch.ids]


async def texts(engine: Engine, prompts: list[list[int]]) -> list[list[int]]:
    pairs = [(ids, SAMPLINGS[i % len(SAMPLINGS)]) for i, ids in enumerate(prompts)]
    return await asyncio.wait_for(asyncio.gather(*(text(engine, *pair) for pair in pairs)), 120)


async def alone(prompts: list[list[int]], path: Path = MODEL) -> list[list[int]]:
    engine, _ = packing_engine(N_CTX, N_CTX, PAGE, path)
    found = []
    for i, ids in enumerate(prompts):
        engine.forget()
        found.append(await text(engine, ids, SAMPLINGS[i % len(SAMPLINGS)]))
    return found


@pytest.mark.parametrize("path", [MODEL, GEMMA], ids=["full attention", "windows"])
async def test_eight_questions_after_one_system_prompt_are_two_batches(path: Path) -> None:
    """The first reads the system prompt with its own question; one batch has what the caches lack of all others."""
    prompts = [SYSTEM + question(i, 3 + i) for i in range(8)]
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE, path)
    assert await texts(engine, prompts) == await alone(prompts, path)
    assert runner.batches == [(1, 43, 0), (7, sum(range(4, 11)), 32)]


async def test_questions_after_a_known_document_are_one_batch() -> None:
    """Also the first one; a document that ends with a page needs no copy of its last one."""
    document = question(50, 64)
    prompts = [document + question(i, 5) for i in range(4)]
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE)
    await text(engine, document, GREEDY, 1)
    runner.batches.clear()
    assert await texts(engine, prompts) == await alone(prompts)
    assert runner.batches == [(4, 20, 64)]


@pytest.mark.parametrize("path", [MODEL, GEMMA], ids=["full attention", "windows"])
async def test_prompts_with_other_beginnings_share_a_batch(path: Path) -> None:
    """Those of two system prompts, of a part of one, and some without."""
    other = question(60, 35)
    prompts = [
        SYSTEM + question(1, 9), question(2, 20), other + question(3, 4), SYSTEM[:20] + question(4, 7), question(5, 2),
    ]  # fmt: skip
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE, path)
    await text(engine, SYSTEM, GREEDY, 1)
    await text(engine, other, GREEDY, 1)
    runner.batches.clear()
    assert await texts(engine, prompts) == await alone(prompts, path)
    assert [number for number, *_ in runner.batches] == [5]
    assert runner.batches[0][2] == 16  # whole pages that both have


async def test_a_batch_has_the_positions_of_one_context() -> None:
    """Shared pages count once: of six prompts of 160 tokens each, all fit but for what they do not share."""
    document = question(50, 144)
    prompts = [document + question(i, 16) for i in range(6)] + [question(9, 90)]
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE)
    await text(engine, document, GREEDY, 1)
    runner.batches.clear()
    assert await texts(engine, prompts) == await alone(prompts)
    assert runner.batches == [(6, 96, 144), (1, 90, 0)]


async def test_a_batch_ends_within_the_context_of_the_prompt_that_it_begins_with() -> None:
    """Also in a context that ends within a page: its tokens follow those that the caches have of that prompt."""
    n_ctx, document = 250, question(50, 128)
    engine, runner = packing_engine(n_ctx, N_CTX, PAGE)
    await text(engine, document, GREEDY, 1)
    prompts = [document + question(9, 15), *(question(i, 16) for i in range(7))]
    await texts(engine, prompts)
    assert max(count for count, *_ in runner.batches) > 1
    assert all(begin + tokens <= n_ctx for _, tokens, begin in runner.batches), runner.batches


async def test_a_short_question_without_a_seed_is_packed_too() -> None:
    """Alone, a small batch would read it, which rounds otherwise; nobody can ask for that text again."""
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE)
    runner.on_gpu = True
    await text(engine, SYSTEM, GREEDY, 1)
    runner.batches.clear()
    free = Sampling(temperature=1.0)
    await asyncio.gather(*(text(engine, SYSTEM + question(i, 4), free) for i in range(3)))
    assert [number for number, *_ in runner.batches] == [3]


async def test_a_model_whose_kernels_know_no_gaps_packs_whole_prompts_only() -> None:
    engine, runner = packing_engine(N_CTX, N_CTX, PAGE, LFM)
    whole, known = [question(i, 9) for i in range(3)], [SYSTEM + question(i, 9) for i in range(3)]
    assert await texts(engine, whole) == await alone(whole, LFM)
    await text(engine, SYSTEM, GREEDY, 1)
    runner.batches.clear()
    assert await texts(engine, known) == await alone(known, LFM)
    assert [number for number, *_ in runner.batches] == [1, 1, 1]


async def test_requests_are_admitted_by_what_the_caches_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait are looked up in the caches when these have changed, not whenever another one comes or joins."""
    engine, runner = packing_engine(2 * N_CTX, N_CTX, PAGE, parallel=32)
    prompts = [SYSTEM + question(i, 3 + i % 5) for i in range(24)]
    counted, known = list[int](), SequenceCache.known

    def counting(cache: SequenceCache, ids: list[int], exact: bool = False) -> int:
        counted.append(len(ids))
        return known(cache, ids, exact)

    monkeypatch.setattr(SequenceCache, "known", counting)
    found = await texts(engine, prompts)
    assert [number for number, *_ in runner.batches] == [1, 8, 8, 7]
    assert len(counted) < 3 * len(prompts)
    assert found == await alone(prompts)
