"""Models with states: sequences side by side, snapshots, and a slot for each, on the numpy executor."""

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.lists import DECODE, EMBED, PACKED, PREFILL, SMALL_BATCH, SMALL_BATCH_LOGITS, pool
from py_engine.plan.packing import packed_batches
from py_engine.plan.sampling import Sampling
from py_engine.plan.states import FIRST_SLOTS
from tests.support.cpu_engines import WARM, Anything, RandomConstraint, Runner, collect
from tests.support.cpu_models import GOLDEN, evaluate, load
from tests.support.model_files import ModelFiles

pytestmark = pytest.mark.slow

HYBRID = GOLDEN / "granite" / "granitehybrid.F16.gguf"
MODELS = [HYBRID, GOLDEN / "qwen35" / "qwen35.F16.gguf", GOLDEN / "qwen35" / "qwen4exp.F16.gguf"]
MODELS += [GOLDEN / "latent" / "glm5-next.F16.gguf"]
MODELS += [GOLDEN / "mamba" / "mamba2.F16.gguf", GOLDEN / "rwkv" / "rwkv7.F16.gguf"]  # without pages
in_every_model = pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
PROMPT = [7 * i % 250 for i in range(40)]
GREEDY = Sampling(temperature=0)


def make(model: Path = HYBRID) -> Engine:
    cpu = load(model, 256)
    runner = Runner(cpu.plan)
    runner._cpu = cpu
    return Engine(cpu.plan, runner, "cpu", 4)


@pytest.mark.parametrize("batch", [2, 5, 16])
def test_chunks_of_any_size_give_the_same_logits(batch: int) -> None:
    want = evaluate(load(HYBRID, 256), PROMPT)
    np.testing.assert_allclose(evaluate(load(HYBRID, 256, batch), PROMPT), want, atol=1e-4)


def test_the_newest_token_can_be_computed_again() -> None:
    """After a batch and after a step; its state before is in the slot's other half."""
    model = load(HYBRID, 256)
    want = evaluate(model, PROMPT)
    for _ in range(2):
        model.feed(len(PROMPT) - 1, PROMPT[-1:], [DECODE])
        np.testing.assert_allclose(model.buffers["logits"], want[-1], atol=1e-4)


def test_a_small_batch_of_several_sequences() -> None:
    """Two sequences, with two tokens and one; a sequence that begins there has no state before."""
    model, rows = load(HYBRID, 256), {}
    for seq, start in ((0, 10), (1, 20)):
        model.set_pages(0, seq, 0, [seq])
        model.set_pages(1, seq, 0, [seq])
        rows[seq] = evaluate(load(HYBRID, 256), PROMPT[: start + 2])
        for at in range(0, start, 10):
            model.feed(at, PROMPT[at : at + 10], [PREFILL], seq)
    places = [(10, 0), (11, 0), (20, 1)]
    for m, (position, seq) in enumerate(places):
        model.set_tokens(seq, position, [PROMPT[position]])
        model.states[m] = position, len(places), 0, seq
    model.run(SMALL_BATCH)
    model.run(SMALL_BATCH_LOGITS)
    want = [rows[seq][position] for position, seq in places]
    got = model.buffers["small_batch_logits.logits"][:3, : model.plan.n_vocab]
    np.testing.assert_allclose(got, want, atol=1e-4)


@in_every_model
async def test_a_conversation_goes_on_from_the_end_of_its_last_prompt(model: Path) -> None:
    engine = make(model)
    first = await collect(engine, PROMPT, WARM, 12)
    assert await collect(engine, PROMPT, WARM, 12) == first
    assert engine.last.cached_tokens == len(PROMPT) - 1, "the same prompt once more"
    longer = [*PROMPT, *first[:8], 3, 1, 4]
    want = await collect(make(model), longer, GREEDY, 12)
    assert await collect(engine, longer, GREEDY, 12) == want
    assert engine.last.cached_tokens >= len(PROMPT)
    other = [*PROMPT[:30], 9, 9, 9]
    want = await collect(make(model), other, WARM, 12)
    assert await collect(engine, other, WARM, 12) == want
    assert engine.last.cached_tokens == 0, "no state is known after the common prefix"
    engine.forget()
    assert await collect(engine, longer, GREEDY, 3) == (await collect(make(model), longer, GREEDY, 3))
    assert engine.last.cached_tokens == 0


async def test_a_common_beginning_of_prompts_gets_a_snapshot() -> None:
    """The second prompt that has it computes it once more, in parts; the third goes on from there."""
    engine, common = make(), [11 * i % 250 for i in range(90)]
    for number, cached in ((1, 0), (2, 0), (3, 90), (4, 90)):
        prompt = [*common, *[number] * 8]
        want = await collect(make(), prompt, WARM, 12)
        assert await collect(engine, prompt, WARM, 12) == want
        assert engine.last.cached_tokens == cached


