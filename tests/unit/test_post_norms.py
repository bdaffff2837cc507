"""Which lists let the next product add a block's norm, and on which devices."""

from dataclasses import replace

import pytest

from py_engine import planner
from py_engine.plan.kernels import Device, expand
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH
from py_engine.plan.mixed_types import storage_buffers
from py_engine.plan.plan import Op, Plan
from tests.support import cpu_models
from tests.support.devices import GPU


def plan_of(model: str, device: Device = GPU) -> Plan:
    return planner.make_plan(cpu_models.header(model), device, planner.PlanOptions(512, 128, "f16"))


def adding(plan: Plan, name: str) -> list[Op]:
    return [op for op in plan.lists[name] if op.params.get("POST_THREADS")]


def norms(plan: Plan, name: str) -> list[Op]:
    return [op for op in plan.lists[name] if op.kernel == "norm" and op.params["ADD"]]


@pytest.mark.parametrize("name", [DECODE, SMALL_BATCH])
def test_two_dispatches_less_for_each_layer(name: str) -> None:
    """But for the last norm, which leaves the stream where the head looks for it."""
    model = "gemma/gemma3.Q8_0"
    plan, before = plan_of(model), plan_of(model, replace(GPU, max_storage_buffers=8))
    merged = adding(plan, name)
    assert len(merged) >= 2
    assert len(merged) % 2 == 0
    assert len(merged) + len(norms(plan, name)) == len(norms(before, name))
    assert not adding(before, name)
    for op in merged:
        shader = expand(op.kernel, op.params, GPU)
        assert len(shader.bindings) == 1 + storage_buffers(op)
        assert op.bindings["x"] != op.bindings["x_next"]


def test_the_stream_ends_in_the_buffer_that_other_lists_read() -> None:
    plan = plan_of("gemma/gemma3.Q8_0")
    (stream,) = {op.bindings["x"] for op in plan.lists[DECODE] if op.kernel == "embed"}
    last = [op for op in plan.lists[DECODE] if "x_next" in op.bindings or (op.kernel == "norm" and op.params["ADD"])][
        -1
    ]
    assert last.bindings.get("x_next", last.bindings.get("y")) == stream


@pytest.mark.parametrize(
    ("model", "device", "why"),
    [
        ("gemma/gemma3.Q8_0", replace(GPU, software=True), "starting a dispatch takes no time"),
        ("gemma/gemma3.Q8_0", replace(GPU, dot8=False), "x is not rounded"),
        ("gemma/gemma3.F16", GPU, "nor is it for weights of floats"),
        ("llama/llama.Q4_0", GPU, "no norm behind its blocks"),
    ],
)
def test_others_keep_their_dispatches(model: str, device: Device, why: str) -> None:
    plan = plan_of(model, device)
    assert not adding(plan, DECODE) + adding(plan, SMALL_BATCH), why


def test_prompts_keep_them() -> None:
    assert not adding(plan_of("gemma/gemma3.Q8_0"), PREFILL)
