"""Prompts in slices on a GPU of any speed: steps of streams, and embeddings, between the layers of a part."""

import asyncio
from typing import Any

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.sampling import Sampling
from tests.support.page.generation import RandomConstraint


async def texts(engine: Engine) -> dict[str, Any]:
    """Texts of two streams, two long prompts and a constraint, and an embedding, alone and side by side; the slices.

    The constraint rejects most tokens, so its answer soon has the device in time slices of its own.
    """
    runner: Any = engine.runner
    prompts = [[5, 9, 13], [40, 7, 3, 11], [7 * i % 250 for i in range(120)], [11 * i % 250 for i in range(90)]]
    prompts.append([21, 8, 2])
    counts = [110, 110, 4, 4, 60]
    sampling = Sampling(temperature=1.2, seed=3, logprobs=1)
    submit_slice, slices = runner._submit_slice, 0

    def counting(*args: Any) -> None:
        nonlocal slices
        slices += 1
        submit_slice(*args)

    async def one(i: int, delay: float) -> list[int]:
        await asyncio.sleep(delay)
        constraint = RandomConstraint(engine.plan.n_vocab, 0.3, False) if i == 4 else None
        request = GenerationRequest(prompts[i], sampling, AnswerLimits(counts[i]), constraint)
        return [token async for batch in engine.generate(request) for token in batch.ids]

    runner._submit_slice = counting
    runner.prompt_ms = lambda n: 6.0 * n
    runner.prompt_tokens_in = lambda ms: 32
    alone = []
    for i in range(5):
        engine.forget()
        alone.append(await one(i, 0.0))
    embedding, _ = await engine.embeddings.one(prompts[3])
    engine.forget()
    alone_slices, slices = slices, 0
    *beside, (again, _) = await asyncio.gather(
        one(0, 0.0), one(1, 0.0), one(2, 0.02), one(3, 0.02), one(4, 0.0), engine.embeddings.one(prompts[3])
    )
    return {"alone": alone, "beside": beside, "slices": [alone_slices, slices]} | {
        "embeddings": [list(embedding), list(again)]
    }
