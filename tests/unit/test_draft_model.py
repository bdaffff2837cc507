"""Drafts by a model: they never change the text, and save steps where the model agrees with them."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from py_engine.cpu.step_times import CpuStepTimes
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.draft_header import check_draft
from py_engine.generate.draft_model import ACCEPTED, DraftModel
from py_engine.load_plan import CPU
from py_engine.plan.draft import DRAFT_PREFILL, MAX_DRAFT
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.planner import PlanOptions, make_plan
from py_engine.runners import Row
from tests.support import wasm_engines
from tests.support.cpu_engines import MODEL, PROMPT, SHAPED, WARM, Counting, collect, make
from tests.support.cpu_models import GOLDEN, header, load
from tests.support.model_files import ModelFiles
from tools.gguf_writer import add_value, finish

GREEDY = Sampling(temperature=0)
OTHER = GOLDEN / "qwen" / "qwen3.F16.gguf"  # of the same vocabulary, with other weights


def engine(
    draft: Path, n_ctx: int = 256, draft_ms: float = 1.0, most: int = MAX_DRAFT, parallel: int = 1
) -> tuple[Engine, Counting]:
    """An engine with a draft model. `draft_ms`: of a step with a draft, where a plain step takes 1."""
    cpu = load(MODEL, n_ctx, draft=draft)
    runner = Counting(cpu.plan)
    runner._cpu = cpu

    def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return draft_ms if n_model_draft else 100.0 if drafting else 1.0

    runner.step_ms = step_ms  # type: ignore[method-assign]
    return Engine(cpu.plan, runner, "cpu", parallel, draft_tokens=most), runner


def model_of(used: Engine) -> DraftModel:
    model = used._generation._scheduler._drafter
    assert isinstance(model, DraftModel)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_the_text_is_the_one_without_a_draft_model(sampling: Sampling) -> None:
    """The model itself drafts what it would have sampled; one with other weights hardly ever does."""
    want = await collect(make(), PROMPT, sampling, 120)
    itself, good = engine(MODEL)
    assert await collect(itself, PROMPT, sampling, 120) == want
    totals = itself._generation.totals
    assert totals.model_accepted > 0.9 * totals.model_drafted
    assert good.verified < 25, "120 tokens, up to 8 a step"
    other, bad = engine(OTHER)
    assert await collect(other, PROMPT, sampling, 120) == want
    assert other._generation.totals.model_accepted < 0.2 * other._generation.totals.model_drafted
    assert bad.verified > 60


async def test_the_cpu_engine_drafts_by_a_model() -> None:
    path = GOLDEN / "llama" / "llama.Q4_0.gguf"
    texts = []
    for draft in (None, path, GOLDEN / "llama" / "llama-bias.F16.gguf"):
        used = await wasm_engines.load(path, 128, draft=draft)

        def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
            return 1.0 if n_model_draft or not drafting else 100.0

        runner: Any = used.runner
        runner.step_ms = step_ms
        in_flight: list[int] = []
        start = runner.start_drafts
        runner.start_drafts = lambda rows, r=runner, on=in_flight, go=start: (on.append(len(r._in_flight)), go(rows))
        texts.append([await collect(used, PROMPT, sampling, 50) for sampling in (GREEDY, WARM)])
        if draft == path:
            assert used._generation.totals.model_accepted > 0.9 * used._generation.totals.model_drafted > 50
            assert in_flight == [1, 1], "drafts begin before the prompt's result is read"
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.slow
async def test_the_cpu_engine_drafts_for_several_requests() -> None:
    path = GOLDEN / "llama" / "llama.Q4_0.gguf"
    prompts, texts = [PROMPT, [7, 3, 200, 45], [5]], []
    for draft in (None, path):
        used = await wasm_engines.load(path, 128, draft=draft, parallel=3)

        def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
            return 1.0 if n_model_draft or not drafting else 100.0

        used.runner.step_ms = step_ms  # type: ignore[method-assign]
        texts.append(await asyncio.gather(*(collect(used, ids, WARM, 50) for ids in prompts)))
    assert texts[0] == texts[1]
    totals = used._generation.totals
    assert totals.model_accepted > 0.9 * totals.model_drafted
    assert totals.model_drafted > 5, "50 on an idle computer; a busy one begins later"


async def test_a_prompt_that_the_draft_model_reads_does_not_count_as_steps() -> None:
    path = GOLDEN / "llama" / "llama.Q4_0.gguf"
    used = await wasm_engines.load(path, 128, draft=path)
    await collect(used, PROMPT, GREEDY, 4)  # takes the pages of the positions below
    runner: Any = used.runner
    runner._times = CpuStepTimes()
    for ids in (PROMPT, []):
        if ids:
            runner.feed(0, ids, [DRAFT_PREFILL])
        assert not runner.step_ms(1)
        runner.decode([Row(0, len(PROMPT))], 1)
        await runner.result()
    assert runner.step_ms(1)


async def test_what_follows_the_end_of_an_answer_does_not_count() -> None:
    """Drafts past it are often rejected, however good they are before it."""
    used, runner = engine(OTHER)
    first = (await collect(used, PROMPT, WARM, 8))[1]
    used, runner = engine(OTHER)
    runner.steps_in = lambda rows, ms, **kind: 8  # type: ignore[method-assign]
    account = model_of(used).account
    await collect(used, PROMPT, WARM, 200, stops=frozenset([first]))
    assert used._generation.totals.draft_steps
    assert (account.balance, account.accepted) == (0.0, ACCEPTED)


async def test_a_draft_is_no_longer_than_asked() -> None:
    used, _ = engine(MODEL, most=2)
    assert await collect(used, PROMPT, GREEDY, 60) == await collect(make(), PROMPT, GREEDY, 60)
    totals = used._generation.totals
    assert 0 < totals.model_drafted <= 2 * totals.draft_steps


@pytest.mark.parametrize("count", [1, 8, 9, 31])
async def test_drafts_end_at_the_limit_and_at_the_end_of_the_context(count: int) -> None:
    used, runner = engine(MODEL, n_ctx=64)
    assert await collect(used, PROMPT, GREEDY, count) == await collect(make(64), PROMPT, GREEDY, count)
    assert await collect(used, PROMPT, GREEDY, 200) == await collect(make(64), PROMPT, GREEDY, 200)
    assert runner.verified


async def test_a_full_context_that_is_shifted_goes_on_with_drafts() -> None:
    used, runner = engine(MODEL, n_ctx=64)
    assert await collect(used, PROMPT, WARM, 150, keep=3) == await collect(make(64), PROMPT, WARM, 150, keep=3)
    assert runner.verified < 75


async def test_the_draft_model_s_cache_serves_the_next_turn() -> None:
    """Of a chat's second request, only what is new is fed to the draft model."""
    used, runner = engine(MODEL)
    fed: list[int] = []
    feed = runner.feed

    def counting(position: int, ids: list[int], lists: list[str], *args: Any, **options: Any) -> Any:
        if DRAFT_PREFILL in lists:
            fed.append(len(ids))
        return feed(position, ids, lists, *args, **options)

    runner.feed = counting  # type: ignore[method-assign, assignment]
    first = await collect(used, PROMPT, GREEDY, 40)
    assert sum(fed) in range(len(PROMPT) - 1, len(PROMPT) + 4)
    fed.clear()
    follow_up = [*PROMPT, *first, 7, 8, 9]
    assert await collect(used, follow_up, GREEDY, 20) == await collect(make(), follow_up, GREEDY, 20)
    assert sum(fed) <= 13, "of 49: the last 8 tokens of an answer are not drafted"


