"""Kernels of recurrent layers, with awkward shapes: GPU against numpy, as in test_kernels.py."""

from dataclasses import replace

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Weight
from py_engine.plan.ssm import Columns, GatedNorm, Kernel, Scan, gated_norm, ssm_conv, ssm_scan
from py_engine.plan.states import StateShape
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.states import BATCHES, compare, states
from tests.support.kernels.variants import BOTH_ADAPTERS, SWIFTSHADER, in_turn

CONVOLUTIONS = [(70, 3, True), (33, 1, False)]
# rule, heads, groups, rows, cols; the last two of usual sizes
SCANS = [("ssd", 4, 2, 9, 12), ("delta", 3, 3, 5, 7), ("delta", 4, 2, 64, 128), ("ssd", 3, 1, 64, 256)]
SCANS_PER_KEY = [(3, 5, 7), (2, 33, 31), (2, 64, 128), (1, 1, 1), (2, 3, 255)]  # heads, rows, cols
SMALL = SCANS_PER_KEY[:4]  # Mesa takes 10 s to compile the last one


@in_turn("setup, channels, taps, bias", [(setup, *CONVOLUTIONS[i % 2]) for i, setup in enumerate(BATCHES)])
def test_convolution(bench: Bench, setup: Setup, channels: int, taps: int, bias: bool) -> None:
    ops = bench.begin(setup)
    shape = StateShape(1, 1, 1, channels, taps)
    found = states(bench, shape, setup)
    x = ops.rows("x", channels + 9)
    bench.fill(x)
    weights = bench.vector("weights", channels * (taps + 1))
    y = ssm_conv(ops, x, 5, Kernel(weights, bench.vector("bias", channels) if bias else None), shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, channels, gpu, host)


@in_turn("setup, channels, size, apart", [(setup, *[(70, 4, 3), (33, 2, 4)][i % 2]) for i, setup in enumerate(BATCHES)])
def test_convolution_of_distant_inputs(bench: Bench, setup: Setup, channels: int, size: int, apart: int) -> None:
    """The weights are a matrix's rows; inputs between those that count are not multiplied."""
    ops = bench.begin(setup)
    shape = StateShape(1, 1, 1, channels, (size - 1) * apart)
    found = states(bench, shape, setup)
    windows = bench.data[found.windows.name]
    for position in {setup.pos, *(position for position, _ in setup.places)} - {0}:  # zeros before a sequence
        before = windows[:, (position - 1) % 2, position * channels :]
        before[~np.isnan(before)] = 0
    x = ops.rows("x", channels)
    bench.fill(x)
    weights = bench.weight("kernel", (Q.F16, Q.F32)[apart % 2], channels, size)
    y = ssm_conv(ops, x, 0, Kernel(weights, apart=apart), shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, channels, gpu, host)


def rates(bench: Bench, heads: int) -> Weight:
    """A below 0, the bias of dt, the skip."""
    weight = bench.vector("rates", 3 * heads)
    values = bench.raw["rates"].view(np.float32)
    values[:heads] = -np.abs(values[:heads])
    return weight


@in_turn(
    "setup, rule, heads, groups, rows, cols",
    [(setup, *scan) for i, setup in enumerate(BATCHES) for scan in SCANS[i % 2 :: 2]],
    [BOTH_ADAPTERS[0], *SWIFTSHADER, *SWIFTSHADER],  # not the largest one on lavapipe: Mesa takes 10 s to compile it
)
def test_scan(bench: Bench, setup: Setup, rule: str, heads: int, groups: int, rows: int, cols: int) -> None:
    ops = bench.begin(setup)
    shape = StateShape(heads, rows, cols, 1, 1)
    found = states(bench, shape, setup)
    keys = 3 + heads * rows
    queries = keys + groups * cols
    x, gates = ops.rows("x", queries + groups * cols), ops.rows("gates", 2 * heads + 1)
    bench.fill(x)
    bench.fill(gates)[0, 1] = 30  # where softplus is linear
    v, k, q = (Columns(x, at) for at in (3, keys, queries))
    scan = Scan(rule, v, k, q, groups, Columns(gates, 1), rates(bench, heads), 1 + heads, EPS, tiled=groups == 2)
    y = ssm_scan(ops, scan, shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, heads * rows, gpu, host)


