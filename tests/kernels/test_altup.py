"""Kernels of several residual streams and of sparse gates: GPU against numpy, as in test_kernels.py."""

import numpy as np

from py_engine.plan import altup, rows
from py_engine.plan.op_list import pad
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.variants import in_pairs

SHAPES = [(1, 1, 2), (3, 31, 4), (2, 33, 1), (5, 255, 3), (4, 257, 4)]


@in_pairs(("n, cols, count", SHAPES))
def test_streams(bench: Bench, n: int, cols: int, count: int) -> None:
    """A prediction, then a correction by what else x is."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    streams, x, router = ops.rows("streams", count * pad(cols)), ops.rows("x", cols), ops.rows("router", count)
    bench.fill(router)[:] *= 30  # their hyperbolic tangents are of all sizes
    bench.fill(streams)[n:] = np.nan
    altup.predict(ops, streams, x, router, bench.vector("f", count**3), 1 / 16)
    change = ops.rows("change", cols)
    bench.fill(change)
    ops.add_scaled(change, 0.5, x)
    factors, weights = bench.vector("g", count**2), bench.vector("w", cols)
    scaled = altup.correct(ops, streams, x, router, factors, weights, 1 / 16)
    gpu, host = bench.run(ops)
    for got, want in ((gpu[b.name][:n], host[b.name][:n]) for b in (streams, x)):
        check(bench, got, want, 1e-10)
    check(bench, gpu[scaled.name][:n, :cols], host[scaled.name][:n, :cols], 1e-10)
    assert all(np.isnan(gpu[b.name][n:]).all() for b in (streams, x, scaled))


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
    given = other if like else None
    rows.copy_columns(ops, source, target, cols, scale=0.25, like=given)
    rows.copy_columns(ops, rows.Parts(x, 5), rows.Parts(total), cols, scale=-2, add=True, like=given)
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
