"""Tensors that a layer needs, or whose shapes must fit each other."""

from dataclasses import replace

import pytest

from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.plan.kernels import Device
from tests.support.cpu_models import header


def plan(found: Header) -> None:
    planner.make_plan(found, Device(), planner.PlanOptions(64, 16, "f16"))


GATED, JOINED = "qwen/qwen2moe.F16", "granite/granite_swa-moe.F16"  # JOINED: gates and inputs in one tensor
SHARED = [(GATED, 0.5), (GATED, 2), (GATED, 3), (GATED, 4), (JOINED, 0.5), (JOINED, 3)]


@pytest.mark.parametrize(("name", "factor"), SHARED)
def test_columns_of_a_shared_expert_are_those_of_its_hidden_layer(name: str, factor: float) -> None:
    found = header(name)
    tensor = "blk.0.ffn_down_shexp.weight"
    plan(found)
    cols, rows = found.tensors[tensor].shape
    found.tensors[tensor] = replace(found.tensors[tensor], shape=(int(factor * cols), rows))
    with pytest.raises(WispError, match=tensor) as error:
        plan(found)
    assert error.value.code == "bad_tensor_shape"


@pytest.mark.parametrize("name", ["gemma/gemma3n.F16", "gemma4/gemma4.F16"])
def test_embeddings_for_layers_must_be_there(name: str) -> None:
    found, tensor = header(name), "per_layer_token_embd.weight"
    del found.tensors[tensor]
    with pytest.raises(WispError, match=tensor) as error:
        plan(found)
    assert error.value.code == "missing_tensor"


def test_limits_of_experts_need_gates() -> None:
    found, tensor = header("experts/maple.F16"), "blk.0.ffn_gate_exps.weight"
    del found.tensors[tensor]
    with pytest.raises(WispError, match=tensor) as error:
        plan(found)
    assert error.value.code == "missing_tensor"
