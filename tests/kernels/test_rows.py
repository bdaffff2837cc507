"""Kernels of encoders of images and sound, with awkward shapes: GPU against numpy, as in test_kernels.py."""

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import attention, rows
from py_engine.plan.activations import Xielu
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.op_list import pad
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Pairs, Rope
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.variants import in_every_variant, in_pairs

XIELU = Xielu(1.3, 0.6, 0.5, -1e-6)


def taps(bench: Bench, ops: Ops, count: int, table: int) -> Buffer:
    """Random taps of a table's rows, a quarter of them without weight; none beyond the batch is legal."""
    chosen = rows.taps(ops, "taps", count)
    given = np.full(chosen.shape, 0xFFFFFFFF, np.uint32)
    weights = bench.random.standard_normal((bench.n, count)).astype(np.float32)
    weights[bench.random.random(weights.shape) < 0.25] = 0
    given[: bench.n, :, 0] = np.where(weights != 0, bench.random.integers(0, table, weights.shape), 0xFFFFFF)
    given[: bench.n, :, 1] = weights.view(np.uint32)
    bench.data[chosen.name] = given
    return chosen


@in_pairs(("side", [3, 14, 16]))
def test_patches_of_pictures(bench: Bench, side: int) -> None:
    """Patches that begin at any byte; a row without pixels is zeros."""
    ops = bench.begin(Setup(batch=5, n=4))
    pixels = ops.buffer("pixels", (3 * side * side * 2,), "u32", "state")
    values = ops.buffer("values", (3, 256), "f32", "state")
    bench.data["pixels"] = bench.random.integers(0, 1 << 32, pixels.shape).astype(np.uint32)
    bench.fill(values)
    places = rows.taps(ops, "places", 1)
    given = np.full(places.shape, 0xFFFFFF, np.uint32)
    given[:4, 0] = [(0, 3 * side), (7, 3 * side + 3), (0, 0), (1, 3 * side)]
    bench.data["places"] = given
    y = rows.patches(ops, pixels, places, values, side)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:4, : 3 * side * side], host[y.name][:4, : 3 * side * side], 1e-6)
    assert not host[y.name][2, : 3 * side * side].any()
    assert np.isnan(gpu[y.name][4:]).all()


@in_pairs(("type", [Q.F32, Q.F16, Q.BF16, Q.Q8_0]), ("cols, count", [(4, 1), (32, 5), (1056, 2)]))
def test_gather_from_a_table(bench: Bench, type: Q, cols: int, count: int) -> None:
    """Added to what is there; the rest of the row's last group and rows beyond the batch stay."""
    cols = pad(cols) if type == Q.Q8_0 else cols
    ops = bench.begin(Setup(batch=6, n=5))
    y = ops.rows("y", cols)
    bench.fill(y)[bench.n :] = np.nan
    rows.gather(ops, bench.weight("table", type, 7, cols), cols, taps(bench, ops, count, 7), y, add=True)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:5], host[y.name][:5], 1e-12)
    assert np.isnan(gpu[y.name][5:]).all()


@in_pairs(("type", [Q.F32, Q.F16, Q.Q8_0]), ("cols, codes", [(32, 7), (96, 150)]))
def test_nearest_codes(bench: Bench, type: Q, cols: int, codes: int) -> None:
    """The residual becomes smaller; another codebook's taps, and rows beyond the batch, stay."""
    ops = bench.begin(Setup(batch=6, n=5))
    x, chosen = ops.rows("x", cols), rows.taps(ops, "taps", 2)
    before = bench.fill(x)
    before[bench.n :] = np.nan
    before = before[: bench.n].copy()
    bench.data[chosen.name] = np.full(chosen.shape, 0xFFFFFF, np.uint32)
    rows.nearest_code(ops, x, bench.weight("book", type, 160, cols), rows.OneTap(chosen, 1), codes, 1000)
    gpu, host = bench.run(ops)
    assert np.array_equal(gpu[chosen.name], host[chosen.name])
    assert (host[chosen.name][: bench.n, 1, 0] - 1000 < codes).all()
    assert (host[chosen.name][: bench.n, 0] == 0xFFFFFF).all()
    check(bench, gpu[x.name][: bench.n], host[x.name][: bench.n], 1e-6)
    assert not np.array_equal(gpu[x.name][: bench.n], before)
    assert np.isnan(gpu[x.name][bench.n :]).all()


