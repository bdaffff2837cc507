"""Which ops a step of a model of several residual streams has, and on which devices its routers have their own."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from py_engine.plan import altup
from py_engine.plan.adapters import Adapters, Direction
from py_engine.plan.kernels import Device, expand
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH, adapted
from py_engine.plan.mixed_types import storage_buffers
from py_engine.plan.plan import Op
from py_engine.planner import PlanOptions, make_plan
from tests.support.cpu_models import evaluate, header, load
from tests.support.tolerances import assert_close
from tools.goldens import GOLDEN

MODEL = "gemma/gemma3n.F16"
LAYERS = 22
GPU = Device(f16=True, subgroup=32, max_workgroup_storage=48 << 10, max_threads=1024, max_storage_buffers=16)


def ops_of(name: str, device: Device = GPU) -> list[Op]:
    return make_plan(header(MODEL), device, PlanOptions(256, 64, "f16")).lists[name]


def test_a_layer_of_one_token_is_twelve_dispatches() -> None:
    """And one more with sparse gates, or where heads are too narrow for the product to join the splits of attention."""
    ops = [op for op in ops_of(DECODE) if op.contexts.include(100) and op.kernel != "attention_combine"]
    counts = Counter(op.kernel for op in ops)
    assert all(counts[name] == LAYERS for name in ("altup_predict", "altup_correct", "laurel", "attention_decode"))
    assert counts["sparse_gate"] == 10
    assert counts["gate"] + counts["scale_by"] + counts["norm_rope_append"] == 0
    assert len(ops) <= 12 * LAYERS + 10 + 22


@pytest.mark.parametrize("name", [DECODE, SMALL_BATCH, PREFILL])
@pytest.mark.parametrize("limit", [7, 6])
def test_routers_have_their_own_products_without_enough_buffers(name: str, limit: int) -> None:
    ops = ops_of(name, replace(GPU, max_storage_buffers=limit))
    streams = [op for op in ops if op.kernel.startswith("altup")]
    assert len(streams) == 2 * LAYERS
    assert {op.params["ROUTED"] for op in streams} == {int(limit == 7)}
    for op in streams:
        assert len(expand(op.kernel, op.params, GPU).bindings) == 1 + storage_buffers(op) <= 1 + limit


@pytest.mark.parametrize("routed", [False, True])
def test_logits_with_either(routed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefilled, and decoded with the list of one token."""
    if not routed:
        monkeypatch.setattr(altup, "_routes", lambda *_: False)
    golden = np.load(GOLDEN / f"{MODEL}.npz")
    prompt = golden["prompt"].tolist()
    model = load(GOLDEN / f"{MODEL}.gguf", 256)
    assert {op.params["ROUTED"] for op in model.plan.lists[DECODE] if op.kernel == "altup_predict"} == {int(routed)}
    assert_close(golden["logits_ref"], evaluate(model, prompt), "f32")
    model.feed(len(prompt) - 1, prompt[-1:], [DECODE])
    np.testing.assert_allclose(model.buffers["logits"], golden["logits_ref"][-1], atol=2e-3)


def test_lists_with_a_control_vector_compute_what_those_without_do() -> None:
    """Their ops are the same but for the vector's, so an answer without it has the same bits in both."""
    adapters = Adapters(directions={1: [Direction(0, "direction.1", 16)]}, defaults=[1.0])
    lists = make_plan(header(MODEL), GPU, PlanOptions(256, 64, "f16", adapters=adapters)).lists
    for name in (DECODE, SMALL_BATCH, PREFILL):
        without, beside = lists[name], lists[adapted(name)]
        found = [(op.kernel, op.params, op.consts) for op in beside if op.kernel != "add_direction"]
        assert len(beside) == len(without) + 2  # and the first stream is copied again
        own = iter(found)
        assert all((op.kernel, op.params, op.consts) in own for op in without)
