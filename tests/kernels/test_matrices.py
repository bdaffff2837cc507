"""The kernels with subgroup matrices, emulated (matrices.py)."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import products, split_attention, tiles
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.ops import AttentionOptions, Projection
from py_engine.plan.plan import PerToken
from py_engine.plan.products import Product
from py_engine.proof import comparison
from py_engine.proof.cases import cases
from tests.support.kernels.bench import Bench, Setup, nmse
from tests.support.kernels.checks import with_matrices
from tests.support.kernels.proofs import run_case
from tests.support.kernels.quantised import matrix


@pytest.fixture
def matrix_bench(plain_bench: Bench) -> Bench:
    return Bench(plain_bench.page, replace(plain_bench.device, subgroup=32, matrix=16))


@pytest.mark.parametrize(
    ("type", "rows", "cols", "n", "tile"),
    [
        (Q.F16, 1, 1, 1, {"TM": 64, "TN": 64, "DEPTH": 32}),
        (Q.Q4_0, 70, 288, 130, {"TM": 64, "TN": 64, "DEPTH": 32}),
        (Q.F32, 65, 33, 31, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1}),
        (Q.Q8_0, 257, 96, 3, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1}),
        (Q.Q4_0, 70, 288, 130, {"TM": 128, "TN": 32, "DEPTH": 32, "SN": 1}),
        (Q.F16, 70, 150, 130, {"TM": 64, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1}),
        (Q.F16, 33, 76, 40, {"TM": 32, "TN": 32, "DEPTH": 32, "AHEAD": 2, "HALVES": 1}),
        (Q.F16, 40, 97, 33, {"TM": 32, "TN": 32, "DEPTH": 32, "AHEAD": 2, "HALVES": 1}),
        (Q.Q8_0, 257, 160, 3, {"TM": 32, "TN": 32, "DEPTH": 32, "AHEAD": 2}),
        (Q.Q4_0, 70, 288, 33, {"TM": 32, "TN": 16, "DEPTH": 128, "SN": 1, "AHEAD": 1}),
        (Q.Q4_0, 70, 288, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1}),
        (Q.Q8_0, 33, 96, 33, {"TM": 32, "TN": 32, "DEPTH": 32, "AHEAD": 2, "HALVES": 1}),
        (Q.Q4_K, 33, 256, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1}),
        (Q.Q4_K, 33, 256, 33, {"TM": 32, "TN": 32, "DEPTH": 32, "AHEAD": 0, "HALVES": 1}),
        (Q.Q6_K, 70, 512, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1}),
        (Q.MXFP4, 70, 96, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1}),
        (Q.F16, 32, 33, 65, {"TM": 32, "TN": 16, "DEPTH": 128, "SN": 1, "AHEAD": 1}),
        (Q.F16, 70, 150, 130, {"TM": 64, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1, "PINNED": 1}),
        (Q.Q8_0, 257, 96, 3, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "PINNED": 1}),
        (Q.Q4_K, 33, 256, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1, "PINNED": 1}),
        (Q.Q6_K, 31, 512, 65, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1, "PINNED": 1}),
        (Q.MXFP4, 70, 96, 33, {"TM": 32, "TN": 32, "DEPTH": 64, "AHEAD": 1, "HALVES": 1, "PINNED": 1}),
    ],
)
def test_matmul(matrix_bench: Bench, type: Q, rows: int, cols: int, n: int, tile: dict[str, int]) -> None:
    """Mat-mul with a bias, both epilogues, and padding of tokens, rows and columns.

    In f32, two tiles of the largest size exceed the workgroup's memory. The last token is the first once more: its bits
    are the same in a tile that is not full.
    """
    ops = matrix_bench.begin(Setup(batch=260, n=n))
    x, y, z = ops.rows("x", cols), ops.rows("y", rows), ops.rows("z", rows)
    for b in (x, y):
        matrix_bench.fill(b)
        matrix_bench.data[b.name][n - 1] = matrix_bench.data[b.name][0]
    packed = type in (Q.Q4_K, Q.Q6_K)  # gguf does not quantize these
    w = matrix(matrix_bench, type, "w", rows, cols, tame=True) if packed else matrix_bench.weight("w", type, rows, cols)
    ops.linear(x, w, matrix_bench.vector("bias", rows), y)
    products.append(ops, Product(x, w, z))
    assert {op.kernel for op in ops.ops} == {"matmul_matrix"}
    grid = -(-rows // tile["TN"]), PerToken(tile["TM"]), 1
    ops.ops[:] = [replace(op, params=op.params | {"PINNED": 0} | tile, grid=grid) for op in ops.ops]
    gpu, host = matrix_bench.run(ops)
    for b in (y, z):
        assert nmse(gpu[b.name][:n, :rows], host[b.name][:n, :rows]) < 1e-10
        assert (gpu[b.name][n - 1, :rows] == gpu[b.name][0, :rows]).all()
    assert np.isnan(gpu[z.name][n:]).all()


# In f32, two of the usual tiles exceed the workgroup's memory.
SMALL = {"TM": 32, "TN": 64, "DEPTH": 32, "SM": 2, "SN": 2, "AHEAD": 0}


@pytest.mark.parametrize(
    ("gated", "width", "tile"),
    [
        (False, 84, SMALL), (True, 44, SMALL), (True, 92, SMALL),
        (False, 140, SMALL | {"TN": 96}), (True, 140, SMALL | {"TN": 96, "SN": 1}),
    ],
)  # fmt: skip
def test_product_with_an_activation(matrix_bench: Bench, gated: bool, width: int, tile: dict[str, int]) -> None:
    """The activated result, with padding of tokens, rows and columns, in one dispatch."""
    ops = matrix_bench.begin(Setup(batch=256, n=70))
    ops.precise = True  # as encoders of media are
    x, rows = ops.rows("x", 76), width * (1 + gated)
    matrix_bench.fill(x)
    projection = Projection([matrix_bench.weight("w", Q.F16, rows, 76)], matrix_bench.vector("bias", rows))
    y = ops.gated(x, projection) if gated else ops.activated(x, projection, "gelu_erf")
    (op,) = ops.ops
    ops.ops[:] = [replace(op, params=op.params | tile, grid=(-(-rows // tile["TN"]), PerToken(32), 1))]
    gpu, host = matrix_bench.run(ops)
    assert nmse(gpu[y.name][:70, :width], host[y.name][:70, :width]) < 1e-10
    assert np.isnan(gpu[y.name][70:]).all()


@pytest.mark.parametrize("parts", [(204,), (68, 68, 68)])
def test_product_that_fills_a_cache(matrix_bench: Bench, parts: tuple[int, ...]) -> None:
    """Queries, keys and values of an encoder, by one matrix, and by three where the second has no bias."""
    ops = matrix_bench.begin(Setup(batch=256, n=70))
    x, q = ops.rows("x", 76), ops.rows("q", 68)
    k, v = (ops.buffer(name, (256, 68)) for name in "kv")
    cache = Cache(k, v, "f32", UNPAGED)
    matrix_bench.fill(x)
    bias, at = matrix_bench.vector("bias", 204), 0
    for i, size in enumerate(parts):
        weight = matrix_bench.weight(f"w{i}", Q.F16, size, 76)
        split = products.split_heads(cache, 68, 68)
        products.append(ops, Product(x, weight, q, None if i == 1 else bias, split, row0=at))
        at += size
    ops.ops[:] = [
        replace(op, params=op.params | SMALL, grid=(-(-size // 64), PerToken(32), 1))
        for op, size in zip(ops.ops, parts, strict=True)
    ]
    gpu, host = matrix_bench.run(ops)
    for b in (q, cache.k, cache.v):
        assert nmse(gpu[b.name][:70, :68], host[b.name][:70, :68]) < 1e-10
        assert np.isnan(gpu[b.name][70:]).all()


@pytest.mark.parametrize(
    ("heads", "n", "pos", "kv_type", "window", "cap", "strip"),
    [
        ((1, 1, 32), 1, 0, "f16", 0, 0.0, 16),
        ((4, 2, 64), 17, 31, "f16", 0, 0.0, 16),
        ((3, 1, 32), 33, 60, "f32", 40, 0.0, 32),
        ((2, 2, 48), 5, 100, "q8_0", 0, 2.0, 16),
        ((2, 1, 40), 21, 70, "f16", 0, 0.0, 16),  # two and a half matrices wide
    ],
)
def test_attention(
    matrix_bench: Bench,
    heads: tuple[int, int, int],
    n: int,
    pos: int,
    kv_type: str,
    window: int,
    cap: float,
    strip: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attention with scores that grow a lot or a little along the positions. Positions after the end are poisoned.

    In f32, a tile of the usual size exceeds the workgroup's memory.
    """
    n_head, n_kv, dim = heads
    tile = {"TQ": 32 * n_kv // n_head, "ROWS": 32, "STRIP": strip, "TS": 32, "SIDE": 16, "LANES": 32}
    tile["DIM"] = -(-dim // 16) * 16
    monkeypatch.setattr(tiles, "attention", lambda *_, **__: ("attention_matrix", tile))
    ops = matrix_bench.begin(Setup(batch=64, n=n, pos=pos, n_ctx=192))
    q = ops.rows("q", n_head * dim)
    matrix_bench.fill(q)
    cache = matrix_bench.cache(n_kv * dim, kv_type)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        values = matrix_bench.data[b.name]
        values[matrix_bench.cache_rows(range(pos + n, 192))] = np.nan
        if b is cache.k:
            growth = np.linspace(0.1, 3, 192, dtype=np.float32)[:, None].astype(values.dtype)
            values[matrix_bench.cache_rows(range(192))] *= growth
    sinks = matrix_bench.vector("sinks", n_head) if window else None
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window, soft_cap=cap, sinks=sinks))
    assert ops.ops[-1].kernel == "attention_matrix"
    halves = {"Q16": int(kv_type == "f16")}  # emulated f16 is f32
    ops.ops[-1] = replace(ops.ops[-1], params=ops.ops[-1].params | halves)
    gpu, host = matrix_bench.run(ops)
    limit = 1e-5 if cap else 1e-10  # tanh is an approximation there
    assert nmse(gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim]) < limit
    assert np.isnan(gpu[y.name][n:]).all()


