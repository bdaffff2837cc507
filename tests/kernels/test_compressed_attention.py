"""Attention to compressed keys: queries and keys of a window, compressed keys, attention to both."""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import compressed_attention, indexer
from py_engine.plan.cache import Cache
from py_engine.plan.compressed_attention import Appended, Attended, CompressedShape, Compressor
from py_engine.plan.indexer import IndexShape
from py_engine.plan.latent_attention import Columns
from py_engine.plan.ops import Ops
from py_engine.plan.pages import TABLES, table_offset
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import BOTH_ADAPTERS, SWIFTSHADER, in_turn

PLACES = ((62, 1), (63, 1), (64, 1), (0, 0), (191, 2), (3, 3), (33, 4))  # of a small batch: (position, sequence)
SIX = [*SWIFTSHADER, "lavapipe: f16"]


def begin(bench: Bench, shape: CompressedShape, kind: str, setup: Setup) -> tuple[Ops, Cache, Rope]:
    """A list, and caches with contents: random, and NaN in pages of no sequence."""
    ops = bench.begin(setup)
    cache = compressed_attention.make_compressed_cache(ops.plan, 0, shape, kind)
    assert cache.compressed
    for buffer, group in ((cache.k, cache.paging["TABLE"]), (cache.compressed.inputs, cache.paging["TABLE"])):
        fill(bench, buffer, group)
    fill(bench, cache.compressed.keys, cache.compressed.table)
    freqs = ops.buffer("freqs", (max(4, shape.rope // 2),), "u32", "state")
    bench.data["freqs"] = np.resize(np.frombuffer(table(frequencies(shape.rope, 10000.0)), np.uint32), freqs.shape)
    return ops, cache, Rope(shape.rope, Pairs.NEIGHBOURS, freqs, 1.25)


def fill(bench: Bench, buffer: Buffer, group: int) -> None:
    values = bench.fill(buffer).reshape(bench.pages, -1)
    values[:] = bench.random.standard_normal(values.shape).astype(values.dtype)
    values[bench.free_pages(group)] = np.nan


def terms_of(bench: Bench, type: Q, shape: CompressedShape) -> Weight:
    if type in (Q.F32, Q.F16):
        return bench.weight("terms", type, shape.ratio, shape.cols)
    return matrix(bench, type, "terms", shape.ratio, shape.cols, tame=True)


def blocks(bench: Bench, cache: Cache, shape: CompressedShape, last: list[tuple[int, int]]) -> np.ndarray:
    """The places of the values of the keys whose last positions, of sequences, are these: (keys, size)."""
    found, page = cache.compressed, bench.plan.page
    assert found
    tables = bench.data["state"][TABLES // 4 + found.table :]
    at = [
        int(tables[table_offset(bench.plan.n_ctx, page, 0, seq) + pos // page]) * page * found.keys.shape[1]
        + pos % page // found.step * shape.size
        for pos, seq in last
    ]
    return np.array(at, np.int64).reshape(-1, 1) + np.arange(shape.size)


@in_turn(
    "shape, kind, setup",
    [
        (CompressedShape(3, 20, 8, 9, 4, 9), "f32", Setup(batch=6, n=5, pos=63, n_ctx=192, seq=5)),
        (CompressedShape(5, 36, 36, 9, 128, 128), "f16", Setup(batch=1, n=1, pos=31, n_ctx=192, seq=2)),
        (CompressedShape(1, 64, 4, 40, 4, 128), "f16", Setup(batch=8, n=7, n_ctx=192, places=PLACES)),
        (CompressedShape(2, 300, 16, 40, 4, 40), "f32", Setup(batch=48, n=48, n_ctx=192, segments=(35, 4, 9))),
        (CompressedShape(4, 12, 8, 5, 0, 9), "f32", Setup(batch=3, n=2, pos=95, n_ctx=192, seq=1)),
    ],
    SIX,
)
def test_queries_and_keys(bench: Bench, shape: CompressedShape, kind: str, setup: Setup) -> None:
    """What is not of the batch stays as it is, in the queries and in both caches."""
    whole = CompressedShape(shape.heads, shape.size, shape.rope, shape.window, shape.ratio or 4, shape.span)
    ops, cache, rope = begin(bench, whole, kind, setup)
    if not shape.ratio:
        cache = Cache(cache.k, cache.v, cache.kind, cache.paging)
    q = ops.rows("q", shape.heads * shape.size)
    x = ops.rows("x", 3 + shape.size + 2 * shape.cols)
    bench.fill(q)
    bench.fill(x)
    compressed_attention.append(ops, Appended(q, x, 3, bench.vector("norm", shape.size), rope), cache, shape, 0.3)
    before = {name: values.copy() for name, values in bench.data.items()}
    gpu, host = bench.run(ops)
    n, cols = len(setup.places) or setup.n, shape.heads * shape.size
    check(bench, gpu[q.name][:n, :cols], host[q.name][:n, :cols], 1e-10)
    np.testing.assert_array_equal(gpu[q.name][n:], before[q.name][n:])
    np.testing.assert_array_equal(gpu[q.name][:, cols:], before[q.name][:, cols:])
    places = setup.places or [(setup.pos + m, setup.seq) for m in range(n)]
    rows = np.array([bench.cache_rows([pos], seq, cache)[0] for pos, seq in places])
    others = np.setdiff1d(np.arange(len(before[cache.k.name])), rows)
    check(bench, gpu[cache.k.name][rows], host[cache.k.name][rows], 1e-6 if kind == "f16" else 1e-10)
    np.testing.assert_array_equal(gpu[cache.k.name][others], before[cache.k.name][others])
    if cache.compressed:
        name = cache.compressed.inputs.name
        np.testing.assert_array_equal(
            gpu[name][rows], before[x.name][:n, 3 + shape.size : 3 + shape.size + 2 * shape.cols]
        )
        np.testing.assert_array_equal(gpu[name][others], before[name][others])


@in_turn(
    "shape, kind, setup, type",
    [
        (CompressedShape(1, 20, 8, 9, 4, 9), "f32", Setup(batch=10, n=9, pos=57, n_ctx=192, seq=2), Q.F32),
        (CompressedShape(1, 36, 36, 9, 4, 9), "f16", Setup(batch=1, n=1, pos=63, n_ctx=192, seq=1), Q.F16),
        (CompressedShape(1, 300, 16, 9, 4, 9), "f32", Setup(batch=7, n=6, n_ctx=192, seq=3), Q.F32),
        (CompressedShape(1, 64, 4, 9, 128, 128), "f16", Setup(batch=8, n=7, pos=124, n_ctx=192, seq=4), Q.Q8_0),
        (CompressedShape(1, 40, 12, 9, 4, 9), "f32", Setup(batch=8, n=7, n_ctx=192, places=PLACES), Q.F32),
        (CompressedShape(1, 128, 64, 9, 4, 9), "f16", Setup(batch=48, n=48, n_ctx=192, segments=(35, 4, 9)), Q.Q4_K),
        (CompressedShape(1, 24, 8, 9, 128, 128), "f32", Setup(batch=150, n=150, n_ctx=192, segments=(21, 129)), Q.F16),
        (CompressedShape(1, 96, 8, 9, 4, 9), "f32", Setup(batch=3, n=3, pos=64, n_ctx=192, page=64, seq=1), Q.Q8_0),
    ],
    SIX,
)
def test_compressed_keys(bench: Bench, shape: CompressedShape, kind: str, setup: Setup, type: Q) -> None:
    """Keys whose last position is the batch's, of positions in two pages, the first ones of a sequence among them."""
    ops, cache, rope = begin(bench, shape, kind, setup)
    terms, norm = terms_of(bench, type, shape), bench.vector("norm", shape.size)
    compressed_attention.compress(ops, Compressor(terms, norm, 0.3, rope), cache, shape)
    assert cache.compressed
    name = cache.compressed.keys.name
    before = bench.data[name].reshape(-1).copy()
    gpu, host = (found[name].reshape(-1) for found in bench.run(ops))
    begins = np.repeat(np.cumsum((0, *setup.segments[:-1])), setup.segments) if setup.segments else [0] * setup.batch
    places = setup.places or [(setup.pos + m, setup.seq) for m in range(setup.n)]
    last = [place for place, begin in zip(places, begins, strict=False) if (place[0] + 1 - begin) % shape.ratio == 0]
    written = blocks(bench, cache, shape, last).reshape(-1)
    assert len(np.unique(written)) == len(last) * shape.size
    if last:
        check(bench, gpu[written], host[written], 1e-6 if kind == "f16" else 1e-10)
    others = np.setdiff1d(np.arange(len(before)), written)
    np.testing.assert_array_equal(gpu[others], before[others])
    assert last or setup.pos == 64


@in_turn(
    "shape, kind, setup, indexed",
    [
        (CompressedShape(3, 20, 8, 9, 4, 9), "f32", Setup(batch=6, n=5, pos=63, n_ctx=192, seq=5), False),
        (CompressedShape(5, 36, 36, 33, 128, 128), "f16", Setup(batch=1, n=1, pos=130, n_ctx=192, seq=2), False),
        (CompressedShape(2, 512, 64, 128, 4, 128), "f16", Setup(batch=4, n=3, pos=186, n_ctx=192, seq=1), True),
        (CompressedShape(3, 300, 16, 1, 4, 9), "f32", Setup(batch=5, n=5, n_ctx=192, seq=3), True),
        (CompressedShape(4, 64, 16, 9, 0, 9), "f32", Setup(batch=8, n=7, n_ctx=192, places=PLACES), False),
        (CompressedShape(3, 40, 12, 70, 4, 70), "f16", Setup(batch=8, n=7, n_ctx=192, places=PLACES), True),
        (CompressedShape(2, 64, 64, 9, 4, 9), "f32", Setup(batch=48, n=48, n_ctx=192, segments=(35, 4, 9)), True),
        (CompressedShape(1, 24, 8, 9, 128, 128), "f32", Setup(batch=150, n=150, n_ctx=192, segments=(21, 129)), False),
    ],
    SIX,
)
def test_attention(bench: Bench, shape: CompressedShape, kind: str, setup: Setup, indexed: bool) -> None:
    """Only keys that a token sees count, those of a single position too; other rows of the result stay poison."""
    whole = CompressedShape(shape.heads, shape.size, shape.rope, shape.window, shape.ratio or 4, shape.span)
    ops, cache, rope = begin(bench, whole, kind, setup)
    if not shape.ratio:
        cache = Cache(cache.k, cache.v, cache.kind, cache.paging)
    q = ops.rows("q", shape.heads * shape.size)
    bench.fill(q)
    mask = indexer.mask(ops) if indexed else None
    if mask:
        bench.data[mask.name] = bench.random.integers(0, 1 << 32, mask.shape, dtype=np.uint32)
    y = compressed_attention.attend(ops, q, cache, shape, Attended(bench.vector("sinks", shape.heads), rope, mask), 0.2)
    gpu, host = (found[y.name] for found in bench.run(ops))
    n, cols = len(setup.places) or setup.n, shape.heads * shape.size
    check(bench, gpu[:n, :cols], host[:n, :cols], 1e-10)
    assert np.isnan(gpu[n:]).all()
    assert np.isnan(gpu[:, cols:]).all()


@in_turn("ratio", [0, 4], BOTH_ADAPTERS)
def test_large_scores(bench: Bench, ratio: int) -> None:
    """Scores whose exponentials would be infinite, or all zero, if the largest score were not subtracted."""
    shape = CompressedShape(2, 20, 8, 9, 4, 9)
    for sink in (-200.0, 200.0):
        ops, cache, rope = begin(bench, shape, "f32", Setup(batch=3, n=3, pos=63, n_ctx=192, seq=5))
        if not ratio:
            cache = Cache(cache.k, cache.v, cache.kind, cache.paging)
        q = ops.rows("q", 40)
        bench.fill(q)[:] *= 40
        sinks = bench.vector("sinks", 2)
        bench.raw["sinks"] = np.full(2, sink, np.float32).view(np.uint8)
        y = compressed_attention.attend(
            ops, q, cache, CompressedShape(2, 20, 8, 9, ratio, 9), Attended(sinks, rope), 1.0
        )
        gpu, host = (found[y.name][:3, :40] for found in bench.run(ops))
        check(bench, gpu, host, 1e-9)


INDEX = IndexShape(3, 20, 12, 8, False, first=12, pool=4)
WIDE = IndexShape(5, 128, 4, 64, False, first=64, pool=4)


@in_turn(
    "shape, setup",
    [
        (CompressedShape(1, 24, 8, 9, 4, 9, INDEX), Setup(batch=10, n=9, pos=57, n_ctx=192, seq=2)),
        (CompressedShape(1, 24, 8, 9, 4, 9, INDEX), Setup(batch=1, n=1, pos=63, n_ctx=192, seq=1)),
        (CompressedShape(1, 24, 64, 9, 4, 9, WIDE), Setup(batch=8, n=7, n_ctx=192, places=PLACES)),
        (CompressedShape(1, 24, 8, 9, 4, 9, INDEX), Setup(batch=48, n=48, n_ctx=192, segments=(35, 4, 9))),
    ],
    SIX,
)
def test_index(bench: Bench, shape: CompressedShape, setup: Setup) -> None:
    """Queries are rotated and not normalised, keys compressed, and the highest scores chosen as numpy does."""
    ops, cache, rope = begin(bench, shape, "f16", setup)
    own, n = shape.of_index, len(setup.places) or setup.n
    assert cache.compressed
    found = cache.compressed.index
    assert found
    for buffer, group in ((found.inputs, cache.paging["TABLE"]), (found.keys, found.table)):
        fill(bench, buffer, group)
    q, x = ops.rows("q", own.heads * own.size), ops.rows("x", 3 + 2 * own.cols + own.heads)
    bench.fill(q)
    bench.fill(x)
    compressed_attention.append_to_index(ops, Appended(q, x, 3, None, rope), cache, own)
    terms = bench.weight("terms", Q.F32, own.ratio, own.cols)
    given = Compressor(terms, bench.vector("norm", own.size), 0.3, rope)
    mask = compressed_attention.choose(ops, given, q, Columns(x, 3 + 2 * own.cols), cache, own)
    before = bench.data[q.name].copy()
    gpu, host = bench.run(ops)
    heads = (n, own.heads, own.size)
    check(bench, gpu[q.name][:n, : own.heads * own.size], host[q.name][:n, : own.heads * own.size], 1e-10)
    plain = slice(0, own.size - own.rope)
    after, given_to = (values[:n, : own.heads * own.size].reshape(heads) for values in (gpu[q.name], before))
    np.testing.assert_array_equal(after[:, :, plain], given_to[:, :, plain])
    np.testing.assert_array_equal(gpu[found.inputs.name], host[found.inputs.name])
    touched = np.isfinite(host[found.keys.name])
    check(bench, gpu[found.keys.name][touched], host[found.keys.name][touched], 1e-10)
    np.testing.assert_array_equal(gpu[mask.name], host[mask.name])
    scores = next(op.bindings["scores"].name for op in ops.ops if op.kernel == "index_scores")
    written = np.isfinite(host[scores])
    assert written.any()
    check(bench, gpu[scores][written], host[scores][written], 1e-9)
    assert np.isnan(gpu[scores][~written]).all()