@in_turn(
    "setup, heads, rows, cols, bound, negative",
    [
        (setup, *scans[i % len(scans)], -4.0 * (i % 2), i % 4 == 3)
        for i, setup in enumerate(BATCHES)
        for scans in (SMALL, SCANS_PER_KEY)
    ],
    ["lavapipe: f16 subgroups", "swiftshader: f32 subgroups"],  # the first runs SMALL
)
def test_scan_per_key(
    bench: Bench, setup: Setup, heads: int, rows: int, cols: int, bound: float, negative: bool
) -> None:
    """Each dimension of a key has its own dt. `bound`: of the decays' exponents; 0: none."""
    ops = bench.begin(setup)
    shape = StateShape(heads, rows, cols, 1, 1)
    found = states(bench, shape, setup)
    keys = heads * rows
    x, gates = ops.rows("x", keys + 2 * heads * cols), ops.rows("gates", heads * cols + heads + 1)
    bench.fill(x)
    bench.fill(gates)[0, 1] = 30  # where softplus is linear
    v, k, q = (Columns(x, at) for at in (0, keys, keys + heads * cols))
    weight = bench.vector("rates", heads + heads * cols)
    values = bench.raw["rates"].view(np.float32)
    values[:heads] = -np.abs(values[:heads])
    beta = 1 + heads * cols
    scan = Scan("delta", v, k, q, heads, Columns(gates, 1), weight, beta, EPS, per_key=True, bound=bound)
    scan = replace(scan, negative_rates=negative)
    y = ssm_scan(ops, scan, shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, heads * rows, gpu, host)


@in_turn("setup, rows, cols", [(BATCHES[0], 70, 16), (BATCHES[3], 9, 5)], BOTH_ADAPTERS)
def test_scan_of_rows(bench: Bench, setup: Setup, rows: int, cols: int) -> None:
    """Each row has its own dt, and each element its own A; keys and queries are in buffers of their own."""
    ops = bench.begin(setup)
    shape = StateShape(1, rows, cols, 1, 1)
    found = states(bench, shape, setup)
    x, k, q = ops.rows("x", rows + 2), ops.rows("k", cols + 1), ops.buffer("q", (setup.batch, cols + 3))
    dt = ops.rows("dt", rows)
    for buffer in (x, k, q, dt):
        bench.fill(buffer)
    weight = bench.vector("rates", rows * (cols + 2))
    values = bench.raw["rates"].view(np.float32)
    values[: rows * cols] = -np.abs(values[: rows * cols])
    scan = Scan("s6", Columns(x, 2), Columns(k, 1), Columns(q, 3), 1, Columns(dt), weight)
    y = ssm_scan(ops, scan, shape, found)
    gpu, host = bench.run(ops)
    compare(bench, found, y.name, rows, gpu, host)


@in_turn(
    "groups, size, shared, gate_first",
    [(3, 70, False, True), (4, 32, True, False), (1, 130, True, True), (2, 5, None, True)],
)
def test_gated_norm(bench: Bench, groups: int, size: int, shared: bool | None, gate_first: bool) -> None:
    ops = bench.begin(Setup(batch=4, n=3))
    cols = groups * size
    x, z = ops.rows("x", cols), ops.rows("z", cols + 40)
    bench.fill(x)
    bench.fill(z)
    norm = None if shared is None else bench.vector("norm", size if shared else cols)
    y = gated_norm(ops, x, z, 7, cols, GatedNorm(groups, norm, EPS, gate_first, sigmoid=groups == 4))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:3, :cols], host[y.name][:3, :cols])
    assert np.isnan(gpu[y.name][3:]).all()
    assert np.isnan(gpu[y.name][:, pad(cols) :]).all()
