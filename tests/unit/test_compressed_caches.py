"""Compressed keys in requests: side by side, after a cached prefix, in whole or in part, and with drafts.

A prompt of 150 tokens has compressed keys of every kind, and freed pages before its window.
"""

import asyncio
from pathlib import Path

import pytest

from py_engine.engine import Engine
from py_engine.plan.sampling import Sampling
from tests.support import wasm_engines
from tests.support.cpu_engines import GREEDY, PROMPTS, WARM, collect, counts, make
from tests.support.cpu_engines import engine as drafting_engine
from tests.support.cpu_models import GOLDEN

MODELS = [GOLDEN / "latent" / f"{name}.F16.gguf" for name in ("deepseek4", "deepseek4-yarn", "deepseek4-top3")]
ENGINES = [(path, kind) for path in MODELS for kind in ("numpy", "wasm")]
LONG = [(11 * i) % 290 + 3 for i in range(150)]
CONTEXTS = {"deepseek4-yarn": 1024}
engines = pytest.mark.parametrize(("path", "kind"), ENGINES, ids=lambda given: getattr(given, "stem", given))


async def engine(path: Path, kind: str) -> Engine:
    n_ctx = CONTEXTS.get(path.name.split(".")[0], 256)
    return (
        make(n_ctx, path=path, page=32) if kind == "numpy" else await wasm_engines.load(path, n_ctx, page=32, threads=2)
    )


async def test_pages_before_the_windows_are_freed() -> None:
    """Otherwise the other tests would not notice if a window's pages held too few positions."""
    plan = (await engine(MODELS[1], "numpy")).plan
    assert [group.window for group in plan.page_groups] == [128, 0]
    assert plan.page_groups[0].most < plan.page_groups[1].most


@engines
async def test_several_requests_get_the_answers_that_they_get_alone(path: Path, kind: str) -> None:
    prompts = [*PROMPTS[:3], LONG[:120], LONG]
    want = [await collect(await engine(path, kind), ids, GREEDY, 40) for ids in prompts]
    used = await engine(path, kind)
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 40) for ids in prompts[:3])) == want[:3]
    assert await asyncio.gather(*(collect(used, ids, GREEDY, 40) for ids in prompts[2:4])) == want[2:4]
    assert await collect(used, LONG, GREEDY, 40) == want[4]


@engines
async def test_a_cached_prefix_has_its_keys(path: Path, kind: str) -> None:
    """The prompt, the answer, and parts of both that end between keys or in the middle of a key's positions."""
    used = await engine(path, kind)
    text = await collect(used, LONG, WARM, 30)
    for ids in ([*LONG, *text, 7, 9], LONG, [*LONG, *text[:9], 8, 8], [*LONG[:129], 3, 5], [*LONG[:66], 3]):
        known = await collect(used, ids, GREEDY, 12)
        assert used._generation.totals.cached_tokens > 0
        assert known == await collect(await engine(path, kind), ids, GREEDY, 12)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "seed"])
async def test_rejected_drafts_leave_nothing(path: Path, sampling: Sampling) -> None:
    """A prompt that repeats itself, after which most drafts are rejected."""
    prompt = [*LONG[:35], *LONG[:35], *LONG[:35], *LONG[:20]]
    plain, drafting = (drafting_engine(path=path, page=32, draft=draft) for draft in (False, True))
    assert await collect(drafting, prompt, sampling, 60) == await collect(plain, prompt, sampling, 60)
    assert counts(drafting).verified > counts(plain).verified == 0
