"""Users are warned before the memory budget refuses anything."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.models.loaded import Loaded
from app.models.registry import Models
from tests.support.golden_page import GoldenPage

FILES = ("llama/llama.F16", "qwen/qwen3.F16", "gemma/gemma3.F16", "gpt2/gpt2.F16", "lfm2/lfm2.F16")
CONTEXTS = range(16, 257, 24)  # tokens
MOST_STEPS = 200
Load = tuple[int, str, int]  # bytes, file, contextLength


@pytest.fixture(scope="module")
def loads() -> list[Load]:
    """Loads of golden models, the smallest first."""

    async def estimates() -> list[Load]:
        page = GoldenPage()
        for file in FILES:
            page.add(file, file)
        return [
            ((await page.estimate(file, context))["total"], file, context) for file in FILES for context in CONTEXTS
        ]

    return sorted(asyncio.run(estimates()))


class Pressure:
    """A page whose memory use rises in random steps of 7 % at most: a lower budget, larger models, more requests."""

    def __init__(self, loads: list[Load], seed: int) -> None:
        self.page, self.loads, self.random = GoldenPage(), [*loads], random.Random(seed)
        self.budget = int(loads[-1][0] * self.random.uniform(1.1, 1.5))

    async def start(self) -> None:
        for file in FILES:
            self.page.add(file, file)
        await self.page.call("budget", bytes=self.budget)
        assert not await self.add()

    async def lower(self) -> None:
        self.budget = int(self.budget * self.random.uniform(0.93, 0.98))
        await self.page.call("budget", bytes=self.budget)

    async def add(self) -> bool:
        """Load the next larger model; whether it was refused."""
        if len(self.loads) > 1:
            del self.loads[0]
        _, file, context = self.loads[0]
        answer = await self.page.load(file, contextLength=context, backend="cpu")
        refused: bool = answer.get("kind") == "error"
        assert not refused or answer["error"]["code"] == "out_of_memory", answer
        return refused

    async def ask(self) -> None:
        """Run up to eight requests at once on a model that was loaded."""
        request = {"prompt": "The", "max_tokens": 12, "temperature": 1.5, "ignore_eos": True}
        count = self.random.randint(1, 8)
        await asyncio.gather(*(self.page.send("completions", request=request)[1] for _ in range(count)))

    def warned(self) -> bool:
        return any(
            message["kind"] == "log" and message["level"] == "notice" and "% of the memory budget" in message["text"]
            for message in self.page.platform.messages
        )


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every growth of a KV cache that was refused."""
    found: list[int] = []
    growth = Models._growth

    @asynccontextmanager
    async def watched(self: Models, model: Loaded, needed: int) -> AsyncIterator[bool]:
        async with growth(self, model, needed) as granted:
            if not granted:
                found.append(needed)
            yield granted

    monkeypatch.setattr(Models, "_growth", watched)
    return found


@pytest.mark.parametrize("seed", range(20))
async def test_a_warning_comes_before_the_first_refusal(loads: list[Load], seed: int, refused: list[int]) -> None:
    pressure = Pressure(loads, seed)
    await pressure.start()
    assert not pressure.warned()
    for _ in range(MOST_STEPS):
        warned = pressure.warned()
        step: Any = pressure.random.choice((pressure.lower, pressure.add, pressure.ask))
        if await step() or refused:
            assert warned, f"{step.__name__} was the first step that came close to the budget"
            return
    raise AssertionError("nothing was refused")
