"""Requests that are cancelled at random moments: others keep their texts; pages, masks and places are given back."""

import asyncio
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import (
    GREEDY,
    MODEL,
    PROMPT,
    PROMPTS,
    SHAPED,
    WARM,
    RandomConstraint,
    collect,
    engine,
    make,
)
from tests.support.cpu_models import GOLDEN

HYBRID = GOLDEN / "granite" / "granitehybrid.F16.gguf"
LONG = [(7 * i) % 290 + 3 for i in range(90)]  # several parts
RUNS = int(os.environ.get("WISP_FUZZ_CASES", "3"))
SEED = int(os.environ.get("WISP_FUZZ_SEED", "1"))
MOST_TURNS = 250  # of the event loop, until a request is cancelled

Case = tuple[tuple[int, ...], Sampling, int, str]
CASES: list[Case] = [
    (tuple(PROMPT), WARM, 40, ""),
    (tuple(LONG), GREEDY, 20, ""),
    (tuple(PROMPTS[4]), GREEDY, 40, ""),  # repeats itself: drafts are accepted
    (tuple(PROMPTS[1]), SHAPED, 40, "masks"),  # a mask for each step
    (tuple(PROMPTS[3]), WARM, 40, "ahead"),  # sampled ahead, and rewound where the constraint rejects
    (tuple(LONG[5:]), WARM, 20, "masks"),
]
ENGINES: dict[str, Callable[[], Engine]] = {
    "plain": partial(make, 256, 16, 6, page=16, parallel=4),
    "drafts": partial(engine, 256, draft=True, page=16),
    "few pages": partial(make, 128, 16, 6, page=16, parallel=3),
    "recurrent": partial(make, 256, 16, page=16, path=HYBRID, parallel=4),
}


def constraint(kind: str, alone: bool = False) -> RandomConstraint | None:
    return RandomConstraint(0.3 if kind == "masks" else 0.8, has_source=not alone) if kind else None


def ask(used: Engine, case: Case, alone: bool = False) -> Any:
    ids, sampling, count, kind = case
    return collect(used, list(ids), sampling, count, constraint=constraint(kind, alone))


_texts: dict[tuple[Path, int, Case], list[int]] = {}


async def alone(path: Path, n_ctx: int, case: Case) -> list[int]:
    """The text of a request that nothing disturbs."""
    if (path, n_ctx, case) not in _texts:
        _texts[path, n_ctx, case] = await ask(make(n_ctx, 16, page=16, path=path), case, alone=True)
    return _texts[path, n_ctx, case]


async def cancelled(used: Engine, case: Case, dice: random.Random) -> None:
    """A request that is cancelled after some turns of the event loop, sometimes once more while it ends."""
    await turns(dice.randrange(40))
    asked = asyncio.ensure_future(ask(used, case))
    await turns(dice.randrange(MOST_TURNS))
    asked.cancel()
    if dice.random() < 0.3:
        await turns(dice.randrange(4))
        asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)


async def turns(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ENGINES)
async def test_cancelled_requests_leave_nothing(kind: str) -> None:
    path, n_ctx = HYBRID if kind == "recurrent" else MODEL, 128 if kind == "few pages" else 256
    used = ENGINES[kind]()
    for seed in range(SEED, SEED + RUNS):
        await live_through(used, path, n_ctx, random.Random(f"{kind} {seed}"))


async def live_through(used: Engine, path: Path, n_ctx: int, dice: random.Random) -> None:
    staying = dice.sample(CASES, 2)
    leaving = [cancelled(used, dice.choice(CASES), dice) for _ in range(4)]
    texts = await asyncio.gather(*(ask(used, case) for case in staying), *leaving)
    want = [await alone(path, n_ctx, case) for case in staying]
    assert texts[:2] == want
    sequences, scheduler = used._generation.sequences, used._generation._scheduler
    assert [pool.held for pool in sequences.cache.pools] == [0] * len(sequences.cache.pools)
    assert sequences.idle
    assert sorted(sequences._numbers) == list(range(sequences.most))
    assert not sequences.cache.waiting
    assert not sequences._paused
    assert not scheduler._sequences
    assert not scheduler._in_flight
    assert (scheduler._joining._unread, scheduler._joining._n_joining) == ([], 0)
    free = (tuple(PROMPTS[5]), GREEDY, 8, "")  # in the places of those before
    after = await asyncio.gather(*(ask(used, free) for _ in range(sequences.most)))
    assert after == [await alone(path, n_ctx, free)] * sequences.most


async def test_a_request_that_is_cancelled_twice_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its pages would go to others while the device works on them."""
    used = ENGINES["plain"]()
    result, reading, read = used.runner.result, asyncio.Event(), asyncio.Event()

    async def held() -> Any:
        reading.set()
        await read.wait()
        return await result()

    monkeypatch.setattr(used.runner, "result", held)
    asked = asyncio.ensure_future(ask(used, CASES[0]))
    await reading.wait()
    for _ in range(2):
        asked.cancel()
        await turns(3)
    pool = used._generation.sequences.cache.pools[0]
    assert pool.held
    read.set()
    await asyncio.gather(asked, return_exceptions=True)
    assert asked.cancelled()
    assert not pool.held
