"""From a plan's list to the CPU engine's calls (call_layouts.py): one for each op, or a few.

Fused ops of the plan become several calls, because threads meet between calls only: x is rounded once before a
product, and an activation or a rotation follows it. Products that follow each other share the rounded x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from py_engine.cpu import (
    adapter_calls,
    attention_calls,
    compressed_calls,
    encoder_calls,
    index_calls,
    product_calls,
    recurrent_calls,
    row_calls,
    sampler_calls,
    wkv_calls,
)
from py_engine.cpu.calls import Addresses, Calls
from py_engine.plan.plan import Op, Plan

SKIPPED = ("sample_histogram", "sample_sort", "sample_bounds", "logprobs_partitions")  # other ops do their work
PRODUCTS = ("matvec", "matvec_small_batch", "matmul", "experts")  # they drop the rounded x themselves
CALL_MODULES = (
    row_calls, product_calls, adapter_calls, attention_calls, index_calls, recurrent_calls, wkv_calls, encoder_calls,
    sampler_calls, compressed_calls,
)  # fmt: skip
LOWERED: dict[str, Callable[[Calls, Op], None]] = {
    call.__name__: call for module in CALL_MODULES for call in module.CALLS
}


def supports(plan: Plan) -> bool:
    """Whether the engine has all ops of a plan. numpy (runner.py) runs what it lacks: kernels of users, GPU plans."""
    ops = [op for ops in plan.lists.values() for op in ops]
    known = {op.kernel for op in ops} <= LOWERED.keys() | set(SKIPPED)
    return known and not any(op.contexts.up_to or op.contexts.above for op in ops)


def lower(ops: Sequence[Op], memory: Addresses, exact: bool) -> list[list[bytes]]:
    """The calls of each op of a list. `exact`: products with floats, not with x rounded to bytes."""
    calls, begins = Calls(memory, exact), [0]
    for op in ops:
        if op.kernel not in SKIPPED:
            LOWERED[op.kernel](calls, op)
        if op.kernel not in PRODUCTS:
            for name in ("x", "y", "scaled", "y0", "y1", "y2"):
                calls.drop_prepared(calls.address(op, name))
        begins.append(len(calls.calls))
    return [calls.calls[begin:end] for begin, end in pairwise(begins)]