async def test_the_draft_model_reads_a_long_prompt_in_parts_between_which_it_can_be_aborted() -> None:
    used, runner = engine(MODEL)
    prompt = [7 * i % 250 for i in range(100)]
    runner.prompt_token_ms = lambda: 10.0  # type: ignore[method-assign]
    waits: list[int] = []
    finish = runner.finish

    async def finishing() -> None:
        (cache,) = used._generation.sequences._running
        waits.append(cache.drafted)
        await finish()

    runner.finish = finishing  # type: ignore[method-assign]
    assert await collect(used, prompt, GREEDY, 40) == await collect(make(), prompt, GREEDY, 40)
    assert waits == [16, 32, 48, 64, 80, 96], "a batch of 16 takes more than DRAFT_PART_MS"
    assert runner.verified


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 4])
async def test_several_requests_share_steps_with_drafts(count: int) -> None:
    used, runner = engine(MODEL, parallel=4)
    prompts, kinds = [PROMPT, [7, 3, 200, 45], [5], [9, 1, 2]][:count], [WARM, GREEDY, SHAPED, WARM]
    want = [await collect(make(), ids, kind, 60) for ids, kind in zip(prompts, kinds, strict=False)]
    texts = [collect(used, ids, kind, 60) for ids, kind in zip(prompts, kinds, strict=False)]
    assert await asyncio.gather(*texts) == want
    totals, most = used._generation.totals, SHORT_BATCH // count  # tokens of each sequence a step
    assert totals.model_accepted > 0.9 * totals.model_drafted > 50
    assert runner.verified < 1.7 * 60 / most, "some steps have fewer sequences"


