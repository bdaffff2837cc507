"""Drafts by DFlash models: what they compute, and that the text stays the same."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from py_engine.files.draft_header import DFLASH_TARGETS
from py_engine.generate.draft_model import VERIFYING, DraftAccount
from py_engine.load_plan import CPU
from py_engine.plan.attention import AttentionOptions
from py_engine.plan.cache import make_cache, page_group
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.lists import (
    DECODE,
    DRAFT_BLOCK,
    DRAFT_BLOCK_LOGITS,
    DRAFT_BLOCK_MASKED,
    DRAFT_END,
    GREEDY,
    MTP,
    PREFILL,
    SMALL_BATCH,
    SMALL_BATCH_LOGITS,
    begin_block,
    each,
)
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Sampling
from tests.support import dflash_models
from tests.support.cpu_models import header, load
from tests.support.draft_checks import SAMPLINGS, check_cpu_engine, check_end, check_side_by_side, check_text
from tools.selection import fewer

IDS = [(37 * i + 11) % 300 for i in range(40)]
PARTS = [(0, 16, PREFILL), (16, 31, PREFILL), (31, 32, DECODE), (32, 39, SMALL_BATCH)]  # of IDS
Files = tuple[Path, Path]  # of a model and of its DFlash model


@pytest.fixture(scope="module", params=dflash_models.KINDS)
def kind(request: pytest.FixtureRequest) -> dflash_models.Kind:
    return dflash_models.KINDS[request.param]


@pytest.fixture(scope="module")
def files(kind: dflash_models.Kind, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("dflash")
    made = folder / "model.gguf", folder / "draft.gguf"
    dflash_models.write(kind, *made)
    return made


def test_it_computes_what_the_reference_does(kind: dflash_models.Kind, files: Files) -> None:
    """After a prompt in batches, a token alone and a small batch: its caches have the keys and values of all."""
    compare(kind, files)


@pytest.mark.parametrize("name", dflash_models.OTHERS)
def test_it_reads_the_layers_of_other_architectures(name: str, tmp_path: Path) -> None:
    files = tmp_path / "model.gguf", tmp_path / "draft.gguf"
    dflash_models.write(dflash_models.OTHERS[name], *files)
    compare(dflash_models.OTHERS[name], files)


@pytest.mark.parametrize("seed", fewer(range(40), 8))
def test_it_computes_models_of_any_shape(seed: int, tmp_path: Path) -> None:
    kind, files = dflash_models.random_kind(seed), (tmp_path / "model.gguf", tmp_path / "draft.gguf")
    dflash_models.write(kind, *files)
    compare(kind, files)


def test_dflash_models_of_all_targets_are_compared() -> None:
    kinds = {**dflash_models.KINDS, **dflash_models.OTHERS}.values()
    assert {header(f"{kind.base}.F16").architecture for kind in kinds} == set(DFLASH_TARGETS)


def compare(kind: dflash_models.Kind, files: Files, parts: Sequence[tuple[int, int, str]] = PARTS) -> None:
    """Compare the logits of drafts of each length after these parts of IDS, and the token that follows them."""
    cpu, reference = load(files[0], 64, draft=files[1]), dflash_models.DFlashReference(kind, *files)
    for at, end, name in parts:
        states = cpu.buffers["state"][:32].reshape(8, 4)
        states[:, 0] = np.arange(at, at + 8)
        cpu.feed(at, IDS[at:end], [name], 0)
    n = parts[-1][1]
    assert cpu.plan.draft is not None
    for count in range(1, cpu.plan.draft.most + 1):
        want = reference.drafts(IDS[: n + 1], count)
        cpu.feed(n, [IDS[n]], [begin_block(count), DRAFT_BLOCK, DRAFT_BLOCK_MASKED, DRAFT_BLOCK_LOGITS], 0)
        got, known = cpu.buffers[f"{SMALL_BATCH_LOGITS}.logits"][:count, : want.shape[1]], np.isfinite(want)
        np.testing.assert_allclose(got[known], want[known], atol=1e-4)
        assert (got[~known] < -1e29).all()


def test_a_prompt_of_one_token_is_all_that_a_draft_sees(kind: dflash_models.Kind, files: Files) -> None:
    compare(kind, files, [(0, 1, PREFILL)])


def test_the_sampled_tokens_are_those_of_the_logits(files: Files) -> None:
    """They are in place of the masked ones, and what is verified next has all of them."""
    cpu = load(files[0], 64, draft=files[1])
    cpu.feed(0, IDS[:16], [PREFILL], 0)
    assert cpu.plan.draft is not None
    count = min(3, cpu.plan.draft.most)
    cpu.feed(
        16,
        [IDS[16]],
        [begin_block(count), DRAFT_BLOCK, DRAFT_BLOCK_MASKED, DRAFT_BLOCK_LOGITS, each(GREEDY), DRAFT_END],
        0,
    )
    logits = cpu.buffers[f"{SMALL_BATCH_LOGITS}.logits"][:count, : cpu.plan.n_vocab]
    assert cpu.buffers["tokens"][0, 16 : 17 + count].tolist() == [IDS[16], *logits.argmax(axis=1)]
    states = cpu.buffers["state"][:32].reshape(8, 4)
    assert states[0, 1] == 1 + count
    assert states[: 1 + count, 0].tolist() == list(range(16, 17 + count))


@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
async def test_the_text_is_the_one_without_drafts(files: Files, sampling: Sampling) -> None:
    await check_text(files, sampling)


@pytest.mark.slow
async def test_requests_draft_side_by_side(files: Files) -> None:
    await check_side_by_side(files)


@pytest.mark.slow
async def test_drafts_that_do_not_pay_end(files: Files) -> None:
    await check_end(files)


@pytest.mark.slow
async def test_the_cpu_engine_drafts_the_same(files: Files) -> None:
    await check_cpu_engine(files)


def test_it_adds_weights_and_caches(kind: dflash_models.Kind, files: Files) -> None:
    without, beside = load(files[0], 64).plan, load(files[0], 64, draft=files[1]).plan
    assert all(beside.memory()[pool] > without.memory()[pool] for pool in ("weights", "kv"))
    assert beside.draft is not None
    assert 0 < beside.draft.cost < 1
    assert beside.draft.most == (1 if beside.recurrent else min(MAX_DRAFT, kind.block - 1))
    assert beside.draft.computed_by_model
    assert beside.draft.at_once
    assert MTP not in beside.lists


def test_more_tokens_of_a_draft_cost_no_more_steps() -> None:
    at_once, one_by_one = DraftAccount(7, 0.3, at_once=True), DraftAccount(7, 0.3)
    assert [at_once.estimate(k, 0.0, lambda k: 0.0) for k in (1, 7)] == [VERIFYING + 0.3] * 2
    assert one_by_one.estimate(7, 0.0, lambda k: 0.0) == VERIFYING + 7 * 0.3
    account = DraftAccount(7, 0.3, at_once=True)
    account.start()
    account.record(2, 1, 3, 10.0, lambda k: 19.5 if k == 2 else 0.0)  # a step with a draft took 1.95 plain ones
    assert account.estimate(7, 10.0, lambda k: 19.5 if k == 2 else 0.0) == pytest.approx(1.95)


def test_a_longer_draft_that_took_too_long_is_not_tried_again() -> None:
    """Its layers take no longer, but what verifies it does, as on a CPU: each length is measured once."""
    times = {k: 10.0 * (1 + 0.8 * k) for k in range(1, 8)}  # 0.8 plain steps for each more row
    account, known = DraftAccount(7, 0.3, at_once=True), dict[int, float]()
    account.start()
    chosen = [2]
    for _ in range(20):
        known[chosen[-1]] = times[chosen[-1]]
        account.balance = 9.0
        account.record(chosen[-1], 1, 2, 10.0, lambda k: known.get(k, 0.0))
        chosen.append(account.choose(10.0, lambda k: known.get(k, 0.0)))
    assert len(set(chosen[-8:])) == 1
    assert all(chosen[:-8].count(k) <= 2 for k in set(chosen) - {chosen[-1]})


# -- what kernels do not compute


@pytest.fixture
def ops() -> Ops:
    """The ops of prompts."""
    return Ops(Plan(16, 64, 304), PREFILL, 16, CPU)


def test_prompts_see_no_later_positions(ops: Ops) -> None:
    cache, q = make_cache(ops.plan, 0, 64, "f32", page_group(ops.plan, 0)), ops.rows("q", 64)
    with pytest.raises(AssertionError, match="hide later positions"):
        ops.attention(q, cache, (4, 4, 16), AttentionOptions(1.0, mutual=True))


def test_what_is_seen_has_one_end() -> None:
    with pytest.raises(AssertionError, match="know one end"):
        AttentionOptions(1.0, mutual=True, anchor=5)
