"""Plans with adapters, of every architecture, for a GPU on which ops of small batches are merged."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest

from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.adapters import Adapters, Pair
from py_engine.plan.lists import SMALL_BATCH, adapted
from py_engine.planner import PlanOptions, make_plan
from tests.support.cpu_models import GOLDEN, header
from tests.support.devices import GPU
from tools.goldens import golden_models

RANK = 16
COMMON = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
OF_EXPERTS = tuple(f"ffn_{part}_{kind}" for part in ("gate", "up", "down", "gate_up") for kind in ("exps", "chexps"))
NOT_ADAPTED = "encoder_decoder"  # refused: tests/unit/test_adapters.py
MODELS = [path.relative_to(GOLDEN) for path in golden_models() if path.parent.name != NOT_ADAPTED]


def matrices(model: Header) -> dict[str, TensorInfo]:
    """The matrices of a model's layers that most architectures have."""
    named = {name: name.split(".") for name in model.tensors if name.startswith("blk.") and name.endswith(".weight")}
    found = {name: (parts[2], model.tensors[name]) for name, parts in named.items()}
    shapes = {**dict.fromkeys(COMMON, 2), **dict.fromkeys(OF_EXPERTS, 3)}
    return {name: info for name, (kind, info) in found.items() if len(info.shape) == shapes.get(kind)}


def quantised(model: Header) -> Header:
    """The model with these matrices in Q4_0, where their rows have whole blocks."""
    whole = {name: info for name, info in matrices(model).items() if info.shape[0] % 32 == 0}
    return replace(model, tensors=model.tensors | {name: replace(info, type=Q.Q4_0) for name, info in whole.items()})


def adapters_of(model: Header) -> Adapters:
    """An adapter for these matrices."""
    found = Adapters([1.0])
    for name, info in matrices(model).items():
        cols, rows, *experts = info.shape
        a = TensorInfo(f"{name}.lora_a", (cols, RANK, *experts), Q.F16, 0, 2 * cols * RANK * prod(experts))
        b = TensorInfo(f"{name}.lora_b", (RANK, rows, *experts), Q.F16, 0, 2 * rows * RANK * prod(experts))
        found.pairs[name] = [Pair(0, a, b, RANK, 1.0)]
    return found


def unapplied(model: Header, adapters: Adapters) -> set[str]:
    """The matrices whose products do not get what the adapter adds."""
    plan = make_plan(model, GPU, PlanOptions(512, 128, "f16", adapters=adapters))
    # encoders and diffusion models compute whole texts
    names = [adapted(SMALL_BATCH)] if adapted(SMALL_BATCH) in plan.lists else list(plan.lists)
    bound = [weight for name in names for op in plan.lists[name] for weight in op.bindings.values()]
    used = {tensor for weight in bound for tensor, *_ in getattr(weight, "sources", ())}
    wanted = {tensor: pair.b.name for tensor, (pair,) in adapters.pairs.items() if tensor in used}
    assert wanted
    return {tensor for tensor, b in wanted.items() if b not in used}


@pytest.mark.slow
@pytest.mark.parametrize("typed", [lambda model: model, quantised], ids=["as-it-is", "quantised"])
def test_every_adapted_matrix_is_applied(typed: Callable[[Header], Header]) -> None:
    """Tensors' types decide what is merged."""
    checked: dict[str, set[str]] = {}
    for path in MODELS:
        model = typed(header(str(path).removesuffix(".gguf")))
        adapters = adapters_of(model)
        if adapters.pairs:
            checked[str(path)] = unapplied(model, adapters)
    assert len(checked) > 150
    assert {name: found for name, found in checked.items() if found} == {}
