"""Buffers for a batch's keys and values before they are quantized into a q8_0 cache."""

from py_engine.plan.cache import Cache, make_cache, page_group
from py_engine.plan.kernels import Device
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Plan

BATCH = 16
WIDTHS = (64, 256, 64)  # values of a row of each layer, as in Gemma 4


def staged(plan: Plan, name: str, batch: int) -> list[Cache]:
    """The layers' caches as a list sees them."""
    ops = Ops(plan, name, batch, Device())
    return [ops.staging(make_cache(plan, i, cols, "q8_0", page_group(plan, 0))) for i, cols in enumerate(WIDTHS)]


def test_layers_share_buffers_of_their_width() -> None:
    first, wide, last = (cache.staged for cache in staged(Plan(BATCH, 64, 100), "prefill", BATCH))
    assert first == last
    for found, cols in ((first, 64), (wide, 256)):
        assert found is not None
        assert [buffer.shape for buffer in found] == [(BATCH, cols)] * 2


def test_lists_share_none() -> None:
    """Decode steps run between slices of a prompt's list."""
    plan = Plan(BATCH, 64, 100)
    names = [
        {buffer.name for cache in staged(plan, name, batch) for buffer in cache.staged or ()}
        for name, batch in (("prefill", BATCH), ("decode", 1))
    ]
    assert all(names)
    assert not names[0] & names[1]
