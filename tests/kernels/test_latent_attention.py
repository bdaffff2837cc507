"""Latent attention: rotated keys and latents into the cache, products of heads, and attention over wide rows."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import latent_attention, matmul_tiles, merged_splits
from py_engine.plan.cache import page_group
from py_engine.plan.latent_attention import Appended, Columns, HeadMatrices, LatentShape
from py_engine.plan.ops import AttentionOptions
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, tolerance, with_matrices
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import BOTH_ADAPTERS, SWIFTSHADER, in_pairs, in_turn

SHAPE = LatentShape(heads=3, rank=36, nope=12, rope=8, value=16)


@in_pairs(("kv_type", ["f16", "f32"]), ("batch", [1, 5]), ("neox", [False, True]))
def test_latent_append(bench: Bench, kv_type: str, batch: int, neox: bool) -> None:
    """A batch that goes on in another page. The columns of absorbed queries stay as they are."""
    ops = bench.begin(Setup(batch=batch + 1, n=batch, pos=63, n_ctx=192, seq=5))
    q, kv = ops.rows("q_heads", SHAPE.heads * 20), ops.rows("low", 20 + SHAPE.rank + SHAPE.rope)
    for b in (q, kv):
        bench.fill(b)
    cache = latent_attention.make_latent_cache(ops.plan, 0, SHAPE, kv_type, page_group(ops.plan, 0))
    bench.data[cache.k.name] = np.full(cache.k.shape, np.nan, np.float16 if kv_type == "f16" else np.float32)
    rope = Rope(8, Pairs(neox), ops.buffer("freqs", (4,), "u32", "state"), 1.25)
    bench.data["freqs"] = np.frombuffer(table(frequencies(8, 10000.0)), np.uint32).copy()
    y = ops.rows("q", SHAPE.heads * SHAPE.row)
    latent_attention.append(
        ops, Appended(q, Columns(kv, 20), bench.vector("norm", SHAPE.rank), EPS, rope), cache, SHAPE, y, whole=False
    )
    gpu, host = bench.run(ops)
    got, want = (x[y.name][:batch, : SHAPE.heads * SHAPE.row].reshape(batch, 3, -1) for x in (gpu, host))
    check(bench, got[:, :, : SHAPE.rope], want[:, :, : SHAPE.rope])
    assert np.isnan(got[:, :, SHAPE.rope :]).all()
    rows = bench.cache_rows(range(63, 63 + batch), 5)
    check(
        bench,
        gpu[cache.k.name][rows].astype(np.float32),
        host[cache.k.name][rows].astype(np.float32),
        max(tolerance(bench), 1e-6),
    )
    assert np.isfinite(gpu[cache.k.name]).all(axis=1).sum() == batch


@in_turn("kv_type, whole", [("f16", True), ("f32", False)])
def test_latents_without_a_rotated_part(bench: Bench, kv_type: str, whole: bool) -> None:
    """GLM 5.3's: a row of the cache is the latent alone, and query heads are copied, if they are whole."""
    shape, ops = replace(SHAPE, rope=0), bench.begin(Setup(batch=4, n=3, pos=62, n_ctx=192, seq=2))
    q, kv = ops.rows("q_heads", shape.heads * shape.nope), ops.rows("low", shape.rank)
    for b in (q, kv):
        bench.fill(b)
    cache = latent_attention.make_latent_cache(ops.plan, 0, shape, kv_type, page_group(ops.plan, 0))
    bench.data[cache.k.name] = np.full(cache.k.shape, np.nan, np.float16 if kv_type == "f16" else np.float32)
    rope = Rope(0, Pairs.NEIGHBOURS, ops.buffer("freqs", (4,), "u32", "state"), 1.0)
    y = ops.rows("q", shape.heads * shape.nope if whole else shape.heads * shape.row)
    given = Appended(q, Columns(kv), bench.vector("norm", shape.rank), EPS, rope)
    latent_attention.append(ops, given, cache, shape, y, whole=whole)
    gpu, host = bench.run(ops)
    rows = bench.cache_rows(range(62, 65), 2)
    got, want = (x[cache.k.name][rows].astype(np.float32) for x in (gpu, host))
    check(bench, got, want, max(tolerance(bench), 1e-6))
    assert np.isfinite(gpu[cache.k.name]).all(axis=1).sum() == len(rows)
    if whole:
        used = shape.heads * shape.nope
        np.testing.assert_array_equal(gpu[y.name][:3, :used], bench.data[q.name][:3, :used])
    else:
        assert np.isnan(gpu[y.name]).all()


