"""Engine.profile() on the CPU engine's module, in wasmtime."""

import asyncio
from typing import Any

import numpy as np
import pytest

from py_engine.cpu.limits import Limits
from py_engine.errors import WispError
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.cpu_engines import GREEDY, collect
from tests.support.wasm_engines import load
from tools.goldens import GOLDEN

MODEL = GOLDEN / "llama" / "llama.Q4_0.gguf"
LIMITS = Limits([(1 << 16, 1000.0)], products=10.0, madds=5.0, matvec=5.0)
PROMPTS = [[5, 6, 7] * 20, [9, 8] * 30]


@pytest.mark.parametrize("n", [1, 3, SHORT_BATCH, SHORT_BATCH + 1])
def test_a_step_of_any_size_leaves_the_cached_prompts_as_they_are(n: int) -> None:
    async def texts(engine: Any) -> list[list[int]]:
        return await asyncio.gather(*(collect(engine, ids, GREEDY, 20) for ids in PROMPTS))

    async def run() -> None:
        engine = await load(MODEL, 256)
        engine.limits = LIMITS
        before = await texts(engine)
        *ops, step = await engine.profile(100, n)
        assert min(op["ns"] for op in ops) >= 0
        assert sum(op["ns"] for op in ops) > 0 < step["ns"]
        assert step["bytes"] == sum(op["bytes"] for op in ops)
        assert await texts(engine) == before

    asyncio.run(run())


@pytest.mark.parametrize(("n", "states"), [(1, 1), (3, 3), (SHORT_BATCH + 1, 1)])
def test_each_token_of_a_small_batch_has_a_state(n: int, states: int) -> None:
    async def run() -> None:
        engine = await load(MODEL, 256)
        runner: Any = engine.runner
        at = runner._memory.buffer("state")
        words = runner._device.bytes[at : at + 16 * (states + 1)].view(np.uint32).reshape(-1, 4)
        words[:] = 77
        runner._place(40, n, 2)
        assert words.tolist() == [[40 + i, n, 0, 2] for i in range(states)] + [[77] * 4]

    asyncio.run(run())


def test_what_the_context_cannot_hold_is_refused() -> None:
    async def run() -> None:
        engine = await load(MODEL, 256)
        engine.limits = LIMITS
        for position, n in ((-1, 1), (0, 0), (0, 17), (192, 1), (180, 16)):
            with pytest.raises(WispError, match="position"):
                await engine.profile(position, n)

    asyncio.run(run())
