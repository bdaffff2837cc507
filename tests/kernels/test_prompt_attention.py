"""Attention of a prompt in the tiles of a GPU without subgroup matrices: software GPUs against numpy.

Outputs start as NaN, as do cached rows after the end.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import alibi, attention_tiles, split_attention, tiles
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.ops import AttentionOptions
from py_engine.plan.relative_bias import relative_bias
from py_engine.proof import comparison
from py_engine.proof.cases import cases
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.proofs import run_case
from tests.support.kernels.variants import in_turn

VARIANTS = ["lavapipe: f16 subgroups", "lavapipe: f32", "swiftshader: f32"]
Heads = tuple[int, int, int]


def attend(
    bench: Bench, heads: Heads, n: int, pos: int, kv_type: str, options: AttentionOptions, n_ctx: int = 384
) -> None:
    """Compare attention of n tokens from `pos` on with numpy's."""
    n_head, n_kv, dim = heads
    ops = bench.begin(Setup(batch=max(2, n), n=n, pos=pos, n_ctx=n_ctx, page=64))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        bench.data[b.name][bench.cache_rows(range(pos + n, n_ctx))] = np.nan
    y = ops.attention(q, cache, heads, options)
    assert [op.kernel for op in ops.ops] == ["attention"]
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None  # whose random scales make large scores
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim], limit)
    assert np.isnan(gpu[y.name][n:]).all()


def on_gpu(bench: Bench, *measured: tuple[str, Sequence[int]]) -> Bench:
    """The bench of a device that is planned for as a GPU, with `measured` tiles."""
    device = replace(bench.device, software=False, max_threads=256)
    for key, tile in measured:
        device = tiles.with_tile(device, key, tuple(tile))
    return Bench(bench.page, device)


@in_turn(
    "heads, n, pos, kv_type, storage",
    [
        ((4, 2, 64), 65, 0, "f16", 32768),
        ((2, 1, 64), 33, 100, "f32", 32768),
        ((3, 1, 64), 31, 257, "q8_0", 32768),
        ((2, 2, 80), 63, 31, "f16", 32768),
        ((2, 1, 128), 257, 5, "f16", 32768),
        ((8, 1, 128), 3, 128, "f32", 32768),
        ((2, 1, 256), 33, 65, "f16", 32768),
        ((1, 1, 256), 1, 64, "f32", 16384),
        ((4, 1, 64), 257, 90, "f16", 16384),
        ((2, 1, 72), 31, 65, "f32", 16384),
        ((1, 1, 96), 65, 0, "f16", 16384),
        ((71, 1, 32), 3, 40, "f16", 32768),
    ],
    VARIANTS,
)
def test_shapes(bench: Bench, heads: Heads, n: int, pos: int, kv_type: str, storage: int) -> None:
    """Batches and contexts that are no whole tiles, in the workgroup memory of different devices."""
    bench = on_gpu(bench)
    bench = Bench(bench.page, replace(bench.device, max_workgroup_storage=storage))
    attend(bench, heads, n, pos, kv_type, AttentionOptions(heads[2] ** -0.5))


@in_turn(
    "heads, tile",
    [
        ((4, 1, 64), (64, 32, 128, 4, 4, 1, 1, 1)),
        ((4, 1, 64), (64, 32, 128, 4, 4, 1, 0, 0)),
        ((2, 2, 32), (128, 32, 128, 8, 8, 1, 2, 1)),
        ((2, 1, 64), (64, 64, 256, 4, 4, 1, 2, 1)),
        ((4, 1, 32), (64, 64, 256, 4, 4, 2, 2, 1)),
        ((2, 1, 64), (32, 32, 128, 2, 4, 1, 2, 0)),
        ((2, 1, 128), (64, 16, 128, 2, 4, 1, 2, 1)),
        ((2, 1, 80), (32, 64, 128, 4, 4, 2, 1, 0)),
    ],
    ["lavapipe: f16 subgroups", "lavapipe: f16"],
)
def test_measured_tiles(bench: Bench, heads: Heads, tile: tuple[int, ...]) -> None:
    """Other tiles than the usual one, of more workgroup memory, too."""
    key = attention_tiles.key(heads[2], heads[0] // heads[1])
    bench = on_gpu(bench, (key, tile))
    assert dict(bench.device.tiles)[key] == tile
    attend(bench, heads, 140, 69, "f16", AttentionOptions(heads[2] ** -0.5))


@in_turn(
    "heads, n, pos, window",
    [((4, 2, 64), 65, 200, 33), ((3, 1, 32), 33, 5, 70), ((2, 2, 40), 63, 130, 64)],
    VARIANTS,
)
def test_windows_and_biases(bench: Bench, heads: Heads, n: int, pos: int, window: int) -> None:
    """A window or chunks, a soft cap, attention sinks and ALiBi."""
    bench, options = on_gpu(bench), AttentionOptions(1.0, window, soft_cap=2.0)
    attend(bench, heads, n, pos, "f32", replace(options, chunked=True))
    ops = bench.begin(Setup(batch=n, n=n, pos=pos, n_ctx=384, page=64))
    q, cache = ops.rows("q", heads[0] * heads[2]), bench.cache(heads[1] * heads[2], "f32", window)
    bench.fill(q)
    slopes = alibi.table(ops, heads[0], 2.0)
    bench.data[slopes.name] = np.resize(np.frombuffer(ops.plan.constants[slopes.name], np.uint32), slopes.shape)
    y = ops.attention(q, cache, heads, replace(options, slopes=slopes, sinks=bench.vector("sinks", heads[0])))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:, : heads[0] * heads[2]], host[y.name][:, : heads[0] * heads[2]])