@in_pairs(
    ("transposed", [False, True]),
    ("type, rows, cols", [(Q.F16, 12, 36), (Q.Q8_0, 20, 64), (Q.Q4_K, 8, 256), (Q.F32, 72, 20)]),
    ("batch", [1, 6]),
)
def test_head_products(bench: Bench, transposed: bool, type: Q, rows: int, cols: int, batch: int) -> None:
    """Matrices of five heads with rows between them; columns before, between and after the heads' are not touched."""
    _head_products(bench, transposed, type, rows, cols, batch)


@in_turn("cols, batch", [(5, 1), (39, 6)])
def test_head_products_of_any_columns(bench: Bench, cols: int, batch: int) -> None:
    """RWKV-6's mixes, whose rank need not be a multiple of 4."""
    _head_products(bench, False, Q.F16, 12, cols, batch, attended=False)


def _head_products(
    bench: Bench, transposed: bool, type: Q, rows: int, cols: int, batch: int, *, attended: bool = True
) -> None:
    ops = bench.begin(Setup(batch=batch + 1, n=batch))
    heads, step = 5, rows + 8
    inputs, outputs = (rows, cols) if transposed else (cols, rows)
    x, y = ops.rows("x", heads * (inputs + 4) + 8), ops.rows("y", heads * (outputs + 4) + 8)
    bench.fill(x)
    count = heads * step
    weight = (
        bench.weight("w", type, count, cols, 0.3)
        if type in (Q.F16, Q.F32)
        else matrix(bench, type, "w", count, cols, tame=True)
    )
    matrices = HeadMatrices(heads, weight, rows, cols, 4, step)
    of_x, of_y = Columns(x, 8, inputs + 4), Columns(y, 4, outputs + 4)
    latent_attention.products(ops, of_x, matrices, of_y, transposed=transposed, attended=attended)
    gpu, host = bench.run(ops)
    written = np.zeros(y.shape[1], bool)
    for head in range(heads):
        written[4 + head * (outputs + 4) :][:outputs] = True
    check(bench, gpu[y.name][:batch, written], host[y.name][:batch, written])
    assert np.isnan(gpu[y.name][:, ~written]).all()
    assert np.isnan(gpu[y.name][batch:]).all()


@in_turn("heads, n, pos, kv_type", [((16, 1, 576), 3, 33, "f16"), ((12, 1, 516), 2, 9, "f32")])
def test_attention_over_wide_rows(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str) -> None:
    """Several workgroups share a key head, whose rows are its values, too. Positions after the end are poisoned."""
    n_head, _, dim = heads
    bench = Bench(bench.page, replace(bench.device, software=True))
    for batch in (1, n):
        ops = bench.begin(Setup(batch=batch, n=batch, pos=pos, n_ctx=64))
        q = ops.rows("q", n_head * dim)
        bench.fill(q)
        shape = LatentShape(n_head, dim - 64, 64, 64, 64)
        cache = latent_attention.make_latent_cache(ops.plan, 0, shape, kv_type, page_group(ops.plan, 0))
        bench.fill(cache.k)[bench.cache_rows(range(pos + batch, 64))] = np.nan
        y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5))
        assert any(int(op.params.get("SHARE", 1)) > 1 for op in ops.ops)
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:batch, : n_head * dim], host[y.name][:batch, : n_head * dim])


WIDE, NARROW = ((16, 1, 576), Q.Q4_0, 33), ((3, 1, 44), Q.F16, 12)  # heads, type of the values' matrices, their rows


@in_turn(
    "heads, type, rows, places",
    [
        (*WIDE, ((63, 0),)),
        (*NARROW, ((0, 0),)),
        (*WIDE, ((70, 0), (3, 2), (255, 3), (128, 1))),
        (*NARROW, ((255, 3),)),
        (*NARROW, ((70, 0), (3, 2), (255, 3), (128, 1))),
    ],
    [*SWIFTSHADER, "lavapipe: f16 subgroups", "lavapipe: f16"],
)
def test_values_matrices_join_the_splits(
    bench: Bench, heads: tuple[int, int, int], type: Q, rows: int, places: tuple[tuple[int, int], ...]
) -> None:
    """Of a short context, with the bits of the dispatch that joins those of any context."""
    n_head, _, dim = heads
    rope, rank, several = dim % 32 or 64, dim // 32 * 32 - (0 if dim % 32 else 64), len(places) > 1
    bench = Bench(bench.page, replace(bench.device, software=False))
    at = Setup(batch=SHORT_BATCH if several else 1, n=len(places), n_ctx=512, places=places if several else ())
    ops = bench.begin(at if several else replace(at, pos=places[0][0], seq=places[0][1]))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = latent_attention.make_latent_cache(
        ops.plan, 0, LatentShape(n_head, rank, 8, rope, rows), "f16", page_group(ops.plan, 0)
    )
    bench.fill(cache.k)
    rows = rows // 4 * 4
    weight = (
        bench.weight("w", type, n_head * rows, rank, 0.3)
        if type is Q.F16
        else matrix(bench, type, "w", n_head * rows, rank, tame=True)
    )
    attn, y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5)), ops.rows("y", n_head * rows)
    latent_attention.products(
        ops, Columns(attn, rope, dim), HeadMatrices(n_head, weight, rows, rank), Columns(y, 0, rows)
    )
    merged_splits.merge(ops.ops, bench.device)
    got = []
    limit = next(op.contexts.up_to for op in ops.ops if "MERGED" in op.params and op.kernel == "head_products")
    assert limit > max(pos for pos, _ in places)
    for context, joins in ((inf, True), (limit, False)):
        chosen = [op for op in ops.ops if op.contexts.include(context)]
        assert ("attention_combine" in [op.kernel for op in chosen]) == joins
        whole, ops.ops[:] = list(ops.ops), chosen
        gpu, host = bench.run(ops)
        ops.ops[:] = whole
        check(bench, gpu[y.name][: len(places), : n_head * rows], host[y.name][: len(places), : n_head * rows])
        assert np.isnan(gpu[y.name][len(places) :]).all()
        got.append(gpu[y.name][: len(places)].view(np.uint32))
    assert (got[0] == got[1]).all()


