"""The index of sparse attention: its queries and keys, positions' scores, the highest of them, attention to these."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.plan import indexer, latent_attention, split_attention
from py_engine.plan.cache import Cache, page_group
from py_engine.plan.indexer import Indexed, IndexShape
from py_engine.plan.latent_attention import LatentShape
from py_engine.plan.ops import AttentionOptions, Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.variants import BOTH_ADAPTERS, SWIFTSHADER, in_pairs, in_turn

PLACES = ((62, 1), (63, 1), (64, 1), (0, 0), (190, 2), (3, 3), (33, 4))  # of a small batch: (position, sequence)


def indexed(bench: Bench, ops: Ops, shape: IndexShape) -> tuple[Indexed, Cache]:
    """What an index reads, random, and a cache whose index has a key for each position of a sequence."""
    joins, size = shape.pool > 1 and not shape.raw, shape.size
    q, rows = ops.rows("index_q", shape.heads * size), ops.rows("index_rows", (1 + joins) * size + shape.heads)
    bench.fill(q)
    bench.fill(rows)
    group = page_group(ops.plan, 0)
    cache = latent_attention.make_latent_cache(ops.plan, 0, LatentShape(1, 4, 4, 4, 4), "f16", group)
    cache = replace(cache, index=indexer.make_index_cache(ops.plan, 0, shape, group))
    assert cache.index
    bench.fill(cache.index)
    freqs = ops.buffer("freqs", (max(4, shape.rope // 2),), "u32", "state")
    bench.data["freqs"] = np.resize(np.frombuffer(table(frequencies(shape.rope or 8, 10000.0)), np.uint32), freqs.shape)
    bias = bench.vector("gate_bias", shape.pool * size) if joins else None
    return Indexed(
        q, rows, bench.vector("norm", 2 * size), Rope(shape.rope, Pairs.NEIGHBOURS, freqs, 1.25), bias
    ), cache


@in_pairs(("batch", [1, 5]), ("neox, first", [(False, 12), (True, 0), (True, 4)]))
def test_queries_and_keys(bench: Bench, batch: int, neox: bool, first: int) -> None:
    """A batch that goes on in another page. What is not rotated, and other rows of the cache, stay as they are."""
    shape = IndexShape(heads=3, size=20, top_k=4, rope=8, neox=neox, first=first, eps=0.3)
    ops = bench.begin(Setup(batch=batch + 1, n=batch, pos=63, n_ctx=192, seq=5))
    given, cache = indexed(bench, ops, shape)
    indexer.choose(ops, given, cache, shape)
    ops.ops[:] = ops.ops[:1]
    assert cache.index
    before = bench.data[cache.index.name].copy()
    gpu, host = bench.run(ops)
    check(bench, gpu[given.q.name][:batch, :60], host[given.q.name][:batch, :60], 1e-10)
    heads, before_them = (x[given.q.name][:batch, :60].reshape(batch, 3, 20) for x in (gpu, bench.data))
    for at in (slice(0, first), slice(first + 8, 20)):
        np.testing.assert_array_equal(heads[:, :, at], before_them[:, :, at])
    np.testing.assert_array_equal(gpu[given.q.name][batch:], bench.data[given.q.name][batch:])
    rows = bench.cache_rows(range(63, 63 + batch), 5)
    check(bench, gpu[cache.index.name][rows], host[cache.index.name][rows], 1e-10)
    others = np.setdiff1d(np.arange(len(before)), rows)
    np.testing.assert_array_equal(gpu[cache.index.name][others], before[others])


@in_turn(
    "shape, n, pos",
    [
        (IndexShape(5, 20, 4, 8, False), 1, 95),
        (IndexShape(3, 64, 4, 16, True), 7, 61),
        (IndexShape(64, 128, 4, 64, True), 6, 0),
        (IndexShape(1, 4, 4, 4, False), 9, 120),
        (IndexShape(9, 256, 4, 64, False), 2, 70),
    ],
    [*SWIFTSHADER, "lavapipe: f16"],
)
def test_scores(bench: Bench, shape: IndexShape, n: int, pos: int) -> None:
    """Only scores of positions that a token sees are written."""
    ops = bench.begin(Setup(batch=n if n == 1 else n + 2, n=n, pos=pos, n_ctx=192, seq=2))
    _check_scores(bench, ops, shape, [range(pos + m + 1) for m in range(n)])


@in_turn("shape", [IndexShape(5, 20, 4, 8, False), IndexShape(2, 64, 4, 32, True)], BOTH_ADAPTERS)
def test_scores_of_several_sequences(bench: Bench, shape: IndexShape) -> None:
    ops = bench.begin(Setup(batch=8, n=len(PLACES), n_ctx=192, places=PLACES))
    _check_scores(bench, ops, shape, [range(pos + 1) for pos, _ in PLACES])


@in_turn("shape", [IndexShape(3, 12, 2, 8, False)], SWIFTSHADER[:1])
def test_scores_of_packed_sequences(bench: Bench, shape: IndexShape) -> None:
    """Each sees its own positions only."""
    lengths = (35, 4, 9)
    ops = bench.begin(Setup(batch=48, n=48, n_ctx=192, segments=lengths))
    begins = np.repeat(np.cumsum((0, *lengths[:-1])), lengths)
    _check_scores(bench, ops, shape, [range(begin, m + 1) for m, begin in enumerate(begins)])


@in_turn(
    "pool, n, pos, places",
    [(4, 9, 57, ()), (2, 1, 63, ()), (3, 5, 0, ()), (4, 7, 0, PLACES), (3, 7, 0, PLACES)],
    [*SWIFTSHADER, "lavapipe: f16"],
)
def test_joined_keys(bench: Bench, pool: int, n: int, pos: int, places: tuple[tuple[int, int], ...]) -> None:
    """Keys of positions in two pages are joined where the last one is the batch's; other rows stay as they are."""
    shape = IndexShape(3, 20, 4 * pool, 0, False, pool=pool)
    ops = bench.begin(Setup(batch=8 if places else n + (n > 1), n=n, pos=pos, n_ctx=192, seq=2, places=places))
    given, cache = indexed(bench, ops, shape)
    indexer.choose(ops, given, cache, shape)
    assert cache.index
    before = bench.data[cache.index.name].copy()
    ops.ops[:] = [op for op in ops.ops if op.kernel in ("index_append", "index_join")]
    gpu, host = (found[cache.index.name] for found in bench.run(ops))
    appended = places or [(pos + m, 2) for m in range(n)]
    rows = np.array([bench.cache_rows([at], seq)[0] for at, seq in appended])
    last = np.array([(at + 1) % pool == 0 for at, _ in appended])
    assert last.any()
    check(bench, gpu[rows, :40], host[rows, :40], 1e-10)
    check(bench, gpu[rows[last], 40:], host[rows[last], 40:], 1e-10)
    np.testing.assert_array_equal(gpu[rows[~last], 40:], before[rows[~last], 40:])
    others = np.setdiff1d(np.arange(len(before)), rows)
    np.testing.assert_array_equal(gpu[others], before[others])


