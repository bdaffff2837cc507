"""Prompts of several requests, read as one batch and one by one."""

import asyncio
import itertools
from typing import Any

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import PACKED, PACKED_LAST, SMALL_BATCH_LOGITS
from py_engine.plan.packing import PackedBatch
from py_engine.plan.sampling import Sampling, samplers
from py_engine.runners import Row

LENGTHS = (60, 64, 65, 31, 20, 2)
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=1.1, seed=3, top_p=0.9),
    Sampling(temperature=0.8, seed=4, logprobs=2),
    Sampling(temperature=1.0, seed=5, repeat_penalty=1.3, min_p=0.02),
)


async def texts(engine: Engine, tokens: int) -> dict[str, Any]:
    """Answers to prompts that arrive at once, and to each alone; the prompts of every batch that had several."""
    runner: Any = engine.runner
    prompts = [[(i + 3) * (j + 7) * 13 % 250 + 1 for j in range(length)] for i, length in enumerate(LENGTHS)]
    packed: list[int] = []
    feed = runner.feed_prompts

    def counting(batch: PackedBatch, rows: list[Row]) -> None:
        packed.append(len(rows))
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
    beside = await asyncio.gather(*(one(i) for i in range(len(LENGTHS))))
    engine.forget()
    packed_beside, packed = packed[:], []
    alone = []
    for i in range(len(LENGTHS)):
        engine.forget()
        alone.append(await one(i))
    return {"beside": beside, "alone": alone, "packed": packed_beside, "packed_alone": packed}