@in_turn(
    "joined, kv_type, type, pos, at_a_time",
    [
        (False, "f16", Q.F16, 33, 3),
        (True, "f16", Q.Q8_0, 5, 3),
        (False, "f32", Q.Q8_0, 70, 2),
        (True, "f16", Q.F16, 0, 1),
    ],
    BOTH_ADAPTERS[:1],
)
def test_attention_over_expanded_latents(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, joined: bool, kv_type: str, type: Q, pos: int, at_a_time: int
) -> None:
    """Some heads at a time. Cached rows after the end are poisoned, and what is expanded of them."""
    monkeypatch.setattr(latent_attention, "EXPANDED_BYTES", at_a_time * 2 * (32 + 20) * 128)
    expand_and_attend(bench, joined, kv_type, type, pos, {"attention", "matmul"}, 2e-3)


@pytest.mark.parametrize(("joined", "pos"), [(False, 33), (True, 0)])
def test_expanded_latents_with_matrices(
    plain_bench: Bench, monkeypatch: pytest.MonkeyPatch, joined: bool, pos: int
) -> None:
    """Emulated subgroup matrices, so in f32."""
    bench = with_matrices(plain_bench, (1, 1, 40), monkeypatch)
    tile = {"TM": 32, "TN": 32, "DEPTH": 32, "SM": 2, "SN": 2, "AHEAD": 0, "SIDE": 16, "LANES": 32}
    monkeypatch.setattr(matmul_tiles, "matmul_of_halves", lambda *_: ("matmul_matrix", tile))
    monkeypatch.setattr(latent_attention, "EXPANDED_TYPE", "f32")
    expand_and_attend(bench, joined, "f32", Q.F16, pos, {"attention_matrix", "matmul_matrix"}, 1e-5)


def expand_and_attend(
    bench: Bench, joined: bool, kv_type: str, type: Q, pos: int, kernels: set[str], limit: float
) -> None:
    shape, n = LatentShape(heads=3, rank=44 if type == Q.F16 else 64, nope=32, rope=8, value=20), 35
    ops = bench.begin(Setup(batch=64, n=n, pos=pos, n_ctx=128))
    q = ops.rows("whole_q", shape.heads * (shape.nope + shape.rope))
    bench.fill(q)
    cache = latent_attention.make_latent_cache(ops.plan, 0, shape, kv_type, page_group(ops.plan, 0))
    bench.fill(cache.k)[bench.cache_rows(range(pos + n, 128))] = np.nan
    if joined:
        step = shape.nope + shape.value
        weight = bench.weight("kv_b", type, shape.heads * step, shape.rank, 0.2)
        keys = HeadMatrices(shape.heads, weight, shape.nope, shape.rank, 0, step)
        values = HeadMatrices(shape.heads, weight, shape.value, shape.rank, shape.nope, step)
    else:
        keys = HeadMatrices(
            shape.heads, bench.weight("k_b", type, 3 * shape.rank, shape.nope, 0.2), shape.rank, shape.nope
        )
        values = HeadMatrices(
            shape.heads, bench.weight("v_b", type, 3 * shape.value, shape.rank, 0.2), shape.value, shape.rank
        )
    given = latent_attention.Projections(keys, values, joined)
    y = latent_attention.expanded_attention(
        ops, q, cache, given, shape, AttentionOptions(0.2, sinks=bench.vector("sinks", 3))
    )
    assert {op.kernel for op in ops.ops} == {"latent_expansion", *kernels}
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :60].astype(np.float32), host[y.name][:n, :60].astype(np.float32), limit)
    assert np.isnan(gpu[y.name][n:]).all()