@pytest.mark.slow
async def test_streams_go_on_while_the_draft_model_reads_the_prompt_of_another_request() -> None:
    used, runner = engine(MODEL, parallel=2)
    runner.prompt_token_ms = lambda: 10.0  # type: ignore[method-assign]
    events: list[str] = []
    feed, decode = runner.feed, runner.decode

    def feeding(position: int, ids: list[int], lists: list[str], *args: Any, **options: Any) -> Any:
        if DRAFT_PREFILL in lists and len(ids) == used.plan.batch:
            events.append("part")
        return feed(position, ids, lists, *args, **options)

    def decoding(rows: Sequence[Row], steps: int) -> None:
        if len(rows) > 1:
            events.append("steps")
        decode(rows, steps)

    runner.feed, runner.decode = feeding, decoding  # type: ignore[method-assign, assignment]
    prompts = [PROMPT, [7 * i % 250 for i in range(100)]]
    want = [await collect(make(), ids, WARM, 60) for ids in prompts]
    assert await asyncio.gather(*(collect(used, ids, WARM, 60) for ids in prompts)) == want
    assert events.count("part") > 5, "a batch of 16 takes more than SLICE_MS"
    assert not any(pair == ("part", "part") for pair in pairwise(events)), events
    assert runner.verified


@pytest.mark.slow
async def test_more_requests_than_a_batch_has_drafts_for_do_without() -> None:
    used, runner = engine(MODEL, parallel=5)
    prompts = [[seed, 3, 200, 45] for seed in range(5)]
    want = [await collect(make(), ids, WARM, 30) for ids in prompts]
    assert await asyncio.gather(*(collect(used, ids, WARM, 30) for ids in prompts)) == want
    assert runner.each > 10


async def test_prompt_lookup_drafts_where_it_gains_more() -> None:
    used, runner = engine(MODEL)

    def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return 3.0 if n_model_draft else 1.2 if drafting else 1.0

    runner.step_ms = step_ms  # type: ignore[method-assign]
    repeating = Sampling(temperature=0, logit_bias=((5, 1000.0),))
    assert await collect(used, PROMPT, repeating, 200) == [5] * 200
    totals = used._generation.totals
    by_lookup = totals.draft_tokens - totals.draft_steps - totals.model_accepted
    assert by_lookup > 100 > totals.model_accepted > 0, "the model drafts until enough tokens have been predicted"


def test_a_draft_model_with_short_convolutions_drafts_for_one_sequence_at_a_time() -> None:
    """They read neighbouring rows of a batch as neighbouring tokens."""
    plans = [load(MODEL, 64, draft=draft).plan.draft for draft in (MODEL, GOLDEN / "lfm2" / "lfm2.F16.gguf")]
    assert [plan.sequences for plan in plans if plan] == [4, 1]


async def test_what_the_draft_model_has_computed_past_the_end_of_an_answer_is_not_used() -> None:
    """The next turn has other tokens there."""
    used, _ = engine(MODEL)
    first = await collect(used, PROMPT, GREEDY, 40)
    totals = used._generation.totals
    for text in (first[:20], first[:7]):
        other = [*PROMPT, *text, 7, 8, 9, 10, 11, 12]
        before = totals.model_drafted - totals.model_accepted
        assert await collect(used, other, GREEDY, 30) == await collect(make(), other, GREEDY, 30)
        assert totals.model_drafted - totals.model_accepted == before, "nothing was rejected"


async def test_another_runner_begins_with_an_empty_cache_of_the_draft_model() -> None:
    """As after the loss of a GPU: the draft model is part of the plan that is loaded again."""
    used, _ = engine(MODEL)
    want = await collect(used, PROMPT, GREEDY, 40)
    again, runner = engine(MODEL)
    used.take_over(again)
    assert await collect(used, PROMPT, GREEDY, 40) == want
    assert runner.verified


# -- what can be a draft model


def test_a_draft_model_of_another_vocabulary_is_refused() -> None:
    model = header("llama/llama.F32")
    tokens = list(model.metadata["tokenizer.ggml.tokens"])
    check_draft(model, header("qwen/qwen3.F16"))
    check_draft(model, replace(model, metadata=model.metadata | {"tokenizer.ggml.tokens": tokens[:-128]}))
    for key, value, says in (
        ("tokenizer.ggml.tokens", [*tokens[:7], "other", *tokens[8:]], "its token 7 is 'other'"),
        ("tokenizer.ggml.tokens", [*tokens, "more"], "it has 305 tokens, the model has 304"),
        ("tokenizer.ggml.tokens", tokens[:-129], "it has 175 tokens, the model has 304"),
        ("tokenizer.ggml.tokens", 5, "its tokens are no list"),
        ("tokenizer.ggml.model", "llama", "its tokenizer.ggml.model is 'llama', the model's is 'gpt2'"),
    ):
        with pytest.raises(WispError, match=says) as error:
            check_draft(model, replace(model, metadata=model.metadata | {key: value}))
        assert error.value.code == "draft_mismatch"
        assert error.value.param == "draft"
        assert "load without draft" in str(error.value)


