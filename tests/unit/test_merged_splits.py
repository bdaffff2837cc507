"""Products that join the splits of attention in short contexts leave no other op without its input."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from py_engine import planner
from py_engine.plan import kernels
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, adapted
from py_engine.plan.plan import Buffer, Op, Plan
from tests.golden.make.adapters import write_adapter
from tests.support import cpu_models
from tests.support.cpu_models import GOLDEN, ONE_OF_EACH
from tests.support.model_files import ModelFiles

GPU = Device(f16=True, subgroup=32, max_workgroup_storage=48 << 10, max_threads=1024, dot8=True, matrix=16)
MODELS = [*ONE_OF_EACH, "llama/llama.Q4_0", "llama/llama.Q4_K_M", "qwen/qwen3.Q4_K_M"]


def plan_of(model: str, device: Device = GPU) -> Plan:
    return planner.make_plan(cpu_models.header(model), device, planner.PlanOptions(512, 128, "f16"))


def merged(ops: Iterable[Op]) -> list[Op]:
    return [op for op in ops if op.params.get("MERGED") and op.kernel == "matvec"]


def unwritten(ops: list[Op], device: Device, context: float) -> list[tuple[str, str]]:
    """(kernel, buffer) of what ops read that others of the list write, but none before them in such a context."""
    access = {id(op): kernels.expand(op.kernel, op.params, device).bindings for op in ops}

    def buffers(op: Op, kind: str) -> set[str]:
        bound = {name: b for name, b in op.bindings.items() if isinstance(b, Buffer) and b.pool == "activations"}
        return {b.name for name, b in bound.items() if access[id(op)][name] == kind}

    ever = {name for op in ops for name in buffers(op, "storage, read_write")}
    written, found = set[str](), list[tuple[str, str]]()
    for op in ops:
        if op.contexts.include(context):
            found += [(op.kernel, name) for name in buffers(op, "storage, read") & ever - written]
            written |= buffers(op, "storage, read_write")
    return found


@pytest.mark.parametrize("context", [1, 256, 257, 2000, inf])
@pytest.mark.parametrize("model", MODELS)
def test_all_that_an_op_reads_was_written_before_it(model: str, context: float) -> None:
    assert not unwritten(plan_of(model).lists.get(DECODE, []), GPU, context)


def test_most_layers_have_such_products() -> None:
    ops = plan_of("qwen/qwen3.Q4_K_M").lists[DECODE]
    assert len(merged(ops)) == cpu_models.header("qwen/qwen3.Q4_K_M").arch("block_count")


def test_a_matrix_in_two_bindings_is_multiplied_with_what_a_dispatch_has_joined() -> None:
    device = replace(GPU, max_binding=20000)
    ops = plan_of("llama/llama.Q4_0", device).lists[DECODE]
    assert not merged(ops)
    assert not unwritten(ops, device, 100)


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_adapters_read_what_attention_has_joined(tmp_path: Path, kind: str) -> None:
    """A's rows beside the product's keep the joining dispatch; so does an A that has a dispatch of its own."""
    path, model = tmp_path / "adapter.gguf", "llama/llama.Q4_0"
    pairs = {"blk.0.attn_output.weight": (np.ones((32, 256), np.float32), np.ones((256, 32), np.float32))}
    write_adapter(path, "llama", 1.0, pairs, kind=kind)
    found = ModelFiles.read(GOLDEN / f"{model}.gguf", [path])
    options = planner.PlanOptions(64, 8, "f16", adapters=found.adapters)
    plan = planner.make_plan(cpu_models.header(model), GPU, options)
    assert merged(plan.lists[DECODE])
    for name in (DECODE, adapted(DECODE)):
        assert not unwritten(plan.lists[name], GPU, 20)
