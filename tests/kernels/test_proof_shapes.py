"""Right kernels of models of real sizes pass the proof: a false alarm would slow such a model down, or refuse it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page

from bench.shapes import MIX, SHAPES, header
from py_engine.plan.kernels import Shader
from py_engine.planner import PlanOptions, make_plan
from py_engine.proof import comparison
from py_engine.proof.cases import cases
from tests.support.kernels.bench import variants
from tests.support.kernels.proofs import run_case

LISTS = ("prefill", "packed", "decode", "small_batch")


def around_the_cache(shader: Shader) -> bool:
    """Whether a kernel writes or reads the KV cache: the values there are the largest, and some are rounded twice."""
    return shader.label.startswith("attention") or "EPILOGUE=qkv" in shader.label


@pytest.mark.parametrize(
    ("shape", "kv_type", "max_small_batch"), [("llama-3.2-1b", "f16", 32), ("qwen3-0.6b", "q8_0", 8)]
)
def test_kernels_around_the_cache_pass(
    kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]], shape: str, kv_type: str, max_small_batch: int
) -> None:
    page, capabilities = kernel_pages("lavapipe")
    device = replace(variants(capabilities)["f16 subgroups"], dot8=True, max_threads=256)
    plan = make_plan(
        header(SHAPES[shape], MIX), device, PlanOptions(2048, 256, kv_type, max_small_batch=max_small_batch)
    )
    made = list(cases(plan, device, LISTS, lambda shader: not around_the_cache(shader)))
    # the other's heads have norms, and its cache is q8_0
    more = {"matvec", "matvec_small_batch", "attention_decode_tiles"} if shape.startswith("llama") else set()
    assert {case.ops[0].kernel for case in made} == {"attention", "attention_decode"} | more
    for case in made:
        assert comparison.fault(case, run_case(page, case, device)) is None, case.shaders[0].label
