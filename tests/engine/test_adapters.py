"""LoRA adapters and control vectors on WebGPU: logits of the merged weights, and requests with different adapters.

tests/unit/test_adapters.py has the rest, on the CPU engines.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import logits_of, run
from tests.support.tolerances import assert_close, same_ids
from tools.goldens import GOLDEN
from tools.selection import everything

pytestmark = pytest.mark.lavapipe
CASES: list[tuple[str, dict[str, Any]]] = [("lora-llama.Q4_K_M", {"dot8": True})]
# tests/unit runs these on the CPU engines, and tests/kernels their kernels; here they take a minute or more each.
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("lora-phi3.F16", {}),  # stacked matrices in one tensor
    ("lora-qwen3moe.F16", {}),  # experts
    ("lora-gemma4-moe.F16", {}),  # experts with gate and up in one tensor, and factors
    ("lora-qwen35.F16", {"f16": False, "subgroup": 0}),  # rows of one tensor in two matrices, states
]


@pytest.mark.parametrize("adapter", ["lavapipe-wide"])  # test_batch_bits.py compiles most of the same there
@pytest.mark.parametrize(("case", "variant"), CASES + OTHERS * everything())
def test_adapters(engine_pages: Callable[[str | None], Page], case: str, variant: dict[str, Any], adapter: str) -> None:
    golden = np.load(GOLDEN / "lora" / f"{case}.npz")
    about = json.loads((GOLDEN / "lora" / f"{case}.json").read_text())
    urls = [f"/repo/tests/golden/{about['base']}.gguf"]
    urls += [f"/repo/tests/golden/lora/{case}.{part}.gguf" for part in "abc"]
    sets = {name: one["scales"] for name, one in about["sets"].items()} | {"off": [0.0, 0.0, 0.0]}
    out = run(
        engine_pages(adapter),
        urls,
        "adapters.sets",
        {"prompt": golden["prompt"].tolist(), "sets": sets, "count": 10},
        backend="webgpu",
        kv_type="f32" if variant.get("f16") is False else "f16",
        context_length=256,
        variant=variant,
        prove=True,
        tune=False,
    )
    assert not out["proof"]["wrong"]
    assert not out["proof"]["skipped"]
    precision = "int8" if variant.get("dot8") else "f32" if variant.get("f16") is False else "f16"
    for name, one in about["sets"].items():
        assert_close(golden[f"logits_ref.{name}"], logits_of(out["logits"][name]), precision)
        same_ids(golden[f"greedy.{name}"], out["alone"][name], one["greedy_margin"], 2 * one["max_abs"] + 0.15)
    alone = list(out["alone"].values())
    assert out["beside"] == alone[: len(out["beside"])]
    assert len({tuple(ids) for ids in out["beside"]}) > 1
    assert out["cached"] == [0] * len(out["beside"]), "other scales' keys and values are not for a request"
    if "qwen35" not in case:  # its snapshots are evicted by the other requests
        assert all(cached > 0 for cached in out["again"])
