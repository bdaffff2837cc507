"""Sparse attention in requests: side by side, after a known beginning, and after another end of it."""

import asyncio
from pathlib import Path

import pytest

from py_engine.engine import Engine
from tests.support import wasm_engines
from tests.support.cpu_engines import GREEDY, PROMPTS, WARM, collect, make
from tests.support.cpu_models import GOLDEN

NAMES = ("latent/deepseek32-top6", "latent/glm-dsa-top9", "latent/glm5-next-top8", "qwen35/qwen4exp-top8")
MODELS = [GOLDEN / f"{name}.F16.gguf" for name in NAMES]
ENGINES = [(path, kind) for path in MODELS for kind in ("numpy", "wasm")]
LONG = [(11 * i) % 290 + 3 for i in range(70)]


async def engine(path: Path, kind: str) -> Engine:
    return make(path=path, page=32) if kind == "numpy" else await wasm_engines.load(path, 256, page=32, threads=2)


@pytest.mark.parametrize(("path", "kind"), ENGINES, ids=lambda given: getattr(given, "stem", given))
async def test_several_requests_get_the_answers_that_they_get_alone(path: Path, kind: str) -> None:
    prompts = [*PROMPTS[:3], LONG]
    want = [await collect(await engine(path, kind), ids, GREEDY, 40) for ids in prompts]
    used = await engine(path, kind)
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 40) for ids in prompts)) == want


@pytest.mark.parametrize(("path", "kind"), ENGINES, ids=lambda given: getattr(given, "stem", given))
async def test_a_known_beginning_has_its_keys(path: Path, kind: str) -> None:
    """Of the prompt, of the answer, and before another end of it: the index's keys are those of the tokens there."""
    used = await engine(path, kind)
    text = await collect(used, LONG, WARM, 30)
    for ids in ([*LONG, *text, 7, 9], LONG, [*LONG, *text[:9], 8, 8], [*LONG[:50], 3, 5]):
        known = await collect(used, ids, GREEDY, 12)
        assert used._generation.totals.cached_tokens > 0
        assert known == await collect(await engine(path, kind), ids, GREEDY, 12)
