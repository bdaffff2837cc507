"""Users are warned before the memory budget refuses anything: random sequences of small steps."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.models.loaded import Loaded
from app.models.loaded_models import LoadedModels
from tests.support.golden_page import GoldenPage
from tools.selection import fewer

ENCODERS = ("embedding/bert.F16", "embedding/jina-bert-v2.F16", "embedding/gemma-embedding.F16")
GENERATORS = ("llama/llama.F16", "qwen/qwen3.F16", "gemma/gemma3.F16", "gpt2/gpt2.F16", "lfm2/lfm2.F16")
MOST_STEPS = 100
Load = tuple[int, str, int]  # bytes, file, contextLength


class Pressure:
    """A page whose memory use rises in small random steps: a lower budget, larger models, more requests."""

    def __init__(self, loads: list[Load], seed: int) -> None:
        self.page, self.loads, self.random = GoldenPage(), [*loads], random.Random(seed)
        self.budget = 0

    async def start(self) -> None:
        """Load the smallest model under a budget that it does not come close to."""
        for file in {file for _, file, _ in self.loads}:
            self.page.add(file, file)
        self.budget = int(self.loads[0][0] * self.random.uniform(1.28, 1.34))
        await self.page.call("budget", bytes=self.budget)
        assert not await self.add()

    async def lower(self) -> None:
        """Lower the budget by 2 to 7 %."""
        self.budget = int(self.budget * self.random.uniform(0.93, 0.98))
        await self.page.call("budget", bytes=self.budget)

    async def add(self) -> bool:
        """Load the next larger model; whether it was refused."""
        _, file, context = self.loads.pop(0) if len(self.loads) > 1 else self.loads[0]
        answer = await self.page.load(file, contextLength=context, backend="cpu", parallel=8)
        refused: bool = answer.get("kind") == "error"
        assert not refused or answer["error"]["code"] == "out_of_memory", answer
        return refused

    async def ask(self) -> None:
        """Run up to eight requests at once. Each has a prompt of its own, so that no pages are shared."""
        prompts = [f"{i}{self.random.random()}" for i in range(self.random.randint(1, 8))]
        sent = [self.page.send("completions", request={"prompt": prompt, "max_tokens": 1}) for prompt in prompts]
        await asyncio.gather(*(task for _, task in sent))

    def warned(self) -> bool:
        return any(
            message["kind"] == "log" and message["level"] == "notice" and "% of the memory budget" in message["text"]
            for message in self.page.platform.messages
        )

    async def rise(self, steps: tuple[Any, ...], refused: list[int]) -> None:
        """Take random steps until one is refused: a warning must have come in an earlier step."""
        await self.start()
        assert not self.warned()
        for _ in range(MOST_STEPS):
            warned, step = self.warned(), self.random.choice(steps)
            if await step(self) or refused:
                assert warned, f"{step.__name__} was the first step that came close to the budget"
                return
        raise AssertionError("nothing was refused")


def loads_of(files: tuple[str, ...], contexts: range) -> list[Load]:
    """Loads of golden models with contexts of so many tokens, the smallest first."""

    async def estimates() -> list[Load]:
        page = GoldenPage()
        for file in files:
            page.add(file, file)
        return [((await page.estimate(file, n))["total"], file, n) for file in files for n in contexts]

    return sorted(asyncio.run(estimates()))


@pytest.fixture(scope="module")
def encoders() -> list[Load]:
    return loads_of(ENCODERS, range(16, 257, 16))


@pytest.fixture(scope="module")
def generators() -> list[Load]:
    return loads_of(GENERATORS, range(160, 257, 24))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every growth of a KV cache that was refused: the request then waits."""
    found: list[int] = []
    growth = LoadedModels.growth

    @asynccontextmanager
    async def watched(self: LoadedModels, model: Loaded, needed: int) -> AsyncIterator[bool]:
        async with growth(self, model, needed) as granted:
            if not granted:
                found.append(needed)
            yield granted

    monkeypatch.setattr(LoadedModels, "growth", watched)
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_before_a_larger_model_is_refused(encoders: list[Load], seed: int, refused: list[int]) -> None:
    await Pressure(encoders, seed).rise((Pressure.add,), refused)


@pytest.mark.slow
@pytest.mark.parametrize("seed", fewer(range(16), 5))
async def test_before_the_first_refusal(generators: list[Load], seed: int, refused: list[int]) -> None:
    await Pressure(generators, seed).rise((Pressure.lower, Pressure.add, Pressure.ask), refused)
