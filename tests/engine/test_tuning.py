"""Kernels chosen by measurement on a software GPU, where that must be asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.engine.driver import floats, run
from tests.engine.judge import assert_close

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"


def load(page: Page, before: str = "", **options: Any) -> dict[str, Any]:
    """Load a model, after some Python; its logits and what its kernels were chosen for."""
    golden = np.load(GOLDEN / "llama.Q4_0.npz")
    out = run(
        page,
        "/repo/tests/golden/llama/llama.Q4_0.gguf",
        """
logits, shape = await engine.evaluate(prompt)
return {"kernels": engine.stats()["kernels"], "logits": raw(logits), "shape": shape}
""",
        {"prompt": golden["prompt"].tolist()},
        before=before,
        backend="webgpu",
        kv_type="f32",
        context_length=128,
        **options,
    )
    assert_close(golden["logits_ref"], floats(out["logits"], out["shape"]), "f32")
    return out["kernels"]


@pytest.fixture(scope="module")
def page(engine_pages: Callable[[str | None], Page]) -> Page:
    return engine_pages("swiftshader")


# Fewer things to look at and more time for them: compiling takes long on a CPU. One tile leaves rows out, one has more
# threads than a workgroup may.
FEW = """
from py_engine.plan import tiles
from py_engine.tuning import candidates, tuner
candidates.MAX_MATRICES = 1
tune = tuner.tune
async def slowly(plan, device, bench, forced=()):
    return await tune(plan, device, bench, forced, 60)
tuner.tune = slowly
tiles.alternatives = lambda device, weight, first: [(0, 4, 16, 8), (0, 2048, 1, 4)]
"""
OTHERS = """
from py_engine.tuning import cached_choices, tuner
cached_choices.kernels_hash = lambda: "of other kernels"
async def at_once(plan, device, bench, forced=()):
    return device, []
tuner.tune = at_once
"""


def test_chosen_kept_and_redone(page: Page) -> None:
    """Measured, then read back; measured again where the kernels are others. What is wrong is never used."""
    first = load(page, FEW, tune=True)
    assert first["source"] == "measured"
    matrix = next(c for c in first["choices"] if c["choice"].startswith("Q4_0"))
    good, wrong, broken = matrix["candidates"]
    assert good["microseconds"] > 0
    assert good["error"] < 1e-5
    assert "wrong" in wrong["rejected"]
    assert "does not compile" in broken["rejected"]
    assert matrix["chosen"] == good["name"]
    again = load(page, tune=True)
    assert again["source"] == "cache"
    assert again["choices"] == first["choices"]
    assert again["tiles"] == first["tiles"]
    assert again["ms"] < first["ms"] / 4
    assert load(page, OTHERS, tune=True)["source"] == "measured"
