"""Two stacked matrices of different types in one dispatch, against numpy, and bit by bit against two dispatches."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import mixed_types
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import VARIANTS, in_turn

Stack = tuple[tuple[Q, int], tuple[Q, int]]  # (type, rows) of each matrix
Outputs = list[np.ndarray]
Build = Callable[[Ops], list[tuple[Buffer, int]]]  # append ops, return what they write and how many of its columns

FIVE = ((30, 0), (7, 3), (8, 3), (9, 3), (0, 5))
LAVAPIPE = [name for name in VARIANTS if name.startswith("lavapipe")]
K_QUANTS: Stack = (Q.Q4_K, 257), (Q.Q6_K, 40)
ODD: Stack = (Q.Q5_0, 31), (Q.Q8_0, 5)
STORED: list[tuple[Stack, int, bool, bool]] = [  # (stack, columns, normed, a small batch)
    (K_QUANTS, 1280, True, False),
    (ODD, 1056, False, False),  # an odd number of groups
    (((Q.Q6_K, 40), (Q.Q5_K, 130)), 2304, True, False),
    (K_QUANTS, 1280, False, True),  # each workgroup rounds x
    (ODD, 1056, True, True),
    (((Q.Q4_K, 130), (Q.Q6_K, 33)), 2304, True, True),  # x is staged for Q6_K
    (((Q.IQ4_XS, 130), (Q.Q5_K, 33)), 2304, True, True),
    (((Q.IQ4_XS, 40), (Q.IQ4_NL, 31)), 512, False, False),  # two codebooks
    (((Q.Q4_K, 40), (Q.Q6_K, 31)), 512, True, True),  # each workgroup rounds x times the norm's weights
]


def _results(bench: Bench, build: Build, small_batch: bool) -> tuple[Outputs, Outputs, int]:
    """What the GPU and numpy write, and the number of dispatches of two matrices."""
    places = FIVE if small_batch else ()
    ops = bench.begin(Setup(batch=SHORT_BATCH if places else 1, n=1, pos=30, places=places))
    outputs = build(ops)
    gpu, host = bench.run(ops)
    found = [[np.atleast_2d(data[b.name])[:, :cols] for b, cols in outputs] for data in (gpu, host)]
    return found[0], found[1], sum("SECOND" in op.params for op in ops.ops)


def _check(bench: Bench, build: Build, small_batch: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One dispatch writes what numpy writes, and what two dispatches write."""
    gpu, host, count = _results(bench, build, small_batch)
    assert count == 1
    for got, want in zip(gpu, host, strict=True):
        written = ~np.isnan(want)
        assert written.any()
        assert (np.isnan(got) == ~written).all()
        check(bench, got[written], want[written], 1e-5 if got.dtype == np.float16 else 1e-6)
    monkeypatch.setattr(mixed_types, "append", lambda *_: False)
    alone, _, count = _results(bench, build, small_batch)
    assert not count
    for got, want in zip(gpu, alone, strict=True):
        assert got.tobytes() == want.tobytes()


@in_turn("stack, cols, normed, small_batch", STORED, VARIANTS)
def test_stored(
    bench: Bench, stack: Stack, cols: int, normed: bool, small_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a norm or a bias. Matrices end in the middle of a workgroup."""
    bench = Bench(bench.page, replace(bench.device, dot8=True))
    rows = sum(count for _, count in stack)

    def build(ops: Ops) -> list[tuple[Buffer, int]]:
        weights = [matrix(bench, type, f"w{i}", count, cols, tame=True) for i, (type, count) in enumerate(stack)]
        x = ops.rows("x", cols)
        bench.fill(x)
        biased = Projection(weights, bench.vector("bias", rows))
        projection = Projection(weights, None, bench.vector("norm", cols), EPS) if normed else biased
        return [(ops.normed_stack("y", x, projection), rows)]

    _check(bench, build, small_batch, monkeypatch)


@in_turn(
    "stack, neox, kv_type, small_batch",
    [
        (((Q.Q4_K, 320), (Q.Q6_K, 64)), False, "f16", False),
        (((Q.Q5_0, 256), (Q.Q8_0, 128)), True, "f32", False),
        (((Q.Q4_K, 320), (Q.Q6_K, 64)), True, "f32", True),
        (((Q.Q5_0, 256), (Q.Q8_0, 128)), False, "q8_0", True),
    ],
    LAVAPIPE,
)
def test_rotated_and_appended(
    bench: Bench, stack: Stack, neox: bool, kv_type: str, small_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of another type than queries and keys, and keys and values of another type than queries."""
    bench = Bench(bench.page, replace(bench.device, dot8=True))
    cols, heads = 1280, (4, 1, 64)

    def build(ops: Ops) -> list[tuple[Buffer, int]]:
        weights = [matrix(bench, type, f"w{i}", count, cols, tame=True) for i, (type, count) in enumerate(stack)]
        x, cache = ops.rows("x", cols), bench.cache(64, kv_type)
        bench.fill(x)
        rope = Rope(64, Pairs(neox), ops.buffer("freqs", (32,), "u32", "state"), 1.25)
        bench.data["freqs"] = np.frombuffer(table(frequencies(64, 10000.0)), np.uint32).copy()
        projection = Projection(weights, bench.vector("bias", 384), bench.vector("norm", cols), EPS)
        q = ops.qkv(x, projection, cache, heads, rope)
        keys, values = cache.staged or (cache.k, cache.v)  # staged: the cache is written by other kernels
        return [(q, 256), (keys, 64), (values, 64)]

    _check(bench, build, small_batch, monkeypatch)