@in_turn(
    "pool, n, pos, neox, first",
    [(4, 9, 57, True, 0), (2, 1, 63, False, 4), (3, 5, 0, True, 12)],
    [*SWIFTSHADER, "lavapipe: f16"],
)
def test_keys_that_are_joined_before_their_norm(
    bench: Bench, pool: int, n: int, pos: int, neox: bool, first: int
) -> None:
    """Queries are normalised and rotated, keys stored as they are, joined ones rotated to the first one's position."""
    shape = IndexShape(3, 20, 4 * pool, 8, neox, first=first, eps=0.3, pool=pool, raw=True)
    ops = bench.begin(Setup(batch=n + (n > 1), n=n, pos=pos, n_ctx=192, seq=2))
    given, cache = indexed(bench, ops, shape)
    indexer.choose(ops, given, cache, shape)
    assert cache.index
    name, before = cache.index.name, bench.data[cache.index.name].copy()
    gpu, host = bench.run(ops)
    check(bench, gpu[given.q.name][:n, :60], host[given.q.name][:n, :60], 1e-10)
    np.testing.assert_array_equal(gpu[given.q.name][n:], bench.data[given.q.name][n:])
    rows, last = bench.cache_rows(range(pos, pos + n), 2), (np.arange(pos, pos + n) + 1) % pool == 0
    np.testing.assert_array_equal(gpu[name][rows, :20], bench.data[given.rows.name][:n, :20])
    check(bench, gpu[name][rows[last], 20:], host[name][rows[last], 20:], 1e-10)
    np.testing.assert_array_equal(gpu[name][rows[~last], 20:], before[rows[~last], 20:])
    others = np.setdiff1d(np.arange(len(before)), rows)
    np.testing.assert_array_equal(gpu[name][others], before[others])
    scores = next(op.bindings["scores"].name for op in ops.ops if op.kernel == "index_scores")
    seen = [(pos + m + 1) // pool for m in range(n)]
    for m, count in enumerate(seen):
        if count:
            check(bench, gpu[scores][m, :count], host[scores][m, :count], 1e-9)
        assert np.isnan(gpu[scores][m, count:]).all()
    mask = indexer.mask(ops).name
    np.testing.assert_array_equal(gpu[mask], host[mask])


@in_turn(
    "pool, n, pos, segments",
    [(4, 9, 57, ()), (2, 1, 63, ()), (3, 5, 0, ()), (4, 48, 0, (35, 4, 9))],
    [*SWIFTSHADER, "lavapipe: f16"],
)
def test_scores_of_joined_keys(bench: Bench, pool: int, n: int, pos: int, segments: tuple[int, ...]) -> None:
    """As many scores as a token sees joined keys, counted from its sequence's beginning."""
    ops = bench.begin(Setup(batch=n + (n > 1), n=n, pos=pos, n_ctx=192, seq=2, segments=segments))
    begins = np.repeat(np.cumsum((0, *segments[:-1])), segments) if segments else [0] * n
    seen = [range((pos + m + 1 - begin) // pool) for m, begin in enumerate(begins)]
    _check_scores(bench, ops, IndexShape(3, 20, 2 * pool, 0, False, pool=pool), seen)


def _check_scores(bench: Bench, ops: Ops, shape: IndexShape, seen: list[range]) -> None:
    given, cache = indexed(bench, ops, shape)
    indexer.choose(ops, given, cache, shape)
    ops.ops[:] = [op for op in ops.ops if op.kernel == "index_scores"]
    (op,) = ops.ops
    scores = op.bindings["scores"].name
    gpu, host = bench.run(ops)
    written = np.zeros(gpu[scores].shape, bool)
    for row, positions in zip(written, seen, strict=False):
        row[positions.start : positions.stop] = True
    check(bench, gpu[scores][written], host[scores][written], 1e-9)
    assert np.isnan(gpu[scores][~written]).all()


CHOICES = [(1, 1), (7, 3), (8, 2), (33, 40), (24, 1000), (96, 1)]  # top_k; different values of scores


@in_turn("top_k, values", CHOICES, [*SWIFTSHADER, "lavapipe: f16 subgroups", "lavapipe: f16"])
def test_the_highest(bench: Bench, top_k: int, values: int) -> None:
    """Of few different scores, zeros of both signs among them, the choice between equal ones is numpy's."""
    n, pos = 40, 70
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, seq=2))
    chosen = _choose(bench, ops, top_k, values)
    for m, row in enumerate(chosen[:n]):
        assert row[: pos + m + 1].sum() == min(top_k, pos + m + 1)
        words = -(-(pos + m + 1) // 32)
        assert not row[pos + m + 1 : 32 * words].any()
        assert row[32 * words :].all()  # poison
    assert chosen[n:].all()


@in_turn("top_k, values, pool", [(2048, 1 << 30, 1), (700, 3, 1), (1, 40, 1), (512, 50, 4)], BOTH_ADAPTERS)
def test_the_highest_of_a_long_context(bench: Bench, top_k: int, values: int, pool: int) -> None:
    """More words of the mask than a workgroup has threads."""
    ops = bench.begin(Setup(batch=3, n=2, pos=9000, n_ctx=9216, seq=1))
    for m, row in enumerate(_choose(bench, ops, top_k, values, pool)[:2]):
        assert row[: 9001 + m].sum() == top_k * pool + (9001 + m) % pool


@in_turn("top_k, values", [(5, 2), (70, 1), (16, 400)], BOTH_ADAPTERS)
def test_the_highest_of_several_sequences(bench: Bench, top_k: int, values: int) -> None:
    ops = bench.begin(Setup(batch=8, n=len(PLACES), n_ctx=192, places=PLACES))
    chosen = _choose(bench, ops, top_k, values)
    assert [int(row[: pos + 1].sum()) for row, (pos, _) in zip(chosen, PLACES, strict=False)] == [
        min(top_k, pos + 1) for pos, _ in PLACES
    ]


@in_turn("top_k, values", [(3, 2), (8, 100)], SWIFTSHADER)
def test_the_highest_of_packed_sequences(bench: Bench, top_k: int, values: int) -> None:
    """A word of the mask may begin with another sequence's positions, which have no bits."""
    lengths = (35, 4, 9)
    ops = bench.begin(Setup(batch=48, n=48, n_ctx=192, segments=lengths))
    chosen = _choose(bench, ops, top_k, values)
    begins = np.repeat(np.cumsum((0, *lengths[:-1])), lengths)
    for m, begin in enumerate(begins):
        assert not chosen[m, begin // 32 * 32 : begin].any()
        assert chosen[m, begin : m + 1].sum() == min(top_k, m + 1 - begin)


@in_turn(
    "top_k, values, pool, segments",
    [(3, 2, 4, ()), (7, 100, 2, ()), (40, 3, 2, ()), (1, 1, 3, ()), (2, 2, 4, (35, 4, 9)), (3, 50, 3, (2, 37, 9))],
    [*SWIFTSHADER, "lavapipe: f16"],
)
def test_the_highest_of_joined_keys(
    bench: Bench, top_k: int, values: int, pool: int, segments: tuple[int, ...]
) -> None:
    """All positions of a key are chosen, and the newest ones, which have none yet."""
    n, pos = 48, 0 if segments else 70
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, seq=2, segments=segments))
    chosen = _choose(bench, ops, top_k, values, pool)
    begins = np.repeat(np.cumsum((0, *segments[:-1])), segments) if segments else [0] * n
    for m, begin in enumerate(begins):
        count = pos + m + 1 - begin
        assert chosen[m, begin : pos + m + 1].sum() == pool * min(top_k, count // pool) + count % pool
        assert chosen[m, pos + m + 1 - count % pool : pos + m + 1].all()


def _choose(bench: Bench, ops: Ops, top_k: int, values: int, pool: int = 1) -> np.ndarray:
    """The mask's bits after a choice among random scores: (batch, positions)."""
    scores = ops.shaped("index_scores", (ops.batch, 32 * indexer.mask(ops).shape[1]))
    given = bench.random.integers(-values // 2, values // 2 + 1, scores.shape).astype(np.float32)
    given[:, ::3] *= np.float32(-1)  # -0.0
    bench.data[scores.name] = given
    indexer.choose_highest(ops, scores, IndexShape(1, 4, top_k * pool, 4, False, pool=pool), 0)
    gpu, host = bench.run(ops)
    name = indexer.mask(ops).name
    np.testing.assert_array_equal(gpu[name], host[name])
    return np.unpackbits(gpu[name].view(np.uint8), axis=1, bitorder="little")


@in_turn("n, top_k", [(1, 5), (11, 9)], BOTH_ADAPTERS)
def test_scores_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch, n: int, top_k: int) -> None:
    """Of large contexts, the scores of a few tokens at a time are computed and read."""
    monkeypatch.setattr(indexer, "SCORE_BYTES", 4 * 4 * 192)
    shape = IndexShape(7, 64, top_k, 16, True)
    ops = bench.begin(Setup(batch=n if n == 1 else 14, n=n, pos=60, n_ctx=192, seq=2))
    given, cache = indexed(bench, ops, shape)
    name = indexer.choose(ops, given, cache, shape).name
    assert len(ops.ops) == 1 + 2 * (1 if n == 1 else 4)
    gpu, host = bench.run(ops)
    np.testing.assert_array_equal(gpu[name], host[name])


def masked(bench: Bench, ops: Ops, odds: float, places: list[tuple[int, int]]) -> Buffer:
    """A random mask in which each token has its own position. Its first tile of 64 is empty for every other token."""
    mask = indexer.mask(ops)
    bits = bench.random.random((ops.batch, 32 * mask.shape[1])) < odds
    bits[::2, :64] = False
    for m, (pos, _) in enumerate(places):
        bits[m, pos] = True
    bench.data[mask.name] = np.packbits(bits, axis=1, bitorder="little").view(np.uint32)
    return mask


@in_turn(
    "heads, n, pos, odds",
    [((6, 2, 20), 1, 150, 0.1), ((3, 1, 44), 1, 3, 0.5), ((8, 1, 576), 1, 100, 0.05), ((4, 4, 64), 1, 191, 0.02)],
    ["lavapipe: f16 subgroups", *SWIFTSHADER, "lavapipe: f16"],
)
def test_attention_of_one_token(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, odds: float) -> None:
    ops = bench.begin(Setup(batch=1, n=n, pos=pos, n_ctx=192, seq=3))
    _check_attention(bench, ops, heads, odds, [(pos, 3)])


@in_turn("heads, odds", [((6, 2, 20), 0.1), ((3, 1, 516), 0.04)], BOTH_ADAPTERS)
def test_attention_of_several_sequences(bench: Bench, heads: tuple[int, int, int], odds: float) -> None:
    ops = bench.begin(Setup(batch=8, n=len(PLACES), n_ctx=192, places=PLACES))
    _check_attention(bench, ops, heads, odds, list(PLACES))


@in_turn(
    "heads, n, pos, odds",
    [((6, 2, 20), 37, 70, 0.1), ((3, 1, 44), 70, 0, 0.05), ((8, 1, 128), 5, 120, 0.3), ((2, 1, 516), 9, 100, 0.1)],
    ["lavapipe: f16 subgroups", *SWIFTSHADER, "lavapipe: f16"],
)
def test_attention_of_a_prompt(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, odds: float) -> None:
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, seq=3))
    _check_attention(bench, ops, heads, odds, [(pos + m, 3) for m in range(n)])


