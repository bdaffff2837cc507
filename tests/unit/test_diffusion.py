"""Generation by diffusion: schedules, seeds, what becomes final when, aborts, and what is refused."""

import asyncio
import itertools
import math
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, Begun, GenerationRequest, GenerationStats
from py_engine.generate.diffusion import Canvas, batches_of, certainty, timestep_quota
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.diffusion import Algorithm, Schedule, read_metadata
from py_engine.plan.plan import DiffusionPlan
from py_engine.plan.sampling import Sampling, TokenLogprob
from py_engine.plan.shared_constants import LOGPROB_ROWS, MAX_BIASES, SHORT_BATCH
from tests.golden.make.diffusion import transfers
from tests.support import cpu_engines
from tests.support.cpu_engines import Anything, collect
from tests.support.cpu_models import header as header_of
from tests.support.cpu_models import load
from tests.support.diffusion_cases import MODELS, N_CTX

PATHS = {path.name.removesuffix(".F16.gguf"): path for path in MODELS}
PROMPT = [5, 9, 13, 17, 21, 40, 41]
MASK = 303
WARM = Sampling(temperature=1.5, seed=3, diffusion_steps=6)


def engine_of(name: str, parallel: int = 4) -> Engine:
    return cpu_engines.make(N_CTX, path=PATHS[name], parallel=parallel)


def quotas(schedule: Schedule, count: int) -> list[int]:
    """How many tokens each step fills in, the first open positions first."""
    canvas, found = Canvas([1, 2, 3], count, 0, schedule), []
    while canvas.masked:
        canvas.skip_idle_steps()
        quota = canvas.quota()
        found.append(quota)
        canvas.fill(dict.fromkeys(canvas.open_positions()[:quota], 9))
    assert canvas.ids == [1, 2, 3, *[9] * count]
    return found


def test_quotas() -> None:
    """llama.cpp's counts, by hand; steps that fill in nothing are left out."""
    assert quotas(Schedule(4, eps=1e-3), 10) == [2, 2, 2, 4]
    assert quotas(Schedule(2, eps=0.5), 10) == [2, 8]
    assert quotas(Schedule(64, eps=1e-3), 3) == [1, 2]  # 3 / 22 rounds down until 3 steps are left
    assert quotas(Schedule(6, block=4), 12) == [2] * 6
    assert quotas(Schedule(3, block=8), 13) == [8, 5]  # one step for each of two blocks
    assert quotas(Schedule(12, block=5), 10) == [1] * 10
    assert quotas(Schedule(1, block=100), 7) == [7]


def test_idle_steps_are_left_out_without_another_look_at_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas, looks = Canvas([1], 2000, 0, Schedule(1 << 16, eps=1e-3)), 0
    open_positions = Canvas.open_positions

    def counted(self: Canvas) -> list[int]:
        nonlocal looks
        looks += 1
        return open_positions(self)

    monkeypatch.setattr(Canvas, "open_positions", counted)
    canvas.skip_idle_steps()
    assert canvas.step > 10
    assert looks <= 2


def test_timesteps_round_as_float32() -> None:
    """6 * (1 - 2/3) is 2 in float32 and less in float64."""
    assert timestep_quota(0, 3, 6, 0.0) == 2
    assert int(6 * (1 - (1 - 1 / 3) / 1)) == 1
    for steps, left, eps in itertools.product((5, 20, 33), (1, 6, 12, 57), (0.001, 0.25, 0.5)):
        for step in range(steps - 1):
            assert timestep_quota(step, steps, left, eps) == transfers(step, steps, left, left, eps)


def test_blocks_are_filled_in_from_left_to_right() -> None:
    canvas = Canvas([7], 6, 0, Schedule(4, block=4))
    assert canvas.open_positions() == [1, 2, 3, 4]
    canvas.fill({2: 20, 4: 40})
    assert (canvas.final(), canvas.open_positions()) == ([], [1, 3])
    canvas.fill({1: 10, 3: 30})
    assert (canvas.final(), canvas.open_positions(), canvas.step) == ([10, 20, 30, 40], [5, 6], 0)
    canvas.fill({6: 60})
    assert canvas.final() == []
    canvas.fill({5: 50})
    assert (canvas.final(), canvas.masked) == ([50, 60], [])


def test_certainties() -> None:
    found = TokenLogprob(7, -0.5, [(7, -0.5), (2, -1.5), (3, -3.0)])
    flat = replace(found, top=[(1, -1.1), (2, -1.1), (3, -1.1)])
    assert certainty(Algorithm.CONFIDENCE, found) == pytest.approx(math.exp(-0.5))
    assert certainty(Algorithm.MARGIN, found) == pytest.approx(math.exp(-0.5) - math.exp(-1.5))
    assert certainty(Algorithm.ENTROPY, found) > certainty(Algorithm.ENTROPY, flat)


