"""Two stacked matrices of different types in one dispatch: which plans have it, and what plans say about it."""

from dataclasses import replace

import pytest

from bench.shapes import MIX, SHAPES, header
from py_engine import planner
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import mixed_types, traffic
from py_engine.plan.kernels import Device, expand
from py_engine.plan.lists import DECODE, SMALL_BATCH, adapted
from py_engine.plan.plan import MATRICES, Op, Plan, Weight
from py_engine.tuning.workloads import matrices_of, small_batches_of
from tests.support import cpu_models
from tests.support.golden_adapters import LLAMA, files
from tests.support.model_files import ModelFiles

GPU = Device(
    f16=True, subgroup=32, max_workgroup_storage=49152, max_threads=1024, max_storage_buffers=16, dot8=True, matrix=16,
    max_binding=1 << 31, max_buffer=1 << 32,
)  # fmt: skip
OPTIONS = planner.PlanOptions(2048, 512, "f16")


def plan_of(name: str, device: Device = GPU) -> Plan:
    return planner.make_plan(header(SHAPES[name], MIX), device, OPTIONS)


def of_two_matrices(plan: Plan, name: str = DECODE) -> list[Op]:
    return [op for op in plan.lists[name] if op.params.get("SECOND")]


@pytest.mark.parametrize(
    ("name", "layers", "saved"),
    [
        ("llama-3.2-1b", 8, {DECODE: 16, SMALL_BATCH: 16}),  # values, and RoPE, which is fused with the products
        ("qwen3-0.6b", 14, {DECODE: 14, SMALL_BATCH: 14}),
        ("gemma-3-1b", 13, {DECODE: 13, SMALL_BATCH: 13}),
        ("llama-3.1-8b", 16, {DECODE: 32, SMALL_BATCH: 32}),
    ],
)
def test_values_of_another_type_need_no_dispatch(
    name: str, layers: int, saved: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`saved`: dispatches of a list, of all layers that mix types."""
    plan = plan_of(name)
    monkeypatch.setattr(mixed_types, "threads", lambda *_: 0)
    without = plan_of(name)
    for part, count in saved.items():
        assert len(without.lists[part]) - len(plan.lists[part]) == count
        assert len(of_two_matrices(plan, part)) == layers
        assert not of_two_matrices(without, part)
        for op in of_two_matrices(plan, part):
            shader = expand(op.kernel, op.params, GPU)
            assert len(shader.bindings) == 1 + mixed_types.storage_buffers(op)
            shader.pack(op.consts)


@pytest.mark.parametrize(
    ("device", "why"),
    [
        (replace(GPU, software=True), "starting a dispatch takes no time"),
        (replace(GPU, dot8=False), "products of floats"),
        (replace(GPU, max_workgroup_storage=3750), "too little memory for the sums of both"),
    ],
)
def test_devices_without_it_have_two_dispatches(device: Device, why: str) -> None:
    assert not of_two_matrices(plan_of("llama-3.2-1b", device)), why


def test_ten_storage_buffers_leave_rope_to_its_own_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches and the angles take three, two matrices four, and the rest four."""
    plan = plan_of("llama-3.2-1b", replace(GPU, max_storage_buffers=10))
    assert {op.params["EPILOGUE"] for op in of_two_matrices(plan)} == {"store"}
    monkeypatch.setattr(mixed_types, "threads", lambda *_: 0)
    assert len(plan_of("llama-3.2-1b").lists[DECODE]) - len(plan.lists[DECODE]) == 8


def test_all_lists_add_squares_with_the_same_threads() -> None:
    """A text does not depend on adapters of other requests: lists with them have a dispatch for each matrix."""
    given = ModelFiles.read(*files(LLAMA)).adapters
    plan = planner.make_plan(cpu_models.header("llama/llama.Q4_K_M"), GPU, replace(OPTIONS, adapters=given))
    mixed_ops = of_two_matrices(plan)
    assert mixed_ops
    threads = {bound.name: _threads(op) for op in mixed_ops for bound in _matrices(op)}
    found = 0
    for op in plan.lists[adapted(DECODE)]:
        for bound in _matrices(op):
            if bound.name in threads:
                assert _threads(op) == threads[bound.name]
                found += 1
    assert found == len(threads)
    assert not of_two_matrices(plan, adapted(DECODE))


def _threads(op: Op) -> int:
    return int(op.params["TK"]) * int(op.params["TR"])


def _matrices(op: Op) -> list[Weight]:
    bound = [op.bindings.get(name) for name in MATRICES] if op.kernel == "matvec" else []
    return [weight for weight in bound if isinstance(weight, Weight)]


def test_traffic_is_that_of_both_matrices() -> None:
    plan = plan_of("qwen3-0.6b")
    op = of_two_matrices(plan)[0]
    moved = traffic.traffic(op, GPU, 1, 100, 1)
    others = op.bindings["x"].nbytes + op.bindings["norm"].nbytes + 16  # 16: the state
    assert moved.read - others == sum(weight.nbytes for weight in _matrices(op))
    assert moved.written == 4 * 4096
    assert moved.flops == 2 * 4096 * 1024
    assert traffic.label_of(op) == "matvec q4_k q6_k 1024 store x 4096"


def test_both_matrices_can_be_tuned() -> None:
    """Each by itself: that decides how many threads share a row."""
    plan = plan_of("gemma-3-1b")
    for found in (matrices_of(plan), small_batches_of(plan)):
        kinds = [(m.weight.type, m.weight.rows) for m in found]
        assert (Q.Q5_0, 1280) in kinds
        assert (Q.Q8_0, 256) in kinds
