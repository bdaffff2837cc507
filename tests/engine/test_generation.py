"""Generation on WebGPU with steps submitted ahead: the properties that tests/unit/test_generation.py tests in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.plan.sampling import Sampling
from tests.support import sampling_reference as reference
from tests.support.engine_driver import run
from tests.support.page import sampler_batch
from tests.support.sampling_reference import chi_square

pytestmark = pytest.mark.lavapipe
MODEL = "/repo/tests/golden/llama/llama.Q8_0.gguf"


def test_answers_do_not_depend_on_the_steps_submitted_ahead(engine_pages: Callable[[str | None], Page]) -> None:
    out = run(
        engine_pages("lavapipe"),
        MODEL,
        "generation.answers",
        backend="webgpu",
        kv_type="f16",
        context_length=256,
    )
    for name in ("plain", "shaped"):
        for one in (name, f"{name} 0.5", f"{name} 0.97"):
            assert out[one][0] == out[one][1] == out[one][2], one
            assert len(out[one][0]) == 40
        assert out[name][0] != out[f"{name} 0.5"][0]
    assert 7 not in out["shaped"][0]
    *held, forced, free = out["shared"]
    assert held == [out["plain 0.5"][0], out["shaped 0.5"][0]], "beside others"
    assert free == out["plain"][0]
    assert len(forced) == 40
    alone = [out["plain 0.5"][0], out["shaped 0.5"][0], out["masked alone"], out["plain"][0]]
    assert all(beside == alone for beside in out["masked"])
    assert max(out["masked batches"]) >= 2, "slow masks, such as Python's on a busy machine, are made alone"
    assert out["forced"][0] == out["forced"][1], "fed by Python, and by masked.js"
    assert [out["forced"][0][i] for i in (7, 10, 18, 32)] == [7, 10, 18, 32]
    assert out["told"] == 3, "masked.js feeds all of them"
    assert out["timed"] == 40 - 3 * 4, "a step's time is not shared with tokens that were fed"
    assert out["rows"] == 40
    assert out["worst"] < 0.1, "f16, and one token at a time against a batch"
    assert out["seeds"][0] == out["seeds"][1]
    assert out["tokens"] == out["plain"][0]
    assert out["beside"] == out["alone"], "with a prompt that was copied from the sequence that had it first"
    assert sum(out["cached"]) >= 70


def test_caches_grow_and_pages_are_copied(engine_pages: Callable[[str | None], Page]) -> None:
    """The caches of a short context grow for requests side by side, which copy the page of their common beginning.

    The test above copies pages in f16.
    """
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "q8_0", "context_length": 64}
    out = run(engine_pages("lavapipe"), MODEL, "generation.pages", **options)
    assert out["alone"] == out["beside"]
    assert out["again"] == out["alone"][0]
    assert out["cached"] >= 30
    assert out["copies"] >= 1
    before, after = out["pages"]
    assert before == {"window": 0, "total": 1, "free": 1, "held": 0}
    assert after["total"] in range(2, 5)
    assert after["held"] == 0


def test_sequences_go_on_while_caches_are_allocated(engine_pages: Callable[[str | None], Page]) -> None:
    page = engine_pages("lavapipe")
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 64}
    submits, caches = run(page, MODEL, "generation.submits_beside_allocations", **options)
    assert len(submits) == caches
    assert min(submits) > 0


def test_any_samplers_share_a_batch(engine_pages: Callable[[str | None], Page]) -> None:
    """A sequence's tokens and log-probabilities do not depend on the samplers and masks of the others."""
    page = engine_pages("lavapipe")
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 256, "parallel": 8}
    sampler_batch.check(run(page, MODEL, "sampler_batch.batch_and_pairs", **options))


@pytest.mark.parametrize(("model", "aborted"), [(MODEL, 41), ("/repo/tests/golden/granite/granitehybrid.F16.gguf", 21)])
def test_aborts_leave_no_trace_and_a_full_context_goes_on(
    engine_pages: Callable[[str | None], Page], model: str, aborted: int
) -> None:
    """After many requests closed at random points, the engine answers like a fresh one. Over a full context,
    generation continues with the same seeds.
    """
    page = engine_pages("lavapipe")
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 40}
    wants, shifted, dropped = run(page, model, "generation.aborts_and_shifts", {"aborted": aborted}, **options)
    assert len(wants) == aborted // 20 + 1
    assert all(want == wants[0] for want in wants)
    assert shifted[0] == shifted[1]
    assert len(shifted[0]) == 120
    assert dropped >= 80


def test_draws_follow_softmax(engine_pages: Callable[[str | None], Page]) -> None:
    """Three thousand draws from the same logits, each with its own noise, against softmax."""
    counts, logits = run(engine_pages("lavapipe"), MODEL, "generation.draws", backend="webgpu", context_length=256)
    expected = np.array(reference.distribution(logits, [], 0, Sampling(temperature=0.8)))
    assert sum(counts) == 3000
    statistic, limit = chi_square(np.array(counts), expected)
    assert statistic < limit
    warmer = np.array(reference.distribution(logits, [], 0, Sampling(temperature=1.0)))
    assert chi_square(np.array(counts), warmer)[0] > limit
