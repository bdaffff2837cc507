"""Prompts in slices: others decode between the layers of a part, and every text is the one of a request alone.

test_prompt_order.py has how long requests wait for each other's prompts.
"""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.generate import prompt_slices, time_slices
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import MEDIA, PREFILL, SMALL_BATCH, of_prompts, unsized
from py_engine.plan.plan import Buffer
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import MODEL, PROMPT, STOPS, WARM, Anything, collect, make
from tests.support.cpu_models import GOLDEN, load
from tests.support.sliced_runner import SlicedRunner, until

SLICES = 7  # of a part that takes 180 ms
LONG = [7 * i % 250 for i in range(128)]
MODELS = {
    "pages": MODEL,
    "windows": GOLDEN / "gemma" / "gemma3.F16.gguf",
    "experts": GOLDEN / "qwen" / "qwen3moe.F16.gguf",
    "states": GOLDEN / "qwen35" / "qwen35.F16.gguf",
}


def engine(path: Path = MODEL, part_ms: float = 180.0, parallel: int = 4) -> tuple[Engine, SlicedRunner]:
    """An engine whose prompts are read in parts of 32 tokens that take `part_ms`, and whose steps take 1 ms."""
    cpu = load(path, 256, 32)
    runner = SlicedRunner(cpu.plan)
    runner._cpu = cpu
    runner.prompt_ms = lambda n: part_ms * n / 32  # type: ignore[method-assign]
    runner.prompt_timed = lambda n: True  # type: ignore[method-assign]
    runner.prompt_tokens_in = lambda ms: 32  # type: ignore[method-assign]
    runner.step_ms = lambda rows, **_: 1.0  # type: ignore[method-assign]
    return Engine(cpu.plan, runner, "cpu", parallel, speculation=False), runner


async def beside_a_stream(used: Engine, other: Callable[[], Any], count: int = 80) -> tuple[list[int], Any]:
    """The tokens of a stream, and what `other()` returns, which begins after ten of them."""
    found: list[asyncio.Future[Any]] = []
    out: list[int] = []
    async for batch in used.generate(GenerationRequest(PROMPT, WARM, AnswerLimits(count, STOPS))):
        out += batch.ids
        if len(out) >= 10 and not found:
            found.append(asyncio.ensure_future(other()))
    return out, await found[0]


@pytest.mark.parametrize("model", MODELS)
async def test_texts_are_those_of_requests_alone(model: str) -> None:
    want = [await collect(make(path=MODELS[model], batch=32), ids, WARM, n) for ids, n in ((PROMPT, 80), (LONG, 5))]
    used, runner = engine(MODELS[model])
    assert list(await beside_a_stream(used, lambda: collect(used, LONG, WARM, 5))) == want
    assert runner.submitted.count("slice") == 4 * (SLICES - 1), "each part of the prompt"
    first = runner.submitted.index("slice")
    last = len(runner.submitted) - runner.submitted[::-1].index("slice")
    between = runner.submitted[first:last]
    assert all(pair != ("slice", "slice") for pair in pairwise(between)), "the stream has a token after each slice"


@pytest.mark.parametrize(("part_ms", "slices"), [(180.0, 3), (60.0, 1)])
async def test_a_prompt_alone_has_longer_slices(part_ms: float, slices: int) -> None:
    used, runner = engine(part_ms=part_ms)
    assert await collect(used, LONG, WARM, 5) == await collect(make(batch=32), LONG, WARM, 5)
    assert runner.submitted.count("slice") == 4 * (slices - 1)


@pytest.mark.parametrize(("step_ms", "slices"), [(1.0, 7), (10.0, 6), (54.0, 2), (27.0, 3)])
async def test_slices_are_long_where_steps_are(step_ms: float, slices: int) -> None:
    """Else a slow device would spend more time on the streams than on the prompt."""
    used, runner = engine()
    runner.step_ms = lambda rows, **_: step_ms  # type: ignore[method-assign]
    runner.steps_in = lambda rows, ms, **_: 1  # type: ignore[method-assign]
    await beside_a_stream(used, lambda: collect(used, LONG[:32], WARM, 2))
    assert runner.submitted.count("slice") == slices - 1