@in_pairs(("cols, count", [(36, 4), (64, 3), (4, 2)]))
def test_merged_rows(bench: Bench, cols: int, count: int) -> None:
    """Several rows of a buffer become the columns of one; rows with padding are copied part by part."""
    ops = bench.begin(Setup(batch=4, n=3))
    x = ops.buffer("other.x", (9, pad(cols)))
    bench.fill(x)[:, cols:] = np.nan
    y = rows.merged(ops, x, cols, count, taps(bench, ops, count, 9))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:3, : cols * count], host[y.name][:3, : cols * count], 1e-12)
    assert np.isnan(gpu[y.name][3:]).all()


@in_pairs(("cols, count", [(5, 9), (33, 3), (70, 1)]))
def test_unfolded_input_of_a_convolution(bench: Bench, cols: int, count: int) -> None:
    ops = bench.begin(Setup(batch=5, n=4))
    x = ops.buffer("other.x", (8, pad(cols)))
    bench.fill(x)[:, cols:] = np.nan
    y = rows.unfold(ops, x, cols, taps(bench, ops, count, 8))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:4, : cols * count], host[y.name][:4, : cols * count], 1e-6)
    assert np.isnan(gpu[y.name][:4, cols * count :]).all()
    assert np.isnan(gpu[y.name][4:]).all()


@in_pairs(("kind", [Q.F32, Q.F16]), ("cols, count", [(36, 5), (65, 9), (33, 49)]))
def test_depthwise_convolution(bench: Bench, kind: Q, cols: int, count: int) -> None:
    ops = bench.begin(Setup(batch=5, n=4))
    x = ops.rows("x", cols)
    bench.fill(x)
    y = rows.depthwise(ops, x, bench.weight("kernel", kind, cols, count), cols, taps(bench, ops, count, 5))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:4, :cols], host[y.name][:4, :cols], 1e-12)
    assert np.isnan(gpu[y.name][4:]).all()


@in_pairs(("terms", [1, 3, 4]), ("cols", [33, 64]))
def test_bias_and_batch_norm_of_a_depthwise_convolution(bench: Bench, terms: int, cols: int) -> None:
    ops = bench.begin(Setup(batch=5, n=4))
    x = ops.rows("x", cols)
    bench.fill(x)[:, cols:] = np.nan
    kernel, chosen = bench.weight("kernel", Q.F32, cols, 9), taps(bench, ops, 9, 5)
    vectors = bench.vector("terms", terms * cols)
    if terms == 4:  # a variance is positive
        values = np.abs(bench.raw[vectors.name].view(np.float32)) + np.float32(0.25)
        bench.raw[vectors.name] = values.view(np.uint8)
    y = rows.depthwise(ops, x, kernel, cols, chosen, vectors)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:4, :cols], host[y.name][:4, :cols], 1e-12)
    assert np.isnan(gpu[y.name][4:]).all()


