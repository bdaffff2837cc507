"""Kernels chosen by measurement on a software GPU, which measures only on request."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import logits_of, run
from tests.support.tolerances import assert_close

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"


def load(page: Page, within: str | None = None, **options: Any) -> dict[str, Any]:
    """Load a model with a patch to the page's tuning; return its logits and the device variant of its kernels."""
    golden = np.load(GOLDEN / "llama.Q4_0.npz")
    out = run(
        page,
        "/repo/tests/golden/llama/llama.Q4_0.gguf",
        "engines.evaluate_and_kernels",
        {"prompt": golden["prompt"].tolist()},
        within=within,
        backend="webgpu",
        kv_type="f16",
        context_length=256,
        **options,
    )
    assert_close(golden["logits_ref"], logits_of(out), "f16")
    return out["kernels"]


@pytest.fixture(scope="module")
def page(engine_pages: Callable[[str | None], Page]) -> Page:
    return engine_pages("lavapipe")  # whose shader cache has what an earlier load compiled


def test_tuning_choices_are_measured_cached_and_measured_again(page: Page) -> None:
    """The choice is measured, then read from the cache. Changed kernels are measured again, wrong ones never used."""
    first = load(page, "tuning_patches.one_matrix_and_bad_tiles", tune=True)
    assert first["source"] == "measured"
    matrix, batch = (c for c in first["choices"] if c["choice"].startswith("Q4_0"))
    good, wrong, broken = matrix["candidates"]
    assert good["microseconds"] > 0
    assert good["error"] < 1e-5
    assert "wrong" in wrong["rejected"]
    assert "does not compile" in broken["rejected"]
    assert matrix["chosen"] == good["name"]
    assert all(candidate.get("error", 1) < 1e-5 for candidate in batch["candidates"]), batch["candidates"]
    again = load(page, tune=True)
    assert again["source"] == "cache"
    assert again["choices"] == first["choices"]  # to the nanosecond: nothing was measured again
    assert again["tiles"] == first["tiles"]
    assert load(page, "tuning_patches.other_kernels", tune=True)["source"] == "measured"
