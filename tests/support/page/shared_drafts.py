"""Answers of several requests on a GPU whose steps have drafts by prompt lookup, and of each alone without drafts."""

import asyncio
from typing import Any

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import BATCH_FORWARD, SHAPED_DRAW, SHAPED_GREEDY, SHAPED_SAMPLE, each, verify
from py_engine.plan.sampling import Sampling
from tests.support.page.engines import collect

REPEATING: dict[str, Any] = {"logit_bias": ((5, 40.0), (9, 40.0), (13, 40.0))}  # the model samples one of three tokens
KINDS = [
    Sampling(temperature=0, **REPEATING),
    Sampling(temperature=0.3, seed=5, **REPEATING),
    Sampling(temperature=0.2, seed=9, top_p=0.9, presence_penalty=0.1, repeat_penalty=1.01, **REPEATING),
    Sampling(temperature=1.3, seed=2, min_p=0.01),  # its text does not repeat itself
]
PROMPTS = [[1, 5, 9, 13, 17, 21] * 4, [5] * 30, [7, 9] * 5, [250, 1, 6, 250, 1]]


async def texts(engine: Engine, counts: list[int], tokens: int) -> dict[str, Any]:
    """The texts alone, of as many as run side by side at most; for each of some numbers of requests side by side: the
    texts, and figures of their drafts.
    """
    runner: Any = engine.runner
    totals, drafts = engine._generation.totals, False

    def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return 8.0 if drafting == drafts else 8000.0

    async def one(which: int) -> list[int]:
        return await collect(engine, PROMPTS[which], KINDS[which], tokens)

    async def closed(after: int) -> None:
        """A request that is aborted in mid-answer."""
        stream = engine.generate(GenerationRequest(PROMPTS[1], KINDS[0], AnswerLimits(tokens)))
        while after > 0 and (batch := await anext(stream, None)) is not None:
            after -= len(batch.ids)
        await stream.aclose()

    engine._generation._speculation = True  # which a load leaves out where software stands in for a GPU
    engine._generation._use(runner)
    runner.step_ms = step_ms
    runner.steps_in = lambda *_, **__: 2  # else one submit would be most of an answer
    alone = []
    for which in range(max(counts)):
        engine.forget()
        alone.append(await one(which))
    assert totals.draft_steps == 0
    samplers = (SHAPED_GREEDY, SHAPED_DRAW, SHAPED_SAMPLE)
    await runner.prepare([*BATCH_FORWARD, *map(each, samplers), *map(verify, samplers)])
    drafts, beside, figures = True, [], []
    shared = 0  # of those steps, the ones with drafts of several
    draft = runner.draft

    def drafting(rows: Any, steps: int, *options: Any) -> bool:
        nonlocal shared
        submitted = bool(draft(rows, steps, *options))
        shared += steps * submitted * (len(rows) > 1)
        return submitted

    runner.draft = drafting
    try:
        for count in counts:
            engine.forget()
            before = totals.draft_steps, totals.draft_tokens, shared
            found, _ = await asyncio.gather(
                asyncio.gather(*(one(which) for which in range(count))), closed(tokens // 2)
            )
            after = totals.draft_steps, totals.draft_tokens, shared
            beside.append(list(found))
            figures.append([b - a for a, b in zip(before, after, strict=True)])
    finally:
        runner.draft = draft
    return {"alone": alone, "beside": beside, "figures": figures, "proof": engine.stats()["proof"]}