@in_pairs(("kind", [Q.F32, Q.F16]), ("frames, bins, channels", [(1, 3, 5), (6, 8, 70), (11, 13, 33), (21, 7, 64)]))
def test_two_convolutions_in_one(bench: Bench, kind: Q, frames: int, bins: int, channels: int) -> None:
    """Frames and bins of any remainder by 4; what lies beyond the spectrum is not read."""
    n, parts = -(-frames // 4), -(-bins // 4)
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, length = ops.buffer("spectrum", (4 * n + 4, pad(bins))), ops.buffer("length", (4,), "u32", "state")
    bench.fill(x)[frames:] = np.nan
    bench.data[x.name][:, bins:] = np.nan
    bench.data["length"] = np.array([frames, 0, 0, 0], np.uint32)
    kernels, biases = bench.weight("kernels", kind, 2 * channels, 9), bench.vector("biases", 2 * channels)
    y = rows.subsample(ops, x, length, kernels, biases, bins)
    gpu, host = bench.run(ops)
    found, wanted = (made[y.name].reshape(y.shape) for made in (gpu, host))
    check(bench, found[: n * parts, :channels], wanted[: n * parts, :channels], 1e-11)
    assert np.isnan(found[n * parts :]).all()


@in_every_variant
def test_limits_and_scales_of_columns(bench: Bench) -> None:
    """Clamped to another buffer, and in place from a column on; shifted and scaled."""
    ops = bench.begin(Setup(batch=4, n=3))
    x, y = ops.rows("x", 40), ops.rows("y", 40, ops.input_dtype)
    bench.fill(x)
    limits = bench.vector("limits", 2)
    bench.raw["limits"] = np.array([0.6, -0.4], np.float32).view(np.uint8)
    rows.clamp(ops, x, limits, y, 40)
    rows.clamp(ops, x, limits, x, 9, 17)
    for name, shift in (("shifted", bench.vector("shift", 40)), ("scaled", None)):
        values = ops.rows(name, 40)
        bench.fill(values)
        rows.shift_scale(ops, values, bench.vector(f"factor of {name}", 40), shift)
    gpu, host = bench.run(ops)
    for name in (x.name, y.name, "test.shifted", "test.scaled"):
        check(bench, gpu[name][:3, :40], host[name][:3, :40], 1e-6 if name == y.name else 1e-12)
    assert np.isnan(gpu[y.name][3:]).all()


@in_pairs(("type", [Q.F16, Q.F32]), ("inputs, outputs", [(36, 33), (5, 1056)]))
def test_product_with_a_transposed_matrix(bench: Bench, type: Q, inputs: int, outputs: int) -> None:
    ops = bench.begin(Setup(batch=4, n=3))
    x, y = ops.rows("x", inputs), ops.rows("y", outputs)
    bench.fill(x)[:, inputs:] = np.nan
    rows.project_transposed(ops, x, bench.weight("w", type, inputs, outputs), y)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:3, :outputs], host[y.name][:3, :outputs], 1e-10)
    assert np.isnan(gpu[y.name][3:]).all()


@in_pairs(("cols, parts", [(36, 3), (64, 5)]))
def test_norms_of_parts_of_rows_and_without_weights(bench: Bench, cols: int, parts: int) -> None:
    ops = bench.begin(Setup(batch=4, n=3))
    x, y = (ops.buffer(name, (4 * parts, pad(cols))) for name in ("other.x", "other.y"))
    bench.fill(x)[:, cols:] = np.nan
    rows.norm_into(ops, x, rows.RowNorm(bench.vector("norm", cols), cols, EPS, mean=True), y, parts)
    plain = rows.plain_rms_norm(ops, x, cols, EPS)
    bench.data[f"ones.{cols}"] = np.frombuffer(bench.plan.constants[f"ones.{cols}"], np.float32).reshape(1, -1)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][: 3 * parts, :cols], host[y.name][: 3 * parts, :cols], 1e-10)
    check(bench, gpu[plain.name][:3, :cols], host[plain.name][:3, :cols], 1e-6)
    assert np.isnan(gpu[y.name][3 * parts :]).all()


@in_every_variant
@pytest.mark.parametrize(
    "kind",
    ["gelu_quick", "gelu_erf", "relu", "sigmoid", "softplus", "softplus2", "hard_swish", "hard_sigmoid", XIELU],
    ids=str,
)
def test_activations(bench: Bench, kind: str | Xielu) -> None:
    ops = bench.begin(Setup(batch=3, n=2))
    x = ops.rows("x", 33)
    bench.fill(x)[:] *= 3
    y = ops.activate(x, ops.rows("y", 33), 33, kind, gated=False)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:2, :33], host[y.name][:2, :33], 1e-10)