def write_with_fewer_tokens(path: Path, count: int) -> None:
    """Write MODEL with the first `count` tokens of its vocabulary."""
    writer, files = gguf.GGUFWriter(path, "llama"), ModelFiles.read(MODEL)
    for key, value in files.parts.header.metadata.items():
        if key not in ("general.architecture", "tokenizer.ggml.token_type"):
            add_value(writer, key, count if key == "llama.vocab_size" else value)
    for name, info in files.parts.header.tensors.items():
        rows = np.frombuffer(files.rows(name, 0, int(np.prod(info.shape[1:]))), np.float32).reshape(info.shape[::-1])
        writer.add_tensor(name, rows[:count] if name in ("token_embd.weight", "output.weight") else rows)
    finish(writer)


async def test_a_draft_model_may_lack_the_last_tokens(tmp_path: Path) -> None:
    """As where larger models of a family have more rows for padding. It never drafts them."""
    path = tmp_path / "draft.gguf"
    write_with_fewer_tokens(path, 250)
    on_wasm = await wasm_engines.load(MODEL, 256, draft=path)
    on_wasm.runner.step_ms = engine(path)[1].step_ms  # type: ignore[method-assign]
    for used in (engine(path)[0], on_wasm):
        text = await collect(used, PROMPT, WARM, 60)
        assert max(text) >= 250, "the model has sampled some of them"
        totals = used._generation.totals
        assert totals.model_drafted > totals.model_accepted > 20
        if used.runner.numpy:
            assert text == await collect(make(), PROMPT, WARM, 60)


@pytest.mark.parametrize(
    ("changed", "says", "code"),
    [
        ({"llama.block_count": 0}, "^The draft model's file: llama.block_count is 0", "corrupt_header"),
        ({"llama.rope.scaling.type": "zig"}, "^The draft model's file: RoPE scaling of", "unsupported_architecture"),
    ],
)
def test_an_error_in_a_draft_models_file_names_it(changed: dict[str, object], says: str, code: str) -> None:
    model = header("llama/llama.F32")
    draft = replace(model, metadata=model.metadata | changed)
    with pytest.raises(WispError, match=says) as error:
        make_plan(model, CPU, PlanOptions(64, 16, "f32", draft=draft))
    assert (error.value.code, error.value.param) == (code, "draft")


@pytest.mark.parametrize("recurrent", ["model", "draft"])
def test_recurrent_models_neither_draft_nor_are_drafted_for(recurrent: str) -> None:
    mamba = GOLDEN / "qwen35" / "qwen35.F16.gguf"
    model, draft = (mamba, MODEL) if recurrent == "model" else (MODEL, mamba)
    with pytest.raises(WispError, match=f"The {'draft ' * (recurrent == 'draft')}model is recurrent") as error:
        load(model, 64, draft=draft)
    assert error.value.code == "unsupported_parameter"
    assert error.value.param == "draft"


def test_the_memory_of_the_draft_model_is_counted() -> None:
    alone, beside = load(MODEL, 64).plan, load(MODEL, 64, draft=MODEL).plan
    assert beside.memory()["weights"] == 2 * alone.memory()["weights"]
    assert beside.memory()["kv"] == 2 * alone.memory()["kv"]
    assert beside.draft is not None
    assert beside.draft.cost == pytest.approx(1)


def test_a_trial_waits_for_results_before_it_risks_more() -> None:
    used, runner = engine(MODEL, draft_ms=2.0)
    model = model_of(used)
    runner.steps_in = lambda rows, ms, **kind: int(ms)  # type: ignore[method-assign]
    assert model.steps(1, 3, 16.0, 0) == 2, "each may lose a step of the two"
    assert model.steps(1, 3, 16.0, 2) == 0
    model.account.balance = -2.0
    assert model.steps(1, 3, 16.0, 0) == 1
    model.account.balance = 9.5
    assert model.steps(1, 3, 16.0, 4) == 7


def test_the_first_drafts_on_a_gpu_are_as_many_as_the_time_is_estimated_for() -> None:
    """A submit of one step would look as long as the browser takes to report it."""
    used, runner = engine(MODEL, draft_ms=0.0)
    model = model_of(used)
    runner.on_gpu, model.account.wait = True, 20.0
    estimate = model.account.estimate(3, 1.0, lambda _: 0.0)
    assert model.steps(1, 3, 10 * estimate + 0.1, 0) == 10
    runner.on_gpu = False
    assert model.steps(1, 3, 10 * estimate + 0.1, 0) == 1
