"""Lists of one token have attention that normalises and rotates its heads itself, where the device allows it."""

from dataclasses import replace

import pytest

from py_engine.plan import decode_tiles
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH
from py_engine.plan.plan import Op, Plan
from py_engine.planner import PlanOptions, make_plan
from tests.support.cpu_models import header

DEVICE = Device(subgroup=32, max_workgroup_storage=32768)


def plan_of(model: str, device: Device, kv_type: str = "f16") -> Plan:
    return make_plan(header(model), device, PlanOptions(256, 64, kv_type))


def lists_with(plan: Plan, *, merged: bool) -> set[str]:
    """The lists in which attention normalises heads, or in which another dispatch does in contexts of any length."""
    return {
        name
        for name, ops in plan.lists.items()
        if any(bool(op.params.get("NORMS")) if merged else normalises_any(op) for op in ops)
    }


def normalises_any(op: Op) -> bool:
    """Whether an op normalises heads in contexts of any length. Another does for attention_decode_tiles.wgsl."""
    assert op.contexts.above in (0, decode_tiles.ABOVE)
    return op.kernel == "norm_rope_append" and not op.contexts.above


def test_one_token_has_a_dispatch_less() -> None:
    plan = plan_of("qwen/qwen3.F16", DEVICE)
    merged, apart = lists_with(plan, merged=True), lists_with(plan, merged=False)
    assert DECODE in merged
    assert {PREFILL, SMALL_BATCH} <= apart
    assert not merged & apart
    assert not any(op.params["STATE_PER_TOKEN"] for name in merged for op in plan.lists[name] if "NORMS" in op.params)


def test_layers_without_keys_have_a_dispatch_less_too() -> None:
    """They read another layer's cache, and store nothing in it."""
    ops = plan_of("gemma4/gemma4.F16", DEVICE).lists[DECODE]
    assert not any(normalises_any(op) for op in ops)
    found = {(op.params["NORMS"], bool(op.consts["kv_rows"])) for op in ops if op.kernel == "attention_decode"}
    assert found == {(1, True), (2, False)}


@pytest.mark.parametrize(
    ("device", "kv_type"),
    [
        (replace(DEVICE, software=True), "f16"),
        (replace(DEVICE, max_workgroup_storage=3000), "f16"),
        (DEVICE, "q8_0"),  # a head's scales are a part of a vector
    ],
)
def test_the_dispatch_stays(device: Device, kv_type: str) -> None:
    plan = plan_of("qwen/qwen3.F16", device, kv_type)
    assert not lists_with(plan, merged=True)
    assert DECODE in lists_with(plan, merged=False)
