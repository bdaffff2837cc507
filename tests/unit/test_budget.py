"""The memory that a model needs, and the error where it does not fit."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from py_engine import planner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.options import LoadOptions
from py_engine.plan import budget
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from tests.support.cpu_models import header

GOLDEN = Path(__file__).parents[1] / "golden"


def plan(name: str, kv_type: str = "f16", n_ctx: int = 256, device: Device | None = None) -> Plan:
    return planner.make_plan(header(name), device or Device(), planner.PlanOptions(n_ctx, 64, kv_type))


def test_estimate_needs_no_more_than_the_header() -> None:
    class Source:
        size = (GOLDEN / "llama/llama.F16.gguf").stat().st_size

    source: Any = Source()
    got = asyncio.run(Engine.estimate(source, header("llama/llama.F16"), LoadOptions(128, "cpu")))
    assert got["context_length"] == 128
    assert got["total"] == sum(got[pool] for pool in ("weights", "kv", "activations", "state"))
    assert got["weights"] == pytest.approx(Source.size, rel=0.2)
    assert "fits" not in got, "numpy has no device limits"


def test_a_cache_larger_than_a_binding_is_refused_with_what_fits() -> None:
    made = plan("llama/llama.F16")
    row = made.buffers["k.0"].nbytes // 256
    device = Device(max_binding=130 * row)
    error = budget.limit_error(made, device)
    assert isinstance(error, WispError)
    assert (error.code, error.param) == ("context_too_long", "contextLength")
    assert "A context of 128 tokens would fit." in str(error)
    assert budget.limit_error(plan("llama/llama.F16", n_ctx=128), device) is None
    assert budget.estimate(made, device)["fits"] is False
    assert budget.estimate(made, device)["advice"] == str(error)
    assert budget.estimate(made, Device()) | {"fits": True, "advice": None} == budget.estimate(made, Device())


def test_a_cache_in_bytes_is_named_where_it_would_do() -> None:
    made = plan("llama/llama.F16")
    device = Device(max_binding=made.buffers["k.0"].nbytes * 3 // 4)
    error = budget.limit_error(made, device)
    assert error is not None
    assert 'all 256 with kvType "q8_0"' in str(error)
    assert budget.limit_error(plan("llama/llama.F16", "q8_0"), device) is None


def test_an_encoder_computes_all_of_its_context_at_once() -> None:
    made = plan("embedding/bert.F16")
    error = budget.limit_error(made, Device(max_binding=max(b.nbytes for b in made.buffers.values()) - 1))
    assert error is not None
    assert error.code == "context_too_long"
    assert "q8_0" not in str(error)


def test_a_model_whose_smallest_context_does_not_fit() -> None:
    error = budget.limit_error(plan("llama/llama.F16"), Device(max_binding=1024))
    assert error is not None
    assert error.code == "model_too_large"


def test_out_of_memory_says_what_each_change_gains() -> None:
    text = str(budget.out_of_memory(plan("llama/llama.F16")))
    assert "for a context of 256 tokens" in text
    assert "Q4_K_M saves" in text
    big = plan("llama/llama.Q4_0", "f32")
    big.buffers["k.0"] = big.buffers["k.0"].__class__("k.0", (1 << 20, 64), "f32", "kv")
    text = str(budget.out_of_memory(big))
    assert "Q4_K_M" not in text, "it is about as small already"
    assert "a context of 128 tokens saves 128 MiB" in text
    assert 'kvType "q8_0" saves 184 MiB' in text