@in_turn("heads, n, window", [((3, 1, 16), 140, 0), ((2, 2, 72), 65, 10)], VARIANTS[:2])
def test_both_ways(bench: Bench, heads: Heads, n: int, window: int) -> None:
    """An encoder's attention, with T5's biases. Positions after the end are poisoned."""
    bench, (n_head, n_kv, dim) = on_gpu(bench), heads
    ops = bench.begin(Setup(batch=n + 1, n=n, n_ctx=160))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = Cache(ops.buffer("k", (160, n_kv * dim)), ops.buffer("v", (160, n_kv * dim)), "f32", UNPAGED)
    for b in (cache.k, cache.v):
        bench.fill(b)[n:] = np.nan
    relative = relative_bias(ops, bench.weight("relative", Q.F16, 8, n_head), causal=False)
    name = relative.buckets.name
    bench.data[name] = np.frombuffer(ops.plan.constants[name], np.uint32).reshape(relative.buckets.shape)
    y = ops.attention(q, cache, heads, AttentionOptions(1.0, window, causal=False, relative=relative))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])


@in_turn("heads, n, kv_type", [((2, 2, 64), 65, "f16"), ((1, 1, 72), 257, "f32"), ((3, 3, 80), 33, "f16")], VARIANTS)
def test_precise(bench: Bench, heads: Heads, n: int, kv_type: str) -> None:
    """A GPU with f16, too, computes an encoder's attention in f32; only inputs and stored numbers are f16."""
    bench, (n_head, n_kv, dim) = on_gpu(bench), heads
    ops = bench.begin(Setup(batch=n + 1, n=n, n_ctx=320))
    ops.precise = True
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = Cache(
        ops.buffer("k", (320, n_kv * dim), kv_type), ops.buffer("v", (320, n_kv * dim), kv_type), kv_type, UNPAGED
    )
    for b in (cache.k, cache.v):
        bench.fill(b)[n:] = np.nan
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, causal=False))
    assert [op.params["SUMS32"] for op in ops.ops if bench.device.f16] in ([], [1])
    gpu, host = bench.run(ops)
    limit = 1e-6 if bench.device.f16 else 1e-11  # queries and weights are stored in f16
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim], limit)
    assert np.isnan(gpu[y.name][n:]).all()


@in_turn(
    "heads, n, pos, kv_type, window, sinks",
    [
        ((4, 2, 64), 17, 200, "f16", 0, False),
        ((3, 1, 64), 65, 300, "f32", 0, True),
        ((2, 2, 80), 5, 187, "q8_0", 0, False),
        ((2, 1, 32), 33, 150, "f16", 70, True),
        ((2, 1, 128), 1, 0, "f16", 0, False),
    ],
    VARIANTS,
)
def test_splits(
    bench: Bench, heads: Heads, n: int, pos: int, kv_type: str, window: int, sinks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Several workgroups share a tile's positions. Some of its tokens see nothing of a split; some splits are empty."""
    monkeypatch.setattr(split_attention, "splits", lambda _: 4)
    bench, (n_head, n_kv, dim) = on_gpu(bench), heads
    ops = bench.begin(Setup(batch=80, n=n, pos=pos, n_ctx=384, page=64))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type, window)
    sink = bench.vector("sinks", n_head) if sinks else None
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window, sinks=sink))
    want = bench.host(ops)[y.name]
    ops.ops[:] = split_attention.split(bench.plan, ops.ops, 64, bench.device)
    assert [op.kernel for op in ops.ops] == ["attention", "attention_merge"]
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None  # whose random scales make large scores
    check(bench, gpu[y.name][:n, : n_head * dim], want[:n, : n_head * dim], limit)
    check(bench, host[y.name][:n, : n_head * dim], want[:n, : n_head * dim], 1e-10)
    assert np.isnan(gpu[y.name][n:]).all()


@in_turn("window", [0, 40], VARIANTS[:2])
def test_the_proof_has_a_case_of_splits(bench: Bench, window: int) -> None:
    """Its tokens are late enough for several splits, and right kernels pass."""
    bench, heads = on_gpu(bench), (4, 2, 64)
    ops = bench.begin(Setup(batch=64, n=1, n_ctx=2048))
    q, cache = ops.rows("q", heads[0] * heads[2]), bench.cache(heads[1] * heads[2], "f16", window)
    ops.attention(q, cache, heads, AttentionOptions(heads[2] ** -0.5, window))
    bench.plan.lists["split"] = split_attention.split(bench.plan, ops.ops, 64, bench.device)
    (case,) = cases(bench.plan, bench.device, ["split"], lambda _: False)
    assert [op.kernel for op in case.ops] == ["attention", "attention_merge"]
    assert comparison.fault(case, run_case(bench.page, case, bench.device)) is None