@pytest.mark.parametrize(("heads", "window"), [((3, 1, 32), 40), ((2, 2, 32), 0)])
def test_attention_has_the_same_bits_in_tiles_of_half_the_rows(
    matrix_bench: Bench, heads: tuple[int, int, int], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of other sizes have other tiles, and a text must not depend on the parts of its prompt.

    Some rows of a tile see positions that others do not, and sums are rescaled for one row where others need it not.
    """
    n_head, n_kv, dim = heads
    results = []
    for rows in (64, 32):
        tile = {"TQ": rows * n_kv // n_head, "ROWS": rows, "STRIP": 16, "TS": 16, "SIDE": 16, "LANES": 32, "DIM": dim}
        monkeypatch.setattr(tiles, "attention", lambda *_, tile=tile, **__: ("attention_matrix", tile))
        bench = Bench(matrix_bench.page, matrix_bench.device)
        ops = bench.begin(Setup(batch=64, n=50, pos=61, n_ctx=192))
        q, cache = ops.rows("q", n_head * dim), bench.cache(n_kv * dim, "f32")
        bench.fill(q)
        bench.data[cache.k.name] *= 6
        y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window))
        gpu, host = bench.run(ops)
        results.append(gpu[y.name][:50, : n_head * dim])
        assert nmse(results[-1], host[y.name][:50, : n_head * dim]) < 1e-10
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(
    ("heads", "n", "pos", "kv_type", "window", "sinks"),
    [
        ((4, 2, 32), 17, 31, "f16", 0, False),
        ((3, 1, 32), 33, 100, "f32", 0, True),
        ((2, 2, 20), 5, 187, "f16", 0, False),
        ((2, 2, 32), 31, 65, "q8_0", 40, False),
        ((2, 1, 16), 21, 70, "f16", 70, True),
        ((2, 1, 32), 1, 0, "f16", 0, False),
    ],
)
def test_split_attention(
    matrix_bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str, window: int, sinks: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Several workgroups share a tile's positions. Some of its tokens see nothing of a split; some splits are empty.

    Wide heads take long to compile: test_attention has them.
    """
    n_head, n_kv, dim = heads
    bench = with_matrices(matrix_bench, heads, monkeypatch)
    monkeypatch.setattr(split_attention, "splits", lambda _: 4)
    ops = bench.begin(Setup(batch=64, n=n, pos=pos, n_ctx=192))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        bench.data[b.name][bench.cache_rows(range(pos + n, 192))] = np.nan
    sink = bench.vector("sinks", n_head) if sinks else None
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window, sinks=sink))
    ops.ops[:] = [replace(op, params=op.params | {"Q16": int(kv_type == "f16")}) for op in ops.ops]  # f16 is f32 here
    want = bench.host(ops)[y.name]
    ops.ops[:] = split_attention.split(bench.plan, ops.ops, 64, bench.device)
    assert [op.kernel for op in ops.ops] == ["attention_matrix", "attention_merge"]
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else 1e-10  # whose random scales make large scores
    assert nmse(gpu[y.name][:n, : n_head * dim], want[:n, : n_head * dim]) < limit
    assert nmse(host[y.name][:n, : n_head * dim], want[:n, : n_head * dim]) < 1e-10
    assert np.isnan(gpu[y.name][n:]).all()


@pytest.mark.parametrize("window", [0, 40])
def test_the_proof_has_a_case_of_split_attention(
    matrix_bench: Bench, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens are late enough for several splits, and right kernels pass."""
    heads = (4, 2, 32)
    bench = with_matrices(matrix_bench, heads, monkeypatch)
    ops = bench.begin(Setup(batch=64, n=1, n_ctx=2048))
    q, cache = ops.rows("q", heads[0] * heads[2]), bench.cache(heads[1] * heads[2], "f32")
    ops.attention(q, cache, heads, AttentionOptions(heads[2] ** -0.5, window))
    bench.plan.lists["split"] = split_attention.split(bench.plan, ops.ops, 64, bench.device)
    (case,) = cases(bench.plan, bench.device, ["split"], lambda _: False)
    assert [op.kernel for op in case.ops] == ["attention_matrix", "attention_merge"]
    assert case.batch.places[0][0] > 2 * case.ops[0].params["TS"] or window  # type: ignore[operator]
    assert comparison.fault(case, run_case(bench.page, case, bench.device)) is None
