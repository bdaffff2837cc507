"""Kernels of several residual streams (plan/streams.py): GPU against numpy, as in test_kernels.py."""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import gated_streams, mixed_streams, streams
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.variants import in_pairs, in_turn


@in_pairs(("n, cols, count, parts", [(1, 4, 2, 1), (3, 28, 4, 2), (2, 36, 1, 2), (4, 257, 3, 2), (5, 96, 8, 2)]))
def test_weighted_streams(bench: Bench, n: int, cols: int, count: int, parts: int) -> None:
    """A sum of streams that differ, and a row that is added to them, each with weights of all sizes."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x = ops.rows("x", cols)
    bench.fill(x)[n:] = np.nan
    given = streams.begin(ops, x, count, cols, 0.05)
    other = ops.rows("other", count * cols)
    bench.fill(other)
    ops.add_scaled(other, 1.0, given.rows)
    matrix, terms = (
        bench.weight("matrix", Q.F32, parts * count, count * cols, 2.0),
        bench.vector("terms", parts * (1 + count)),
    )
    weights = streams.weights(ops, given, matrix, terms, EPS)
    y = streams.merge(ops, given, weights)
    if parts > 1:
        streams.spread(ops, x, given, weights, 1.7)
    ones = f"ones.{count * cols}"
    bench.data[ones] = np.frombuffer(bench.plan.constants[ones], np.float32).reshape(1, -1)
    gpu, host = bench.run(ops)
    for rows, used in ((y, cols), (given.rows, count * cols)):
        check(bench, gpu[rows.name][:n, :used], host[rows.name][:n, :used])
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("n, cols, count, most", [(1, 4, 1, 1), (3, 28, 4, 5), (2, 36, 2, 2), (4, 257, 3, 8), (5, 1100, 7, 7)]))
def test_attention_over_streams(bench: Bench, n: int, cols: int, count: int, most: int) -> None:
    """The streams that are not stored yet, and rows without a token, are poisoned."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, stored = ops.rows("x", cols), ops.rows("stored", most * cols)
    for rows, used in ((x, cols), (stored, count * cols)):
        values = bench.fill(rows)
        values[:, :used] *= 0.01  # with which eps counts
        values[:, used:] = values[n:] = np.nan
    y = streams.attend(ops, stored, count, x, bench.vector("scores", cols), 1e-4)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols], 1e-10)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("n, cols, count, rank", [(1, 4, 2, 3), (3, 28, 4, 32), (2, 257, 3, 5), (4, 1100, 2, 40)]))
def test_gated_streams(bench: Bench, n: int, cols: int, count: int, rank: int) -> None:
    """A gated mean of the streams' norms, and a row that is added to each stream."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, wide = ops.rows("x", cols), count * cols
    bench.fill(x)[n:] = np.nan
    given = streams.Streams(ops.rows("streams", wide), count, cols, 0.0)
    values = bench.fill(given.rows)
    values[:, :wide] *= 0.01  # with which eps counts
    values[:, wide:] = values[n:] = np.nan
    down, up, inject = (
        bench.weight(name, Q.F16, rows, width, 2.0)
        for name, rows, width in (("down", rank, wide), ("up", wide, rank), ("inject", count, wide))
    )
    norm = bench.vector("norm", wide)
    y, weights = gated_streams.mix(ops, given, gated_streams.Mixer(norm, down, up, inject, 1e-4))
    assert weights
    streams.spread(ops, x, given, weights, 2.0)
    terms = f"stream_terms.{count}"
    bench.data[terms] = np.frombuffer(bench.plan.constants[terms], np.float32).reshape(1, -1)
    gpu, host = bench.run(ops)
    for rows, used in ((y, cols), (given.rows, wide)):
        check(bench, gpu[rows.name][:n, :used], host[rows.name][:n, :used])
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("n, cols, count, rounds", [(1, 4, 4, 1), (3, 28, 4, 3), (2, 257, 3, 20), (4, 1100, 2, 2)]))
def test_mixed_streams(bench: Bench, n: int, cols: int, count: int, rounds: int) -> None:
    """A sum of all streams in each, and a row that is added; then their mean."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, wide, products = ops.rows("x", cols), count * cols, (2 + count) * count
    bench.fill(x)[n:] = np.nan
    given = streams.Streams(ops.rows("streams", wide), count, cols, 0.02)
    values = bench.fill(given.rows)
    values[:, wide:] = values[n:] = np.nan
    matrix, terms = bench.weight("matrix", Q.F32, products, wide, 2.0), bench.vector("terms", 3 + products)
    weights = mixed_streams.weights(ops, given, matrix, terms, EPS)
    mixed_streams.remix(ops, x, given, weights, rounds)
    y, ones = mixed_streams.mean(ops, given), f"ones.{wide}"
    bench.data[ones] = np.frombuffer(bench.plan.constants[ones], np.float32).reshape(1, -1)
    gpu, host = bench.run(ops)
    for rows, used in ((y, cols), (given.rows, wide)):
        check(bench, gpu[rows.name][:n, :used], host[rows.name][:n, :used])
    assert np.isnan(gpu[y.name][n:]).all()


@in_turn("rounds", [50])
def test_mixing_keeps_the_sum_of_streams(bench: Bench, rounds: int) -> None:
    """After many rounds, a stream's weights in all streams sum to 1."""
    ops = bench.begin(Setup(batch=1, n=1))
    given = streams.Streams(ops.rows("streams", 12), 3, 4, 0.0)
    products, x = ops.rows("products", 15), ops.rows("x", 4)
    for rows in (products, given.rows):
        bench.fill(rows)
    bench.data[x.name] = np.zeros((1, 32), np.float32)
    terms = bench.vector("terms", 18)
    before = bench.data[given.rows.name][0, :12].reshape(3, 4).sum(axis=0)
    mixed_streams.remix(ops, x, given, streams.StreamWeights(products, terms, 3), rounds)
    for found in bench.run(ops):
        np.testing.assert_allclose(found[given.rows.name][0, :12].reshape(3, 4).sum(axis=0), before, atol=1e-4)