@in_pairs(("pairs", [*Pairs]), ("head_dim", [16, 40]))
def test_rotation_by_turns_of_each_token(bench: Bench, pairs: Pairs, head_dim: int) -> None:
    """Queries and keys of three heads, in the rows of an unpaged cache."""
    ops = bench.begin(Setup(batch=5, n=4))
    kind = ops.input_dtype
    k, v = (ops.buffer(name, (5, 3 * head_dim), kind) for name in "kv")
    turns = ops.buffer("turns", (5, head_dim // 2), "u32", "state")
    bench.data["turns"] = bench.random.integers(0, 1 << 32, turns.shape).astype(np.uint32)
    x = ops.rows("qkv", 9 * head_dim)
    bench.fill(x)
    rope = Rope(head_dim, pairs, turns, per_token=True)
    ops.split_qkv(x, Cache(k, v, kind, UNPAGED), (3, 3, head_dim), rope, None, EPS)
    gpu, host = bench.run(ops)
    check(bench, gpu[x.name][:4, : 3 * head_dim], host[x.name][:4, : 3 * head_dim], 1e-10)
    for cache in (k, v):
        check(bench, gpu[cache.name][:4].astype(np.float32), host[cache.name][:4].astype(np.float32))
        assert np.isnan(gpu[cache.name][4:]).all()


@in_pairs(("n, head_dim", [(3, 16), (29, 12), (70, 4)]))
def test_relative_attention(bench: Bench, n: int, head_dim: int) -> None:
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, keys = ops.rows("x", 9 * head_dim), ops.buffer("keys", (12, pad(3 * head_dim)))
    bench.fill(x)[:, 9 * head_dim :] = np.nan
    bench.fill(keys)
    heads = attention.RelativeHeads(3, head_dim, 12, 5.0, 0.7, 1.9)
    y = attention.relative(ops, x, keys, bench.vector("factor", head_dim), heads)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : 3 * head_dim], host[y.name][:n, : 3 * head_dim], 1e-6)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("n, head_dim", [(1, 16), (3, 4), (64, 12), (70, 64), (131, 20)]))
def test_relative_attention_to_all(bench: Bench, n: int, head_dim: int) -> None:
    """The last tile of 64 keys is not full; neither keys nor distances beyond the batch are read."""
    cols = 3 * head_dim
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, keys = ops.rows("x", 3 * cols), ops.buffer("keys", (2 * n + 1, pad(cols)))
    bench.fill(x)[n:] = np.nan
    bench.data[x.name][:, 3 * cols :] = np.nan
    bench.fill(keys)[2 * n - 1 :] = np.nan
    heads = attention.HeadsOfBlocks(3, head_dim, head_dim**-0.5)
    y = attention.relative_to_all(ops, x, keys, bench.vector("biases", 2 * cols), heads)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols], 1e-6)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("n, block", [(3, 8), (8, 8), (29, 12), (150, 72)]))
def test_relative_attention_within_blocks(bench: Bench, n: int, block: int) -> None:
    """The last block is not full, or the only one; a block of 72 is more than a tile of keys."""
    head_dim, cols = 12, 36
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, keys = ops.rows("x", 3 * cols), ops.buffer("keys", (2 * block - 1, pad(cols)))
    bench.fill(x)[n:] = np.nan
    bench.fill(keys)
    heads = attention.HeadsOfBlocks(3, head_dim, 0.3, block)
    y = attention.relative_to_all(ops, x, keys, bench.vector("biases", 2 * cols), heads)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols], 1e-6)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("cols", [1, 37, 300]))
