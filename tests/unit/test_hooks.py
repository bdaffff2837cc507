"""Logits processors and stopping rules on the numpy executor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from app.answers.hooks import Processed
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import PROMPT, WARM, Anything, as_mask, collect, make

GREEDY = Sampling(temperature=0)


def processed(change: Any, within: Any = None) -> Processed:
    async def process(ids: Sequence[int], logits: np.ndarray) -> bytes:
        out = logits.copy()
        change(list(ids), out)
        return out.tobytes()

    return Processed(process, PROMPT, within)


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
async def test_unchanged_logits_give_the_same_answer(sampling: Sampling) -> None:
    seen: list[int] = []
    constraint = processed(lambda ids, logits: seen.append(len(ids)))
    assert await collect(make(), PROMPT, sampling, 12, constraint=constraint) == await collect(
        make(), PROMPT, sampling, 12
    )
    assert seen == [*range(len(PROMPT), len(PROMPT) + 12)]


async def test_the_processor_chooses_each_token_from_what_came_before() -> None:
    def next_number(ids: list[int], logits: np.ndarray) -> None:
        logits[:] = -1e30
        logits[ids[-1] + 1] = 0

    assert await collect(make(), PROMPT, WARM, 6, constraint=processed(next_number)) == [22, 23, 24, 25, 26, 27]


async def test_a_mask_holds_within_it() -> None:
    class Even(Anything):
        async def mask(self) -> Any:
            return as_mask(np.arange(304) % 2 == 0)

        async def forced(self) -> list[int]:
            return [3]  # which the processor comes before

    def prefer_odd(ids: list[int], logits: np.ndarray) -> None:
        logits[101], logits[100] = 90, 80

    within = Even()
    assert await collect(make(), PROMPT, GREEDY, 3, constraint=processed(prefer_odd, within)) == [100, 100, 100]
    assert within.accepted == [100, 100, 100]
