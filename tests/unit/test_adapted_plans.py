"""Plans with adapters, of every architecture, for a GPU on which ops of small batches are merged."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from py_engine.files.gguf_header import Header
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.adapters import Adapters
from py_engine.plan.lists import SMALL_BATCH, adapted
from py_engine.planner import PlanOptions, make_plan
from tests.support.cpu_models import GOLDEN, header
from tests.support.devices import GPU
from tests.support.header_adapters import NOT_ADAPTED, adapters_of, matrices
from tools.goldens import golden_models
from tools.selection import in_turn

MODELS = [path.relative_to(GOLDEN) for path in golden_models() if path.parent.name != NOT_ADAPTED]


def quantised(model: Header) -> Header:
    """The model with these matrices in Q4_0, where their rows have whole blocks."""
    whole = {name: info for name, info in matrices(model).items() if info.shape[0] % 32 == 0}
    return replace(model, tensors=model.tensors | {name: replace(info, type=Q.Q4_0) for name, info in whole.items()})


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


def as_it_is(model: Header) -> Header:
    """The model as its file has it."""
    return model


TYPED = [as_it_is, quantised]


@pytest.mark.slow
@pytest.mark.parametrize("typed", TYPED)
def test_every_adapted_matrix_is_applied(typed: Callable[[Header], Header]) -> None:
    """Tensors' types decide what is merged. Each golden has its own types or others in turn; WISP_ALL=1: both."""
    checked: dict[str, set[str]] = {}
    for path in (path for at, path in enumerate(MODELS) if typed in in_turn(at, TYPED)):
        model = typed(header(str(path).removesuffix(".gguf")))
        adapters = adapters_of(model)
        if adapters.pairs:
            checked[str(path)] = unapplied(model, adapters)
    assert len(checked) > 75
    assert {name: found for name, found in checked.items() if found} == {}
