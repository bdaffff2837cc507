"""Drafts by a model's own MTP layer: what it computes, and that the text stays the same."""

from pathlib import Path

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.lists import DECODE, MTP, MTP_NEXT, PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Sampling
from tests.support import mtp_models, wasm_engines
from tests.support.cpu_engines import PROMPT, SHAPED, WARM, Counting, collect
from tests.support.cpu_models import load

GREEDY = Sampling(temperature=0)
IDS = [(37 * i + 11) % 300 for i in range(40)]


@pytest.fixture(scope="module", params=mtp_models.BASES, ids=lambda base: base.split("/")[1])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("mtp") / "model.gguf"
    mtp_models.write(request.param, to)
    return to


def test_the_layer_computes_what_the_reference_does(path: Path) -> None:
    """After a prompt in batches, a token alone and a small batch: its cache has the keys and values of all."""
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


def _always(runner: object) -> None:
    """Let steps with drafts cost as much as plain ones, and drafts by prompt lookup too much."""

    def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return 1.0 if n_model_draft or not drafting else 100.0

    runner.step_ms = step_ms  # type: ignore[attr-defined]


def engine(path: Path, *, mtp: bool) -> Engine:
    cpu = load(path, 256, mtp=mtp)
    runner = Counting(cpu.plan)
    runner._cpu = cpu
    _always(runner)
    return Engine(cpu.plan, runner, "cpu", speculation=mtp)


@pytest.mark.parametrize("sampling", [GREEDY, WARM, SHAPED], ids=["greedy", "seed", "shaped"])
async def test_the_text_is_the_one_without_drafts(path: Path, sampling: Sampling) -> None:
    used = engine(path, mtp=True)
    assert await collect(used, PROMPT, sampling, 60) == await collect(engine(path, mtp=False), PROMPT, sampling, 60)
    totals = used._generation.totals
    assert 0 < totals.model_accepted < totals.model_drafted, "some are rejected"
    print(totals)


async def test_the_cpu_engine_drafts_the_same(path: Path) -> None:
    on_numpy, on_wasm = engine(path, mtp=True), await wasm_engines.load(path, 256, mtp=True)
    _always(on_wasm.runner)
    texts = [await collect(used, PROMPT, GREEDY, 60) for used in (on_numpy, on_wasm)]
    assert texts[0] == texts[1]
    counts = [
        (totals.draft_steps, totals.model_drafted, totals.model_accepted)
        for totals in (used._generation.totals for used in (on_numpy, on_wasm))
    ]
    assert counts[0] == counts[1]
    assert counts[0][2] > 5


def test_a_recurrent_model_drafts_one_token(path: Path) -> None:
    draft = load(path, 64, mtp=True).plan.draft
    assert draft is not None
    assert draft.most == (1 if "qwen35" in str(path.read_bytes()[:4096]) else MAX_DRAFT)
