"""Kernels of RWKV's time mix, with awkward shapes: GPU against numpy, as in test_kernels.py."""

import numpy as np

from py_engine.plan.states import StateShape
from py_engine.plan.wkv import (
    Output,
    Rule,
    Window,
    WkvColumns,
    token_shift,
    wkv7_inputs,
    wkv_output,
    wkv_scan,
)
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.states import BATCHES, compare, states
from tests.support.kernels.variants import BOTH_ADAPTERS, in_turn


@in_turn(
    "setup, cols, parts, own",
    [(setup, *((70, 5, True), (33, 1, False), (65, 3, True))[i % 3]) for i, setup in enumerate(BATCHES)],
    BOTH_ADAPTERS,
)
def test_token_shift(bench: Bench, setup: Setup, cols: int, parts: int, own: bool) -> None:
    ops = bench.begin(setup)
    found = states(bench, StateShape(1, 1, 1, cols, 2), setup)
    x, changes = ops.rows("x", cols), ops.rows("changes", parts * cols)
    bench.fill(x)
    bench.fill(changes)
    factors = bench.vector("factors", parts * cols)
    results = token_shift(ops, x, factors, parts, Window(found, 1, 2), changes if own else None)
    gpu, host = bench.run(ops)
    n = bench.n
    for y in results:
        check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols])
        assert np.isnan(gpu[y.name][n:]).all()
    np.testing.assert_array_equal(gpu[found.windows.name], host[found.windows.name])


@in_turn("heads, cols, first", [(3, 12, True), (2, 68, False)], BOTH_ADAPTERS)
def test_inputs(bench: Bench, heads: int, cols: int, first: bool) -> None:
    ops = bench.begin(Setup(batch=4, n=3))
    width = heads * cols
    rows, first_values = ops.rows("x", 6 * width + 5), ops.rows("first_values", width)
    bench.fill(rows)
    if not first:
        bench.fill(first_values)
    columns = WkvColumns(rows, 5, *(5 + i * width for i in range(1, 6)))
    shape = StateShape(heads, cols, cols, width, 1)
    wkv7_inputs(ops, columns, bench.vector("factors", 2 * width), shape, first_values, first=first)
    gpu, host = bench.run(ops)
    check(bench, gpu["test.x"], host["test.x"], 1e-9)
    check(bench, gpu["test.first_values"][:3, :width], host["test.first_values"][:3, :width], 1e-9)


SCANS = [("wkv6", 3, 3, 8), ("gla", 4, 2, 12), ("wkv7", 2, 2, 20), ("wkv7", 2, 2, 64), ("gla", 2, 1, 128)]
SMALL = SCANS[:3]  # Mesa takes 10 and 20 s to compile the others


@in_turn(
    "setup, rule, heads, groups, size",
    [(setup, *scans[(i + j) % len(scans)]) for i, setup in enumerate(BATCHES) for j, scans in ((0, SMALL), (2, SCANS))],
    BOTH_ADAPTERS,  # the first runs SMALL
)
def test_scan(bench: Bench, setup: Setup, rule: str, heads: int, groups: int, size: int) -> None:
    ops = bench.begin(setup)
    shape = StateShape(heads, size, size, heads * size, 1)
    found = states(bench, shape, setup)
    width = heads * size
    rows = ops.rows("x", 7 * width)
    bench.fill(rows)
    columns = WkvColumns(rows, *(3 + i * width for i in range(6)))
    if rule == "wkv7":  # what the scan expects: decays below 1, a removed key of length 1
        values = bench.data[rows.name]
        values[:, 3 : 3 + width] = 1 / (1 + np.exp(-values[:, 3 : 3 + width]))
        for at in range(columns.rate, columns.rate + 2 * width, size):
            values[:, at : at + size] /= np.linalg.norm(values[:, at : at + size], axis=1, keepdims=True)
    bonus = bench.vector("bonus", width) if rule == "wkv6" else None
    y = wkv_scan(ops, Rule(rule, groups, bonus), columns, shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, width, gpu, host)


@in_turn(
    "heads, cols, norm, bonus, gate",
    [(3, 12, True, True, "linear"), (2, 68, True, False, "silu"), (2, 8, False, False, "sigmoid"),
     (1, 32, False, True, "")],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_output(bench: Bench, heads: int, cols: int, norm: bool, bonus: bool, gate: str) -> None:
    ops = bench.begin(Setup(batch=4, n=3))
    width = heads * cols
    x, rows, gates = ops.rows("x", width), ops.rows("rows", 3 * width + 1), ops.rows("gate", width)
    for buffer in (x, rows, gates):
        bench.fill(buffer)
    columns = WkvColumns(rows, 0, 1, 1 + width, 1 + 2 * width)
    factors = bench.vector("factors", (2 * norm + bonus) * width) if norm or bonus else None
    how = Output(factors, norm, bonus, gates if gate else None, gate)
    y = wkv_output(ops, x, columns, how, StateShape(heads, cols, cols, width, 1))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:3, :width], host[y.name][:3, :width])
    assert np.isnan(gpu[y.name][3:]).all()