@in_turn("n, pos", [(1, 150), (9, 100)], BOTH_ADAPTERS)
def test_attention_over_a_quantised_cache(bench: Bench, n: int, pos: int) -> None:
    ops = bench.begin(Setup(batch=n, n=n, pos=pos, n_ctx=192, seq=3))
    _check_attention(bench, ops, (6, 2, 32), 0.1, [(pos + m, 3) for m in range(n)], kind="q8_0")


@in_turn("heads, n, pos", [((4, 1, 24), 17, 150), ((3, 3, 16), 5, 100)], BOTH_ADAPTERS)
def test_split_attention(bench: Bench, heads: tuple[int, int, int], n: int, pos: int) -> None:
    """A token may have no position in a split."""
    bench = Bench(bench.page, replace(bench.device, software=False))
    ops = bench.begin(Setup(batch=64, n=n, pos=pos, n_ctx=192, seq=3))
    _check_attention(bench, ops, heads, 0.04, [(pos + m, 3) for m in range(n)], split=True)


def _check_attention(
    bench: Bench, ops: Ops, heads: tuple[int, int, int], odds: float, places: list[tuple[int, int]],
    split: bool = False, kind: str = "",
) -> None:  # fmt: skip
    q = ops.rows("q", heads[0] * heads[2])
    bench.fill(q)
    cache = bench.cache(heads[1] * heads[2], kind or ("f16" if bench.device.f16 else "f32"))
    if cache.staged:
        for b in cache.staged:
            bench.fill(b)
        ops.quantize_cache(cache, heads[1] * heads[2])
    options = AttentionOptions(heads[2] ** -0.5, index_mask=masked(bench, ops, odds, places))
    y = ops.attention(q, cache, heads, options)
    if split:
        ops.ops[:] = split_attention.split(ops.plan, ops.ops, 64, bench.device)
        assert [op.kernel for op in ops.ops] == ["attention", "attention_merge"]
    assert any(op.params.get("INDEXED") for op in ops.ops)
    gpu, host = bench.run(ops)
    n, cols = len(places), heads[0] * heads[2]
    limit = 1e-5 if cache.staged else None  # a value between two bytes may round either way
    check(bench, gpu[y.name][:n, :cols].astype(np.float32), host[y.name][:n, :cols].astype(np.float32), limit)
    assert np.isnan(gpu[y.name][n:]).all()
