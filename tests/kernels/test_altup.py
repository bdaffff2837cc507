"""Kernels of several residual streams and of sparse gates: GPU against numpy, as in test_kernels.py."""

from dataclasses import replace

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import altup, rows
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Ops
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, cols_of
from tests.support.kernels.variants import VARIANTS, in_pairs, in_turn

SHAPES = [(1, 4, 2), (3, 28, 4), (2, 36, 1), (5, 252, 3), (4, 292, 4), (1, 1284, 8)]
ROUTERS = [Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q8_0, None]  # None: the router's product is an op of its own


def streams_of(bench: Bench, ops: Ops, cols: int, count: int) -> altup.Streams:
    """Random streams, NaN after the batch's tokens."""
    rows, x = ops.rows("streams", count * pad(cols)), ops.rows("x", cols)
    bench.fill(rows)[bench.n :] = np.nan
    return altup.Streams(rows, x, count, cols, EPS, lambda names: bench.vector("+".join(names), cols * len(names)))


def router_of(bench: Bench, streams: altup.Streams, type: Q | None, name: str) -> altup.Router:
    """A router whose logits' hyperbolic tangents are of all sizes."""
    scale = 0.3 * streams.cols**0.5
    return altup.Router(
        bench.weight(name, Q.F32 if type is None else type, streams.count, streams.cols, scale), f"{name}.norm"
    )


@in_turn(
    "n, cols, count, type, adds",
    # every shape and every router twice, with and without the result of a layer before
    [(*SHAPES[i % 6], ROUTERS[(i + 2 * (i // 6)) % 6], i // 6 == i % 2) for i in range(12)],
    VARIANTS,
)
def test_streams(bench: Bench, n: int, cols: int, count: int, type: Q | None, adds: bool) -> None:
    """A prediction with and without the result of a layer before, then a correction by what a layer makes of x."""
    routed = type is not None
    cols = cols if type is None else cols_of(type, cols)
    ops = bench.begin(Setup(batch=n + 1, n=n))
    ops.device = replace(ops.device, max_storage_buffers=99 if routed else 0)
    streams = streams_of(bench, ops, cols, count)
    bench.fill(streams.first)
    out = ops.rows("out", cols)
    bench.fill(out)[n:] = np.nan
    router = router_of(bench, streams, type, "first")
    altup.predict(ops, streams, router, bench.vector("f", count**3), out if adds else None, "b")
    change = ops.rows("change", cols)
    bench.fill(change)
    ops.add_scaled(change, 0.5, streams.first)
    router = router_of(bench, streams, type, "second")
    scaled = altup.correct(ops, streams, router, bench.vector("g", count**2), out, ("w", "c"))
    gpu, host = bench.run(ops)
    shape = n, count, pad(cols)
    for got, want in ((gpu[b.name][:n].reshape(s), host[b.name][:n].reshape(s)) for b, s in (
        (streams.rows, shape), (streams.first, (n, 1, -1)), (scaled, (n, 1, -1)))):  # fmt: skip
        check(bench, got[..., :cols], want[..., :cols], 1e-10 if routed else None)
    assert all(np.isnan(gpu[b.name][n:]).all() for b in (streams.rows, scaled))
    assert sum(op.kernel in ("matvec", "matmul") for op in ops.ops) == (0 if routed else 2)


@in_pairs(("n, cols", [(1, 4), (3, 28), (2, 36), (5, 252), (3, 1284)]))
def test_low_rank_residual(bench: Bench, n: int, cols: int) -> None:
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, attended, low = (ops.rows(name, cols) for name in ("x", "attended", "low"))
    for b in (x, attended, low):
        bench.fill(b)[:, cols:] = np.nan
        bench.data[b.name][n:] = np.nan
    bench.data[x.name][:, :cols] *= 0.01  # with which eps counts
    rows.add_attended(ops, x, attended, low, bench.vector("norms", 3 * cols), 1e-4)
    gpu, host = bench.run(ops)
    check(bench, gpu[x.name][:n, :cols], host[x.name][:n, :cols], 1e-10)
    assert np.isnan(gpu[x.name][n:]).all()


@in_pairs(("n, cols, parts", [(1, 1, 1), (3, 31, 3), (2, 255, 2), (5, 257, 3)]), ("like", [False, True]))
def test_copied_columns(bench: Bench, n: int, cols: int, parts: int, like: bool) -> None:
    """Parts of a row with and without the length of another row, also added; the columns between stay."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, y = ops.rows("x", parts * cols + 5, ops.input_dtype), ops.rows("y", parts * (cols + 3))
    other, total = ops.rows("other", cols), ops.rows("total", cols)
    bench.fill(x)[0, 5 : 5 + cols] = 0
    for b in (other, total):
        bench.fill(b)[n:] = np.nan
    source, target = rows.Parts(x, 5, cols, parts), rows.Parts(y, 2, cols + 3, parts)
    scales = [rows.LengthOf(other, factor) if like else factor for factor in (0.25, -2)]
    rows.copy_columns(ops, source, target, cols, scale=scales[0])
    rows.copy_columns(ops, rows.Parts(x, 5), rows.Parts(total), cols, scale=scales[1], add=True)
    gpu, host = bench.run(ops)
    written = np.isfinite(host[y.name])
    assert written[:n].sum() == n * parts * cols
    assert np.array_equal(np.isfinite(gpu[y.name]), written)
    check(bench, gpu[y.name][written], host[y.name][written], 1e-12)
    check(bench, gpu[total.name][:n, :cols], host[total.name][:n, :cols], 1e-12)
    assert not host[y.name][0, 2 : 2 + cols].any()


@in_pairs(("n, cols", [(1, 2), (3, 31), (2, 33), (5, 255), (3, 257)]))
def test_sparse_gates(bench: Bench, n: int, cols: int) -> None:
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x = ops.rows("x", 2 * cols)
    bench.fill(x)[n:] = np.nan
    bench.data[x.name][:, :cols] += 3
    y = rows.sparse_gate(ops, x, cols, "gelu", 0.3)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols])
    assert np.isnan(gpu[y.name][n:]).all()
    assert 0 < np.count_nonzero(host[y.name][:n, :cols]) < n * cols
