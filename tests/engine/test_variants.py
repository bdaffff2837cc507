"""One model with each kernel variant that no software GPU would choose by itself.
No software GPU has subgroup matrices; tests/kernels/test_matrices.py emulates them in plain WGSL.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import logits_of, run
from tests.support.tolerances import assert_close, same_ids

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"
ROUNDED = 0.2  # allowed error of a logit from rounding activations to bytes; llama.cpp's own rounding has it, too
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("lavapipe", {"subgroup": 0}),
    ("lavapipe", {"f16": False, "software": False}),
    ("lavapipe", {"dot8": True}),
    ("lavapipe", {"f16": False, "subgroup": 0, "dot8": True}),
]


def named(value: Any) -> str:
    """The test's name in pytest."""
    return value if isinstance(value, str) else ",".join(f"{k}={int(v)}" for k, v in value.items()) or "own"


@pytest.mark.parametrize(("adapter", "variant"), VARIANTS, ids=named)
def test_every_variant_gives_equal_outputs(
    engine_pages: Callable[[str | None], Page], adapter: str, variant: dict[str, Any]
) -> None:
    """Logits by prefill's kernels, and greedy ids by decode's."""
    golden = np.load(GOLDEN / "llama.Q4_0.npz")
    about = json.loads((GOLDEN / "llama.Q4_0.json").read_text())
    out = run(
        engine_pages(adapter),
        "/repo/tests/golden/llama/llama.Q4_0.gguf",
        "engines.evaluate_and_generate",
        {"prompt": golden["prompt"].tolist(), "count": len(golden["greedy"])},
        backend="webgpu",
        context_length=128,
        variant=variant,
        tune=False,
    )
    device = out["kernels"]["device"]
    assert {k: v for k, v in variant.items() if k in device} == {k: v for k, v in device.items() if k in variant}
    assert_close(golden["logits_ref"], logits_of(out), "f16")
    noise = about["llama_cpp_vs_reference"]["max_abs"] + 0.15 + (ROUNDED if variant.get("dot8") else 0)
    same_ids(golden["greedy"], out["ids"], about["greedy_margin"], noise)
