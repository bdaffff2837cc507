"""Adapters on a GPU of any speed: a golden's sets of scales, and requests with different ones side by side."""

import asyncio
from typing import Any

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest, GenerationStats
from py_engine.plan.lists import BATCH_FORWARD, GREEDY, adapted, each
from py_engine.plan.sampling import Sampling
from tests.support.page.engines import evaluate

Scales = list[float]


async def _answer(engine: Engine, prompt: list[int], scales: Scales, count: int) -> tuple[list[int], int]:
    """A greedy answer, and how many tokens of the prompt were cached."""
    stats = GenerationStats()
    request = GenerationRequest(prompt, Sampling(temperature=0), AnswerLimits(count), scales=scales)
    return [token async for batch in engine.generate(request, stats) for token in batch.ids], stats.cached_tokens


async def sets(engine: Engine, prompt: list[int], sets: dict[str, Scales], count: int) -> dict[str, Any]:
    """Logits and answers with each set of scales, alone and side by side; the proof of the kernels."""
    found: dict[str, Any] = {"alone": {}, "logits": {}}
    for name, scales in sets.items():
        engine.scales = scales
        found["logits"][name] = await evaluate(engine, prompt)
        found["alone"][name], _ = await _answer(engine, prompt, scales, count)
    own = [name for name in map(adapted, BATCH_FORWARD) if name in engine.plan.lists]
    await engine.runner.prepare([*own, *BATCH_FORWARD, each(GREEDY)])
    engine.forget()
    given = list(sets.values())[: engine.parallel]
    beside = await asyncio.gather(*(_answer(engine, prompt, scales, count) for scales in given))
    again = [await _answer(engine, prompt, scales, 1) for scales in given]
    found |= {"beside": [ids for ids, _ in beside], "cached": [cached for _, cached in beside]}
    return found | {"again": [cached for _, cached in again], "proof": engine.stats()["proof"]}
