"""Prompts of several requests, read as one batch and one by one."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import PACKED, PACKED_LAST, SMALL_BATCH_LOGITS
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import PREFIX_WORDS
from py_engine.plan.sampling import Sampling, samplers
from py_engine.runners import Row

LENGTHS = (60, 64, 65, 31, 20, 2)
# how many tokens of the common text a prompt begins with, and how many follow it
BEGINNINGS = ((100, 20), (100, 2), (64, 40), (0, 31), (40, 24), (100, 7), (100, 15))
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=1.1, seed=3, top_p=0.9),
    Sampling(temperature=0.8, seed=4, logprobs=2),
    Sampling(temperature=1.0, seed=5, repeat_penalty=1.3, min_p=0.02),
)


async def texts(engine: Engine, tokens: int) -> dict[str, Any]:
    """Answers to prompts that arrive at once, and to each alone; the prompts of every batch that had several."""
    prompts = [_tokens(i, length) for i, length in enumerate(LENGTHS)]
    return await _compare(engine, prompts, tokens)


async def texts_with_beginnings(engine: Engine, tokens: int, cached: bool) -> dict[str, Any]:
    """texts() of prompts with a common beginning, and of one that begins with another text.

    `cached`: earlier requests had both texts.
    """
    common, other = _tokens(20, 100), _tokens(21, 70)
    prompts = [common[:shared] + _tokens(i, rest) for i, (shared, rest) in enumerate(BEGINNINGS)]
    return await _compare(engine, [*prompts, other + _tokens(9, 12)], tokens, [common, other] if cached else [], True)


def _tokens(number: int, length: int) -> list[int]:
    return [(number + 3) * (j + 7) * 13 % 250 + 1 for j in range(length)]


async def _compare(
    engine: Engine, prompts: list[list[int]], tokens: int, before: Sequence[list[int]] = (), grown: bool = False
) -> dict[str, Any]:
    """`before`: prompts that the caches have when the others arrive. `grown`: the caches have pages for all prompts."""
    runner: Any = engine.runner
    packed: list[tuple[int, int]] = []
    feed = runner.feed_prompts

    def counting(batch: PackedBatch, rows: list[Row]) -> None:
        packed.append((len(rows), max(batch.prefixes[::PREFIX_WORDS], default=0)))
        feed(batch, rows)

    async def one(i: int) -> list[Any]:
        request = GenerationRequest(prompts[i], SAMPLINGS[i % len(SAMPLINGS)], AnswerLimits(tokens))
        batches = [batch async for batch in engine.generate(request)]
        scores = [entry for batch in batches for entry in batch.logprobs or []]
        return [[token for batch in batches for token in batch.ids], repr(scores)]

    runner.feed_prompts, runner.prompt_tokens_in = counting, lambda ms: 512
    pairs = itertools.combinations(SAMPLINGS, 2)
    lists = {name for pair in pairs for name in samplers(pair, masked=False, batch=True)}
    await runner.prepare([PACKED, PACKED_LAST, SMALL_BATCH_LOGITS, *lists])
    if grown:  # pages of one context are too few: requests would wait for more, and be read one by one
        await asyncio.gather(*(one(i) for i in range(len(prompts))))
        engine.forget()
        packed.clear()
    for ids in before:
        async for _ in engine.generate(GenerationRequest(ids, SAMPLINGS[0], AnswerLimits(1))):
            pass
    beside = await asyncio.gather(*(one(i) for i in range(len(prompts))))
    engine.forget()
    packed_beside, packed = packed[:], []
    alone = []
    for i in range(len(prompts)):
        engine.forget()
        alone.append(await one(i))
    return {"beside": beside, "alone": alone, "packed": packed_beside, "packed_alone": packed}