@in_every_model
async def test_answers_side_by_side_are_those_of_one_alone(model: Path) -> None:
    prompts = [PROMPT[i : i + 20 + 3 * i] for i in range(4)]
    samplings = [Sampling(temperature=1.2, seed=i) for i in range(4)]
    want = [await collect(make(model), p, s, 20) for p, s in zip(prompts, samplings, strict=True)]
    engine = make(model)
    got = await asyncio.gather(*(collect(engine, p, s, 20) for p, s in zip(prompts, samplings, strict=True)))
    assert got == want
    assert engine.plan.page_groups[-1].pages >= 4, "the slots have grown"


async def test_sequences_wait_for_a_slot() -> None:
    """Where memory allows no more slots than at first, three sequences run and the fourth waits."""
    engine = make()

    async def refuse(pages: list[int]) -> bool:
        return False

    engine._generation.sequences._reserve_pages = refuse
    prompts = [PROMPT[i : i + 20] for i in range(4)]
    want = [await collect(make(), p, WARM, 10) for p in prompts]
    assert await asyncio.gather(*(collect(engine, p, WARM, 10) for p in prompts)) == want
    assert engine.plan.page_groups[-1].pages == FIRST_SLOTS


async def test_a_constraint_beside_other_answers() -> None:
    """Between time slices, others use the device; the newest token is then computed again."""
    want = await collect(make(), PROMPT, WARM, 20, constraint=RandomConstraint())
    engine = make()
    engine._generation.time_slices.expired = lambda *_: True  # type: ignore[method-assign]
    others = [collect(engine, PROMPT[i:], GREEDY, 20) for i in (3, 9)]
    got, *_ = await asyncio.gather(collect(engine, PROMPT, WARM, 20, constraint=RandomConstraint()), *others)
    assert got == want


async def test_an_abort_anywhere_leaves_no_trace() -> None:
    engine, dice = make(), random.Random(5)
    want = await collect(make(), PROMPT, WARM, 10)
    for number in range(40):
        prompt = PROMPT[: dice.randint(1, 40)] + [dice.randrange(250) for _ in range(dice.randint(0, 20))]
        constraint = Anything() if number % 3 == 0 else None
        async with aclosing(engine.generate(GenerationRequest(prompt, WARM, AnswerLimits(20), constraint))) as stream:
            for _ in range(dice.randint(0, 12)):
                if await anext(stream, None) is None:
                    break
        if number % 8 == 0:
            assert await collect(engine, PROMPT, WARM, 10) == want, number
    states = engine._generation.sequences.cache.states
    assert states is not None
    assert states.pool.held == 0


async def test_a_full_context_drops_tokens_and_computes_the_rest_again() -> None:
    engine = make()
    got = await collect(engine, PROMPT, GREEDY, 230, keep=4)
    assert len(got) == 230
    assert engine.last.shifted_tokens > 0


async def test_drafts_are_off() -> None:
    engine = make()
    await collect(engine, [1, 2, 3, 4] * 10, GREEDY, 40)
    assert engine._generation.totals.draft_steps == 0


@in_every_model
def test_packed_sequences_have_states_of_their_own(model: Path) -> None:
    """Of short sequences in one batch, and of one that goes on in the next batch.

    BLAS adds in an order that depends on the size of a batch and on the processor, so the error grows with the values.
    """
    lengths, rows = (9, 5, 12), []
    sequences = [PROMPT[i : i + n] for i, n in enumerate(lengths)]
    packed = load(model, 256)
    for batch in packed_batches(sequences, 26, packed.plan.batch):
        packed.feed_packed(batch, [PACKED, EMBED, pool("last")])
    assert packed.plan.embedding is not None
    width = packed.plan.embedding.width
    for ids in sequences:
        alone = load(model, 256)
        for batch in packed_batches([ids], len(ids), alone.plan.batch):
            alone.feed_packed(batch, [PACKED, EMBED, pool("last")])
        rows.append(alone.buffers["pooled"][0, :width].copy())
    np.testing.assert_allclose(packed.buffers["pooled"][:3, :width], rows, atol=4e-6 * np.abs(rows).max())


def test_older_files_of_rwkv_6_have_a_tensor_for_each_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = GOLDEN / "rwkv" / "rwkv6.F16.gguf", ModelFiles.read
    want = evaluate(load(path, 256), PROMPT)

    def older(*given: Any) -> ModelFiles:
        files = read(*given)
        for tensors in (files.parts.header.tensors, files.parts.headers[0].tensors):
            for name in [name for name in tensors if name.endswith("lerp_fused.weight")]:
                fused = tensors.pop(name)
                size = fused.nbytes // 5
                for i, part in enumerate("wkvrg"):
                    own, at = name.replace("fused", part), fused.offset + i * size
                    tensors[own] = replace(fused, name=own, shape=fused.shape[:3], offset=at, nbytes=size)
        return files

    monkeypatch.setattr(ModelFiles, "read", older)
    np.testing.assert_array_equal(evaluate(load(path, 256), PROMPT), want)