def test_softmax_of_rows(bench: Bench, cols: int) -> None:
    """Also of numbers whose exponentials overflow."""
    ops = bench.begin(Setup(batch=5, n=4))
    x = ops.rows("x", cols)
    bench.fill(x)[:, cols:] = np.nan
    bench.data[x.name][1] += 1000
    bench.data[x.name][4:] = np.nan
    y = rows.softmax(ops, x, cols)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:4, :cols], host[y.name][:4, :cols], 1e-6)
    np.testing.assert_allclose(host[y.name][:4, :cols].sum(axis=1), 1, rtol=2e-3)
    assert np.isnan(gpu[y.name][4:]).all()


@in_pairs(("heads, dim, side", [(1, 4, 1), (3, 12, 5), (2, 64, 14)]))
def test_heads_with_places_in_a_grid(bench: Bench, heads: int, dim: int, side: int) -> None:
    """Grids smaller than the tables' have zeros; attention then has the scores of the formula."""
    ops = bench.begin(Setup(batch=5, n=4))
    kind = rows.GridHeads(heads, dim, side)
    x, cells = ops.rows("x", 3 * heads * dim), rows.taps(ops, "cells", 1)
    bench.fill(x)[4:] = np.nan
    tables = tuple(ops.buffer(name, (2 * side - 1, pad(dim))) for name in ("columns", "lines"))
    for table in tables:
        bench.fill(table)[:, dim:] = np.nan
    given = np.full(cells.shape, 0xFFFFFFFF, np.uint32)
    sides = np.array([side, 1, max(1, side - 1), side])
    places = [bench.random.integers(0, sides) for _ in range(2)]
    given[:4, 0, 0], given[:4, 0, 1] = places[0] + (places[1] << 16), sides
    bench.data[cells.name] = given
    dtype = ops.input_dtype
    k, v = (ops.buffer(name, (5, heads * kind.wide), dtype) for name in "kv")
    cache = Cache(k, v, dtype, UNPAGED)
    y = rows.grid_heads(ops, x, (tables[0], tables[1]), cells, kind, cache)
    gpu, host = bench.run(ops)
    for name in (y.name, cache.k.name, cache.v.name):
        got, want = (made[name].reshape(5, -1)[:4, : heads * kind.wide] for made in (gpu, host))
        check(bench, got, want, 1e-6)
    q, keyed = (
        host[name].reshape(5, -1)[:4, : heads * kind.wide].reshape(4, heads, -1) for name in (y.name, cache.k.name)
    )
    qkv = bench.data[x.name][:4, : 3 * heads * dim].reshape(4, 3, heads, dim)
    found = (q[0] * keyed[3]).sum(axis=1) * dim**-0.5
    keys = sum(bench.data[t.name][int(p[0]) - int(p[3]) + side - 1, :dim] for t, p in zip(tables, places, strict=True))
    wanted = (qkv[0, 0] * (qkv[3, 1] * dim**-0.5 + keys)).sum(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())


@in_pairs(("cols, n", [(1, 3), (37, 40), (300, 17), (1100, 5)]))
def test_global_response_norm(bench: Bench, cols: int, n: int) -> None:
    """A column's length counts the rows of the batch only."""
    ops = bench.begin(Setup(batch=n + 2, n=n))
    x = ops.rows("x", cols)
    bench.fill(x)[:, cols:] = np.nan
    bench.data[x.name][n:] = np.nan
    terms = bench.vector("terms", 2 * cols)
    y = rows.response_norm(ops, x, terms, cols)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols])
    assert np.isnan(gpu[y.name][n:]).all()


@in_every_variant
def test_products_of_rows_seen_as_one(bench: Bench) -> None:
    """Two rows of a buffer are one row of the product's input, without a copy."""
    ops = bench.begin(Setup(batch=3, n=2))
    x = ops.buffer("other.x", (6, 32))
    bench.fill(x)
    joined = rows.merged(ops, x, 32, 2, None)
    y = ops.normed_stack("y", joined, Projection([bench.weight("w", Q.F16, 33, 64)]))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:2, :33], host[y.name][:2, :33])
    want = bench.data[x.name].reshape(3, 64)[:2]
    assert np.abs(host["other.x"].reshape(3, 64)[:2] - want).max() == 0