def test_rows_of_a_batch_have_places_of_their_own() -> None:
    rows = [0, 3, LOGPROB_ROWS, LOGPROB_ROWS + 1, *range(2000, 2000 + 2 * SHORT_BATCH)]
    batches = batches_of(rows)
    assert [row for batch in batches for row in batch] == rows
    for batch in batches:
        assert len(batch) <= SHORT_BATCH
        assert len({row % LOGPROB_ROWS for row in batch}) == len(batch)


@pytest.mark.parametrize("algorithm", list(Algorithm))
async def test_a_seed_gives_the_same_text(algorithm: Algorithm) -> None:
    """Alone, again, and beside others. The mask is never part of it, not even if the request biases it."""
    engine = engine_of("llada")
    sampling = replace(WARM, diffusion_algorithm=int(algorithm), diffusion_alg_temp=0.2, logit_bias=((MASK, 100.0),))
    first = await collect(engine, PROMPT, sampling, 12)
    assert len(first) == 12
    assert MASK not in first
    others = [replace(sampling, seed=seed) for seed in (4, 5)]
    found = await asyncio.gather(*(collect(engine, PROMPT, one, 12) for one in (*others, sampling)))
    assert found[-1] == first
    assert len({tuple(ids) for ids in found}) == 3


async def test_filters_and_bias() -> None:
    """With one token left by top_k, a seed changes nothing; a bias bans a token."""
    engine = engine_of("dream")
    greedy = await collect(engine, PROMPT, replace(WARM, temperature=0.0), 8)
    assert await collect(engine, PROMPT, replace(WARM, top_k=1), 8) == greedy
    banned = replace(WARM, temperature=0.0, logit_bias=tuple((token, -100.0) for token in set(greedy)))
    assert not set(greedy) & set(await collect(engine, PROMPT, banned, 8))


async def test_tokens_are_yielded_once_they_are_final() -> None:
    """With blocks, a step of a block yields nothing beyond it. A stop id ends the answer."""
    engine = engine_of("llada")
    sampling = replace(WARM, temperature=0.0, diffusion_block_length=4)
    stats = GenerationStats()
    batches = await cpu_engines.batches(engine, PROMPT, sampling, 12, stats=stats)
    assert len(batches) == 6
    ends = [sum(len(batch.ids) for batch in batches[: i + 1]) for i in range(6)]
    assert ends[1::2] == [4, 8, 12]
    assert (stats.prompt_tokens, stats.completion_tokens) == (len(PROMPT), 12)
    ids = [token for batch in batches for token in batch.ids]
    stop = ids[5]
    assert await collect(engine, PROMPT, sampling, 12, stops=frozenset([stop])) == ids[: ids.index(stop) + 1]
    assert engine.stats()["totals"]["completion_tokens"] == 12 + ids.index(stop) + 1


async def test_the_context_limits_the_answer() -> None:
    engine = engine_of("llada")
    prompt = [1 + i % 300 for i in range(N_CTX - 5)]
    assert len(await collect(engine, prompt, replace(WARM, diffusion_steps=2), 64)) == 5


async def test_an_aborted_answer_releases_the_device() -> None:
    engine = engine_of("llada", parallel=1)
    request = GenerationRequest(PROMPT, replace(WARM, diffusion_steps=64), AnswerLimits(64))
    async with aclosing(engine.generate(request)) as batches:
        await anext(batches)
    assert engine.stats()["sequences"] == []
    assert len(await collect(engine, PROMPT, WARM, 4)) == 4


async def test_an_answer_that_was_begun_goes_on() -> None:
    """The begun tokens are final: only the rest is filled in, and they are not yielded again."""
    engine = engine_of("dream")
    begun = Begun([50, 60, 70], 3)
    request = GenerationRequest(PROMPT, WARM, AnswerLimits(9), begun=begun)
    got = [token async for batch in engine.generate(request) for token in batch.ids]
    assert got == await collect(engine, [*PROMPT, *begun.ids], WARM, 6)


