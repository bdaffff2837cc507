"""Rounding of the rows of a prompt to bytes."""

from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import PerToken, Plan
from py_engine.plan.rounded_rows import rounded
from py_engine.plan.tiles import MAX_WORKGROUPS

TOKENS, SLOTS = 8192, 8


def test_workgroups_are_as_many_as_webgpu_allows() -> None:
    """Also with several rows for each token of a long prompt, which diffusion models read in one batch."""
    ops = OpList(Plan(TOKENS, TOKENS, 64), "test", TOKENS, Device(dot8=True))
    rounded(ops, ops.buffer("x", (TOKENS * SLOTS, 64)), 64, SLOTS)
    (op,) = ops.ops
    sizes = [size.count(TOKENS) if isinstance(size, PerToken) else size for size in op.grid]
    assert max(sizes) <= MAX_WORKGROUPS
    assert sizes == [1, TOKENS, SLOTS]