async def test_one_step_follows_each_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time would make slices twice as long, and with them the gaps of streams."""
    used, runner = engine()
    runner.step_ms = lambda rows, **_: 3.0  # type: ignore[method-assign]
    runner.steps_in = lambda rows, ms, **_: 2  # type: ignore[method-assign]
    decode, steps = runner.decode, list[int]()

    def counted(rows: Any, count: int) -> None:
        if 0 < runner.submitted.count("slice") < SLICES - 1:
            steps.append(count)
        decode(rows, count)

    monkeypatch.setattr(runner, "decode", counted)
    await beside_a_stream(used, lambda: collect(used, LONG[:32], WARM, 2))
    assert set(steps) == {1}
    assert runner.submitted.count("slice") == SLICES - 1


@pytest.mark.parametrize(("timed", "unknown_token_ms", "step_ms", "slices"), [
    (True, 6.0, 1.0, 1), (False, 0.1, 1.0, 1), (False, 6.0, 1.0, 8), (False, 0.1, 9.0, 3),
])  # fmt: skip
async def test_a_part_of_a_size_that_was_never_timed_has_more_slices(
    monkeypatch: pytest.MonkeyPatch, timed: bool, unknown_token_ms: float, step_ms: float, slices: int
) -> None:
    """What is known of smaller parts may be far too short. Tokens of a prompt take longer where steps do."""
    monkeypatch.setattr(prompt_slices, "UNKNOWN_TOKEN_MS", unknown_token_ms)
    monkeypatch.setattr(prompt_slices, "TOKENS_PER_STEP", 4)
    used, runner = engine(part_ms=10.0)
    runner.prompt_timed = lambda n: timed  # type: ignore[method-assign]
    runner.step_ms = lambda rows, **_: step_ms  # type: ignore[method-assign]
    await beside_a_stream(used, lambda: collect(used, LONG[:32], WARM, 2))
    assert runner.submitted.count("slice") == slices - 1


@pytest.mark.parametrize("model", MODELS)
async def test_an_abort_between_slices_leaves_the_caches_right(model: str) -> None:
    """What the caches hold of the prompt serves the next request, whose text is right."""
    used, runner = engine(MODELS[model])
    want = [await collect(make(path=MODELS[model], batch=32), [*LONG[:at], 3], WARM, 9) for at in (40, 100)]

    async def aborted() -> list[list[int]]:
        reading = asyncio.ensure_future(collect(used, LONG, WARM, 5))
        await until(lambda: runner.submitted.count("slice") >= 4)
        reading.cancel()
        await asyncio.wait([reading])
        return [await collect(used, [*LONG[:at], 3], WARM, 9) for at in (40, 100)]

    out, again = await beside_a_stream(used, aborted, 150)
    assert out == await collect(make(path=MODELS[model]), PROMPT, WARM, 150)
    assert again == want


async def test_other_work_waits_for_the_end_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embeddings of texts have the buffers of prompts."""
    monkeypatch.setattr(time_slices, "TIME_SLICE", 0.0)
    used, runner = engine()
    (want, _), answer = await engine()[0].embeddings.one(LONG[:20]), await collect(make(batch=32), LONG, WARM, 5)

    async def both() -> tuple[list[int], Any]:
        reading = asyncio.ensure_future(collect(used, LONG, WARM, 5))
        await until(lambda: runner.submitted.count("slice") >= 4)
        embedding, _ = await used.embeddings.one(LONG[:20])
        return await reading, embedding

    out, (text, embedding) = await beside_a_stream(used, both, 150)
    assert out == await collect(make(), PROMPT, WARM, 150)
    assert text == answer
    assert np.array_equal(embedding, want)
    at = runner.submitted.index("packed")
    assert runner.submitted[:at].count("slice") % (SLICES - 1) == 0


class Forcing(Anything):
    """A constraint that forces 20 tokens after each one that is sampled."""

    async def forced(self) -> list[int]:
        after = len(self.accepted) % 21
        return [5 + i for i in range(after, 21)] if after else []


async def test_forced_tokens_are_small_batches_between_slices() -> None:
    """Many forced tokens of an answer without a seed are read like a prompt, but not between slices of one."""
    used, runner = engine()
    streams = [
        asyncio.ensure_future(collect(used, PROMPT, Sampling(temperature=1.0), 200, constraint=Forcing())),
        asyncio.ensure_future(collect(used, [7, 3], WARM, 200)),
    ]
    await until(lambda: "steps" in runner.submitted)
    assert await collect(used, LONG, WARM, 5) == await collect(make(batch=32), LONG, WARM, 5)
    assert (await asyncio.gather(*streams))[1] == await collect(make(), [7, 3], WARM, 200)
    assert {SMALL_BATCH, PREFILL} <= set(runner.submitted)


@pytest.mark.parametrize(
    ("kv_type", "paths", "media_width"),
    [
        ("f16", [*MODELS.values()], 0),
        ("q8_0", [MODELS["pages"], MODELS["windows"]], 0),
        ("f16", [GOLDEN / "dense" / "cogvlm.F16.gguf"], 64),  # its list for pictures has buffers of its own
    ],
)
def test_steps_share_no_memory_with_the_lists_of_prompts(kv_type: str, paths: list[Path], media_width: int) -> None:
    for path in paths:
        plan = load(path, 64, 16, kv_type, media_width=media_width).plan
        slots, _ = plan.slots()
        prompts, steps = set[int](), set[int]()
        for name, ops in plan.lists.items():
            bound = {b.name for op in ops for b in op.bindings.values() if isinstance(b, Buffer)} & slots.keys()
            if unsized(name) in (PREFILL, MEDIA):
                prompts |= {slots[b] for b in bound}
            elif not of_prompts(name):
                steps |= {slots[b] for b in bound}
        assert prompts
        assert steps
        assert not prompts & steps, path