async def test_a_lost_device_continues_at_the_same_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step that was lost is computed again; the text is the same."""
    engine = engine_of("llada")
    want = await collect(engine, PROMPT, WARM, 12)
    runner: Any = engine.runner
    result, calls = runner.result, 0

    async def lost() -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            runner.lost = "lost"
            raise WispError("lost", "device_lost")
        return await result()

    async def recover() -> None:
        runner.lost = None
        engine._generation.restart(runner)

    monkeypatch.setattr(runner, "result", lost)
    engine._generation.recover = recover
    assert await collect(engine, PROMPT, WARM, 12) == want
    assert calls > 4


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repeat_penalty": 1.1}, "repeat_penalty"),
        ({"dry_multiplier": 0.8}, "dry_multiplier"),
        ({"logprobs": 2}, "logprobs"),
        ({"diffusion_eps": 0.01, "diffusion_block_length": 8}, "diffusion_block_length"),
    ],
)
async def test_refused_parameters(changed: dict[str, Any], param: str) -> None:
    engine = engine_of("llada")
    with pytest.raises(WispError) as error:
        await collect(engine, PROMPT, replace(WARM, **changed), 4)
    assert error.value.param == param
    assert error.value.code in ("unsupported_parameter", "invalid_value")


async def test_the_mask_s_bias_counts_as_one_of_the_request_s() -> None:
    engine = engine_of("llada")
    biases = [(i % 300, 0.5) for i in range(MAX_BIASES)]
    with pytest.raises(WispError, match=str(MAX_BIASES - 1)) as error:
        await collect(engine, PROMPT, replace(WARM, logit_bias=tuple(biases)), 2)
    assert error.value.param == "logit_bias"


async def test_a_step_that_chooses_no_token_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """ORIGIN chooses each token by chance."""
    engine, count = engine_of("llada"), 24
    runner: Any = engine.runner
    feeds, feed = [], runner.feed

    def counted(*args: Any, **more: Any) -> Any:
        feeds.append(args)
        return feed(*args, **more)

    monkeypatch.setattr(runner, "feed", counted)
    sampling = replace(
        WARM, diffusion_algorithm=int(Algorithm.ORIGIN), diffusion_steps=count, diffusion_block_length=count
    )
    assert len(await collect(engine, PROMPT, sampling, count)) == count
    assert 0 < len(feeds) < count


async def test_refused_constraints_and_drafts() -> None:
    engine = engine_of("llada")
    with pytest.raises(WispError, match="diffusion") as error:
        await collect(engine, PROMPT, WARM, 4, constraint=Anything())
    assert (error.value.code, error.value.param) == ("unsupported_parameter", "response_format")
    with pytest.raises(WispError, match="diffusion") as error:
        engine.check_constrains("tools")
    assert error.value.param == "tools"


def test_no_drafts() -> None:
    """Neither of it, nor by it."""
    for model, draft in ((PATHS["llada"], PATHS["llada"]), (cpu_engines.MODEL, PATHS["llada"])):
        with pytest.raises(WispError, match="diffusion") as error:
            load(model, N_CTX, draft=draft)
        assert error.value.param == "draft"


def test_a_mask_token_is_needed() -> None:
    header = header_of("diffusion/llada.F16")
    for mask, code in ((None, "missing_metadata"), (304, "corrupt_header"), (True, "corrupt_header")):
        header.metadata["tokenizer.ggml.mask_token_id"] = mask
        with pytest.raises(WispError) as error:
            read_metadata(header, 304)
        assert error.value.code == code
    header.metadata.update({"tokenizer.ggml.mask_token_id": 3, "diffusion.shift_logits": False})
    assert read_metadata(header, 304) == DiffusionPlan(3, shifted=False)
    del header.metadata["diffusion.shift_logits"]
    assert read_metadata(header, 304).shifted


async def test_other_models_refuse_diffusion_s_parameters() -> None:
    with pytest.raises(WispError, match="one token after the other") as error:
        await collect(cpu_engines.make(), PROMPT, Sampling(diffusion_steps=4), 4)
    assert error.value.param == "diffusion_steps"


async def test_requests_take_turns() -> None:
    """Each step holds the device, so that two canvases are filled in side by side."""
    engine = engine_of("llada")
    order: list[str] = []

    async def fill(name: str) -> None:
        request = GenerationRequest(PROMPT, WARM, AnswerLimits(12))
        async with aclosing(engine.generate(request)) as batches:
            async for _ in batches:
                order.append(name)

    await asyncio.gather(fill("a"), fill("b"))
    assert isinstance(engine._generation.time_slices, TimeSlices)
    assert order.index("b") < len(order) - 1 - order[::-1].index("a")


async def test_embeddings() -> None:
    """Pooled hidden states, as of an encoder: each token sees all others."""
    engine = engine_of("llada")
    (one, shape) = await engine.embeddings.one(PROMPT, "cls")
    (other, _) = await engine.embeddings.one([*PROMPT[:-1], 99], "cls")
    assert shape == (80,)
    assert abs(one - other).max() > 1e-3
