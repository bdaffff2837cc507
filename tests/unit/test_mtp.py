"""Drafts by a model's own MTP layer: what it computes, and that the text stays the same."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.load_plan import plan_for
from py_engine.options import LoadOptions
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, MTP, MTP_NEXT, PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from tests.support import mtp_models, wasm_engines
from tests.support.cpu_engines import (
    PROMPT,
    PROMPTS,
    SHAPED,
    WARM,
    Counting,
    collect,
    draft_counts,
    let_drafts_pay,
    make,
)
from tests.support.cpu_models import load
from tests.support.model_files import ModelFiles

GREEDY = Sampling(temperature=0)
COLD = Sampling(temperature=0.001)  # greedy in effect, but what was decoded may be used again
SOFTWARE = Device(software=True)
IDS = [(37 * i + 11) % 300 for i in range(40)]


@pytest.fixture(scope="module", params=mtp_models.BASES, ids=lambda base: base.split("/")[1])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("mtp") / "model.gguf"
    mtp_models.write(request.param, to)
    return to


@pytest.mark.parametrize("base", mtp_models.ALL)
def test_the_layer_computes_what_the_reference_does(base: str, tmp_path: Path) -> None:
    """After a prompt in batches, a token alone and a small batch: its cache has the keys and values of all."""
    path = tmp_path / "model.gguf"
    mtp_models.write(base, path)
    cpu, reference = load(path, 64, mtp=True), mtp_models.MtpReference(path)
    for at, end, name in ((0, 16, PREFILL), (16, 31, PREFILL), (31, 32, DECODE), (32, 39, SMALL_BATCH)):
        states = cpu.buffers["state"][:32].reshape(8, 4)
        states[:, 0] = np.arange(at, at + 8)
        cpu.feed(at, IDS[at:end], [name], 0)
    drafted = [5, 9]
    want = reference.drafts(IDS, drafted)
    for i, token in enumerate([IDS[-1], *drafted]):
        cpu.feed(39 + i, [token], [MTP_NEXT if i else MTP], 0)
        np.testing.assert_allclose(cpu.buffers["logits"][:304], want[i], atol=1e-4)


def engine(path: Path, *, mtp: bool, n_ctx: int = 256, most: int = MAX_DRAFT, parallel: int = 4) -> Engine:
    cpu = load(path, n_ctx, mtp=mtp)
    runner = Counting(cpu.plan)
    runner._cpu = cpu
    let_drafts_pay(runner)
    return Engine(cpu.plan, runner, "cpu", parallel, speculation=mtp, draft_tokens=most)


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_the_text_is_the_one_without_drafts(path: Path, sampling: Sampling) -> None:
    used = engine(path, mtp=True)
    assert await collect(used, PROMPT, sampling, 60) == await collect(engine(path, mtp=False), PROMPT, sampling, 60)
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted, "some are rejected"


@pytest.mark.slow
@pytest.mark.parametrize("base", [*mtp_models.BASES, "latent/deepseek2"])
async def test_the_cpu_engine_drafts_the_same(base: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    mtp_models.write(base, path)
    on_numpy, on_wasm = engine(path, mtp=True), await wasm_engines.load(path, 256, mtp=True)
    let_drafts_pay(on_wasm.runner)
    assert await collect(on_numpy, PROMPT, GREEDY, 40) == await collect(on_wasm, PROMPT, GREEDY, 40)
    assert draft_counts(on_numpy) == draft_counts(on_wasm)
    assert draft_counts(on_numpy)[2] > 3
    side_by_side = [  # how many steps they share depends on the clock
        await asyncio.gather(*(collect(used, ids, GREEDY, 30) for ids in PROMPTS[:3])) for used in (on_numpy, on_wasm)
    ]
    assert side_by_side[0] == side_by_side[1]


async def test_a_draft_is_no_longer_than_asked_and_ends_with_the_context(path: Path) -> None:
    used, plain = engine(path, mtp=True, most=2, n_ctx=64), engine(path, mtp=False, n_ctx=64)
    assert await collect(used, PROMPT, WARM, 200) == await collect(plain, PROMPT, WARM, 200)
    totals = used._generation.totals
    assert 0 < totals.model_drafted <= 2 * totals.draft_steps


@pytest.mark.parametrize(("last", "cut"), [(9, 0), (11, 0), (9, 1), (11, 1)])
async def test_the_next_turn_goes_on_where_a_draft_ended_the_answer(path: Path, last: int, cut: int) -> None:
    """Accepted, rejected or after the end: recurrent layers have the states that the next turn needs, if it is known.

    `cut`: tokens of the answer that the next turn lacks.
    """
    used, plain = engine(path, mtp=True), engine(path, mtp=False)
    text = await collect(plain, PROMPT, WARM, 40)
    assert await collect(used, PROMPT, WARM, 40, stops=frozenset([text[last]])) == text[: text.index(text[last]) + 1]
    follow_up = [*PROMPT, *text[: text.index(text[last]) - cut], 7, 8, 9]
    want = await collect(make(path=path), follow_up, GREEDY, 10)
    assert await collect(used, follow_up, COLD, 10) == want
    assert cut or used._generation.totals.cached_tokens >= len(follow_up) - 4


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
async def test_several_requests_draft_side_by_side(path: Path, count: int) -> None:
    """Each has the text that it has alone, whatever the others sample, and its own end."""
    samplings, counts = [GREEDY, WARM, SHAPED, GREEDY], [40, 40, 60, 30]
    requests = list(zip(PROMPTS, samplings, counts, strict=False))[:count]
    plain, used = engine(path, mtp=False), engine(path, mtp=True)
    want = [await collect(plain, *request) for request in requests]
    assert await asyncio.gather(*(collect(used, *request) for request in requests)) == want
    totals, runner = used._generation.totals, used.runner
    assert 0 < totals.model_accepted < totals.model_drafted
    assert isinstance(runner, Counting)
    assert runner.verified > 15


@pytest.mark.slow
async def test_more_requests_than_a_batch_has_rows_for_do_without(path: Path) -> None:
    used, plain = engine(path, mtp=True, parallel=5), engine(path, mtp=False)
    want = [await collect(plain, ids, WARM, 20) for ids in PROMPTS[:5]]
    assert await asyncio.gather(*(collect(used, ids, WARM, 20) for ids in PROMPTS[:5])) == want
    assert isinstance(used.runner, Counting)
    assert used.runner.each > 5


def test_a_recurrent_model_drafts_one_token(path: Path) -> None:
    plan = load(path, 64, mtp=True).plan
    assert plan.draft is not None
    assert plan.draft.most == (1 if plan.recurrent else MAX_DRAFT)
    assert 0 < plan.draft.cost < 1


async def test_loads_say_whether_there_is_a_layer_that_drafts(path: Path) -> None:
    parts, gpu = ModelFiles.read(path).parts, Device(f16=True, subgroup=32)
    cases: list[tuple[Device | None, dict[str, Any], bool]] = [
        (None, {}, False),
        (None, {"mtp": True}, True),
        (gpu, {}, False),
        (gpu, {"mtp": True}, True),
        (gpu, {"mtp": False}, False),
        (gpu, {"mtp": True, "speculation": False}, False),
        (SOFTWARE, {}, False),
        (SOFTWARE, {"mtp": True}, True),
    ]
    for device, options, drafts in cases:
        plan = await plan_for(parts, device, LoadOptions(context_length=64, **options))
        assert (plan.draft is not None) == drafts, (device, options)
        assert any("nextn" in name for name in plan.weights) == drafts


async def test_a_model_whose_layer_lacks_a_tensor_runs_without_it(path: Path) -> None:
    parts = ModelFiles.read(path).parts
    block = parts.header.arch("block_count") - 1
    tensors = {name: info for name, info in parts.header.tensors.items() if name != f"blk.{block}.attn_k.weight"}
    lacking = replace(parts, header=replace(parts.header, tensors=tensors))
    gpu = Device(f16=True, subgroup=32)
    assert (await plan_for(lacking, gpu, LoadOptions(context_length=64))).draft is None
    with pytest.raises(WispError, match=f"no tensor blk.{block}.attn_k.weight"):
        await plan_for(lacking, gpu, LoadOptions(context_length=64, mtp=True))


def test_a_layer_adds_its_cache_and_weights_to_the_memory(path: Path) -> None:
    without, beside = load(path, 64).plan.memory(), load(path, 64, mtp=True).plan.memory()
    assert all(beside[pool] > without[pool] for pool in ("weights", "kv"))
