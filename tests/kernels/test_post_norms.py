"""The norm after a block, added by the product that follows: against numpy, and bit by bit against two dispatches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import post_norms
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup, bench_of
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.quantised import matrix

Pages = Callable[[str], tuple[Page, dict[str, Any]]]
FIVE = ((30, 0), (7, 3), (8, 3), (9, 3), (0, 5))
ROUNDED = 2e-3  # normalised error: a value that lies between two bytes may be rounded to the other one
# (columns, (type, rows) of each matrix of the stack that follows, whether it is gated, what rounds a small batch's x)
CASES = [
    (32, [(Q.Q8_0, 31)], False, "matvec_small_batch"),
    (256, [(Q.Q4_K, 257)], False, "matvec_small_batch"),
    (1056, [(Q.Q5_0, 514)], True, "quantize_rows"),  # an odd number of groups
    (1280, [(Q.Q4_K, 520), (Q.Q6_K, 40)], False, "quantize_rows"),  # one dispatch for both, of one token
    (2304, [(Q.Q4_0, 258)], True, "quantize_rows"),
]
SMALL_BATCHES = (32, 1280, 2304)  # columns of the cases that run as small batches, too: each kernel that rounds x


def appended(bench: Bench, cols: int, stack: list[tuple[Q, int]], gated: bool, places: Any) -> tuple[Ops, list[Buffer]]:
    """Ops of two blocks: a norm added to the stream, a product of its norm, and both again; and what is compared."""
    ops = bench.begin(Setup(batch=SHORT_BATCH if places else 1, n=1, pos=3, places=places))
    x, out = ops.rows("x", cols), ops.rows("out", cols)
    for b in (x, out):
        bench.fill(b, cols)
    post, norm = (bench.vector(name, cols) for name in ("post", "norm"))
    weights = [matrix(bench, kind, f"w{i}", rows, cols, tame=True) for i, (kind, rows) in enumerate(stack)]
    projection = Projection(weights, None, norm, EPS)
    for _ in range(2):
        ops.add_norm(out, post, x, EPS)
        y = ops.gated(x, projection) if gated else ops.normed_stack("y", x, projection)
    ops.add_norm(out, post, x, EPS)
    return ops, [x, y]


@pytest.mark.parametrize(
    ("cols", "stack", "gated", "rounding", "places"),
    [*((*case, ()) for case in CASES), *((*case, FIVE) for case in CASES if case[0] in SMALL_BATCHES)],
    ids=str,
)
def test_the_product_adds_the_norm(
    cols: int, stack: list[tuple[Q, int]], gated: bool, rounding: str, places: Any, kernel_pages: Pages
) -> None:
    bench = bench_of("lavapipe-wide: f16 subgroups", kernel_pages)
    bench = Bench(bench.page, replace(bench.device, software=False, dot8=True, max_storage_buffers=16))
    got = []
    for merged in (False, True):
        ops, outputs = appended(bench, cols, stack, gated, places)
        before = len(ops.ops)
        if merged:
            post_norms.merge(ops)
            assert before - len(ops.ops) == 2
            adding = {op.kernel for op in ops.ops if op.params.get("POST_THREADS")}
            assert adding == {rounding if places else "matvec"}
        gpu, host = bench.run(ops)
        n = len(places) or 1
        widths = (cols, sum(rows for _, rows in stack) // (2 if gated else 1))
        for b, width in zip(outputs, widths, strict=True):
            check(bench, gpu[b.name][:n, :width], host[b.name][:n, :width], ROUNDED)
        got.append([gpu[b.name][:n, :width].view(np.uint32) for b, width in zip(outputs, widths, strict=True)])
    for apart, joined in zip(*got, strict=True):
        assert (apart == joined).all()
