"""Lists of prompts have tiles for usual batches; those of long batches differ from them in tiles alone."""

from dataclasses import replace

import pytest

from bench import shapes
from py_engine import planner
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, LAST_LOGITS, MEDIA, PACKED, PREFILL, long
from py_engine.plan.long_batches import SHORT, sized
from py_engine.plan.plan import Plan, Weight

GPU = Device(f16=True, subgroup=32, matrix=16, max_workgroup_storage=49152, max_threads=1024, dot8=True)


def plan_of(batch: int, device: Device = GPU) -> Plan:
    header = shapes.header(shapes.SHAPES["qwen3-0.6b"], "Q4_K_M")
    return planner.make_plan(header, device, planner.PlanOptions(4096, batch, "f16"))


def test_a_short_batch_has_the_tiles_of_a_plan_for_short_batches() -> None:
    plan, short = plan_of(2048), plan_of(SHORT)
    tiles = [(op.kernel, op.params, op.grid) for op in plan.lists[PREFILL]]
    assert tiles == [(op.kernel, op.params, op.grid) for op in short.lists[PREFILL]]


@pytest.mark.parametrize("name", [PREFILL, PACKED])
def test_a_long_batch_has_larger_tiles_on_the_same_buffers(name: str) -> None:
    plan = plan_of(2048)
    changed = 0
    for usual, other in zip(plan.lists[name], plan.lists[long(name)], strict=True):
        changed += usual != other
        assert usual == other or usual.kernel == "matmul_matrix"
        assert usual.bindings == other.bindings
        if isinstance(weight := other.bindings.get("w"), Weight) and other.kernel == "matmul_matrix":
            assert other.params["TN"] * other.grid[0] >= weight.rows  # type: ignore[operator]
    assert changed > 50
    assert long(name) in plan.lazy
    assert plan.slots()[1] == replace(plan, lists={n: o for n, o in plan.lists.items() if n != long(name)}).slots()[1]


def test_the_list_follows_the_number_of_tokens() -> None:
    plan = plan_of(2048)
    assert sized(plan, [PREFILL, LAST_LOGITS], SHORT) == [PREFILL, LAST_LOGITS]
    assert sized(plan, [PREFILL, LAST_LOGITS], SHORT + 1) == [long(PREFILL), LAST_LOGITS]
    assert sized(plan, [MEDIA, DECODE], 2048) == [MEDIA, DECODE]


@pytest.mark.parametrize(("batch", "device"), [(SHORT, GPU), (2048, replace(GPU, matrix=0))])
def test_there_are_no_others_where_tiles_do_not_differ(batch: int, device: Device) -> None:
    plan = plan_of(batch, device)
    assert not any(name.startswith("long_") for name in plan.lists)
