"""How scales beside matrices are bound: plan/matrix_scales.py."""

from dataclasses import replace

import pytest

from py_engine import planner
from py_engine.files.gguf_header import Header
from py_engine.files.tensor_types import TensorType
from py_engine.load_plan import CPU
from py_engine.plan import matrix_scales
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE
from py_engine.plan.mixed_types import storage_buffers
from py_engine.plan.plan import Plan
from tests.support.cpu_models import header

GPU = Device(f16=True, subgroup=32, max_storage_buffers=16, dot8=True)


def plan(found: Header, device: Device = GPU) -> Plan:
    return planner.make_plan(found, device, planner.PlanOptions(64, 16, "f16", None))


def dispatches(found: Plan) -> list[str]:
    return [op.kernel for op in found.lists[DECODE]]


def without_scales(found: Header) -> Header:
    return replace(found, tensors={name: info for name, info in found.tensors.items() if ".scale" not in name})


def test_scales_take_no_dispatch() -> None:
    scaled = header("llama/llama-scales.NVFP4")
    plain = without_scales(scaled)
    assert dispatches(plan(scaled)) == dispatches(plan(plain))


def test_a_product_binds_no_more_buffers_than_the_device_has() -> None:
    """Its keys and values then have a dispatch of their own."""
    found = header("llama/llama-scales.NVFP4")
    nine, ten = (plan(found, replace(GPU, max_storage_buffers=count)) for count in (9, 10))
    assert max(map(storage_buffers, nine.lists[DECODE])) <= 9
    assert len(dispatches(nine)) > len(dispatches(ten))


def with_biases(found: Header) -> Header:
    """Biases of all matrices of layers."""
    vector, tensors = found.tensors["output_norm.weight"], found.tensors
    matrices = {name: info for name, info in tensors.items() if name.startswith("blk.") and len(info.shape) == 2}
    biases = {name.replace("weight", "bias"): replace(vector, shape=info.shape[1:]) for name, info in matrices.items()}
    return replace(found, tensors=tensors | biases)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("count", [8, 10])
def test_products_with_biases_bind_no_more_buffers_than_the_device_has(scaled: bool, count: int) -> None:
    found = with_biases(header("llama/llama-scales.NVFP4"))
    if not scaled:
        found = without_scales(found)
    lists = plan(found, Device(dot8=True, max_storage_buffers=count)).lists
    assert max(storage_buffers(op) for ops in lists.values() for op in ops) <= count


@pytest.mark.parametrize("missing", ["q", "k", "v"])
def test_matrices_with_and_without_scales_are_not_stacked(missing: str) -> None:
    found = header("llama/llama-scales.NVFP4")
    del found.tensors[f"blk.0.attn_{missing}.scale"]
    matrices = [w for w in plan(found).weights.values() if "blk.0." in w.name and w.type == TensorType.NVFP4]
    scaled = {w.sources: w.scales is not None for w in matrices}
    assert [sources[0][0] for sources, has in scaled.items() if not has] == [f"blk.0.attn_{missing}.weight"]
    assert [len(sources) for sources, has in scaled.items() if not has] == [1]


def test_a_part_of_a_stack_has_the_scales_of_its_rows() -> None:
    weights = plan(header("llama/llama-scales.NVFP4")).weights
    stack = weights["+".join(f"blk.0.attn_{name}.weight" for name in "qkv")]
    assert matrix_scales.params(stack) == {"SCALES": 3, "SCALE_FIRST": 0, "SCALE_ROW_1": 128, "SCALE_ROW_2": 192}
    parts = [part for _, part in stack.split(72 * stack.plane_row_bytes("w_qs") + 16)]
    assert [part.rows for part in parts] == [72, 72, 72, 40]
    assert [matrix_scales.params(part) for part in parts] == [
        {"SCALES": 1, "SCALE_FIRST": 0},
        {"SCALES": 2, "SCALE_FIRST": 0, "SCALE_ROW_1": 56},
        {"SCALES": 2, "SCALE_FIRST": 1, "SCALE_ROW_1": 48},
        {"SCALES": 1, "SCALE_FIRST": 2},
    ]


def test_scales_of_inputs_are_not_read() -> None:
    """As in llama.cpp: they are for products whose inputs have four bits."""
    found = header("llama/llama-scales.NVFP4")
    plain = set(plan(found).weights)
    found.tensors["blk.0.attn_q.input_scale"] = found.tensors["blk.0.attn_q.scale"]
    assert set(plan(found).weights) == plain


@pytest.mark.parametrize("name", ["qwen/qwen2.F16", "llama/llama-scales.NVFP4"])
def test_the_cpu_has_as_many_buffers_as_products_bind(name: str) -> None:
    plenty = replace(CPU, max_storage_buffers=99)
    assert dispatches(plan(header(name), CPU)) == dispatches(plan(header(name), plenty))
