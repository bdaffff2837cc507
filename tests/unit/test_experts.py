"""The ops of mixtures of experts, and the matrices that they need."""

from dataclasses import replace
from pathlib import Path

import pytest

from py_engine.files.gguf_header import parse
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, PREFILL, SMALL_BATCH
from py_engine.plan.plan import Plan, Weight
from py_engine.planner import PlanOptions, make_plan

GOLDEN = Path(__file__).parents[1] / "golden"
GPU = Device(f16=True, subgroup=32, max_workgroup_storage=49152, max_threads=1024, dot8=True, matrix=16)


def plan_of(name: str, device: Device) -> Plan:
    data = (GOLDEN / f"{name}.gguf").read_bytes()
    return make_plan(parse(data, len(data)), device, PlanOptions(256, 128, "f16"))


def experts_of(plan: Plan, name: str) -> list[tuple[str, str, int]]:
    """(kernel, epilogue, stacked matrices) of a list's products of experts."""
    products = [op for op in plan.lists[name] if op.params.get("EXPERTS") and isinstance(op.bindings.get("w"), Weight)]
    return [(op.kernel, str(op.params["EPILOGUE"]), int(op.params["STACK"])) for op in products]


@pytest.mark.parametrize(("name", "layers"), [("llama/mixtral.Q4_K_M", 1), ("gpt_oss/gpt-oss.MXFP4_MOE", 2)])
def test_gate_and_up_are_one_product(name: str, layers: int) -> None:
    plan = plan_of(name, GPU)
    assert experts_of(plan, DECODE) == [("experts", "gated", 2), ("experts", "add", 1)] * layers
    assert experts_of(plan, SMALL_BATCH) == experts_of(plan, DECODE)
    assert experts_of(plan, PREFILL) == [("matmul_matrix", "gated", 2), ("matmul_matrix", "store", 1)] * layers


@pytest.mark.parametrize("limit", [1 << 30, 1 << 14])
def test_gates_and_inputs_in_one_tensor_are_taken_apart(limit: int) -> None:
    """Of each expert: its gate's rows, then the other matrix's. One product needs all gates first."""
    found = parse((GOLDEN / "llama" / "mixtral.F16.gguf").read_bytes(), None)
    for layer in ("blk.0.", "blk.1."):
        del found.tensors[layer + "ffn_gate_exps.weight"]
        info = found.tensors.pop(layer + "ffn_up_exps.weight")
        cols, rows, n = info.shape
        found.tensors[layer + "ffn_gate_up_exps.weight"] = replace(info, shape=(cols, 2 * rows, n))
    plan = make_plan(found, replace(GPU, max_binding=limit), PlanOptions(256, 128, "f16"))
    tensor = "blk.0.ffn_gate_up_exps.weight"
    gates, others = (tuple((tensor, (2 * i + half) * rows, rows) for i in range(n)) for half in (0, 1))
    weights = {weight.name: weight.sources for weight in plan.weights.values() if tensor in weight.name}
    stacked = {f"{tensor}.gate+up": gates + others}
    assert weights == (stacked if limit == 1 << 30 else {f"{tensor}.gate": gates, f"{tensor}.up": others})


def test_matrices_larger_than_a_binding() -> None:
    """They are not stacked, and every list multiplies them in parts, by tiles."""
    whole = plan_of("llama/mixtral.Q4_K_M", GPU)
    stack = next(w for w in whole.weights.values() if "ffn_gate_exps" in w.name)
    split = plan_of("llama/mixtral.Q4_K_M", replace(GPU, max_binding=stack.nbytes // 4))
    assert not any("+" in name and "exps" in name for name in split.weights)
    for name in (DECODE, SMALL_BATCH, PREFILL):
        products = experts_of(split, name)
        assert len(products) > 3
        assert {kernel for kernel, _, _ in products} <= {"matmul", "matmul_matrix"}
