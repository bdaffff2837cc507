"""Answers with drafts by a model or by its own MTP layer on a GPU, and without."""

import asyncio
from typing import Any

from py_engine.engine import Engine
from py_engine.plan.sampling import Sampling
from tests.support.page.engines import collect

SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "seeded": Sampling(temperature=1.1, seed=3, top_k=40, top_p=0.95),
    "shaped": Sampling(temperature=0.9, seed=4, min_p=0.02, repeat_penalty=1.1, presence_penalty=0.4),
}


async def texts(engine: Engine, prompt: list[int], count: int, beside: int = 0) -> dict[str, Any]:
    """By sampling: the text without drafts, the text with them, and how many tokens were drafted and accepted.

    `beside`: so many requests more, with the prompt's end cut off, which draft at the same time.
    """
    runner: Any = engine.runner
    totals = engine._generation.totals
    out: dict[str, Any] = {}
    for name, sampling in SAMPLINGS.items():

        def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
            return 8.0 if n_model_draft or not drafting else 8000.0

        runner.step_ms = step_ms
        runner.steps_in = lambda *_, **__: 2  # else one submit would be most of an answer
        model = engine._generation._scheduler._drafter
        assert model is not None
        account, model.account.balance = model.account, -1e9
        prompts = [prompt[: len(prompt) - i] for i in range(1 + beside)]
        plain = [await collect(engine, ids, sampling, count) for ids in prompts]
        engine.forget()
        account.balance, account.on, account._debt = 1e9, False, 0.0
        await runner.prepare([*model._beside, *_lists(runner, model.account.most, 1)], [0])
        for n in range(2, 2 + beside):  # else each would decode alone, without drafts, until all kernels are compiled
            await runner.prepare([*runner.step_lists([0] * n), *_lists(runner, 1, n)], [0])
        before = (totals.draft_steps, totals.model_drafted, totals.model_accepted)
        drafted = await asyncio.gather(*(collect(engine, ids, sampling, count) for ids in prompts))
        after = (totals.draft_steps, totals.model_drafted, totals.model_accepted)
        out[name] = {
            "plain": plain,
            "drafted": drafted,
            **dict(
                zip(("steps", "tokens", "accepted"), (b - a for a, b in zip(before, after, strict=True)), strict=True)
            ),
        }
        account.on = False
        engine.forget()
    return {"texts": out, "proof": engine.stats()["proof"], "memory": engine.stats()["memory"]}


def _lists(runner: Any, most: int, count: int) -> list[str]:
    return list(runner.step_lists([0] * count, drafting=True, n_model_draft=min(2, most)))
