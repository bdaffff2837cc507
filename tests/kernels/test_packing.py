"""The kernels that packed batches need, in variants: GPU against numpy.

Outputs start as NaN. NaN remains where a kernel does not write, and spreads where it reads too early.
"""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.cpu.attention import cache_views
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import alibi
from py_engine.plan.attention import HeadNorm
from py_engine.plan.cache import UNPAGED, Cache, make_conv_cache, page_group
from py_engine.plan.ops import AttentionOptions, Ops, Projection, pad
from py_engine.plan.packing import PackedPrompt
from py_engine.plan.pooling import last_rows, normalize, pool, spread_means
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shortconv import shortconv, shortconv_all
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, tolerance, with_matrices
from tests.support.kernels.variants import BOTH_ADAPTERS, in_pairs, in_turn

SEGMENTS = (3, 1, 31, 33, 2, 40)
# the first one's pages are also the beginning of others, which are in the caches to different ends; and prompts without
PROMPTS = (
    PackedPrompt([0] * 9, 70),
    PackedPrompt([0] * 20, 64, 64),
    PackedPrompt([0] * 33, 40, 32),
    PackedPrompt([0] * 31),
    PackedPrompt([0], 64, 64),
    PackedPrompt([0] * 3, 10),
)
WITH_GAPS = Setup(batch=98, n=97, pos=70, n_ctx=320, prompts=PROMPTS)


@in_pairs(("n, pos", [(1, 0), (3, 0), (31, 5), (33, 33), (64, 20)]))
def test_pooling(bench: Bench, n: int, pos: int) -> None:
    """Segments that begin in this batch or in one before it, and end in it or after it."""
    ops = bench.begin(Setup(batch=65, n=n, pos=pos, n_ctx=192, segments=SEGMENTS))
    x = ops.rows("x", 300)
    bench.fill(x)[n:] = np.nan
    for kind in ("mean", "cls", "last"):
        bench.fill(ops.buffer(kind, (65, 320), pool="state"))
        pool(ops, x, kind, kind)
    gpu, host = bench.run(ops)
    for kind in ("mean", "cls", "last"):
        check(bench, gpu[kind], host[kind], 1e-12)


@in_pairs(("cols", [1, 3, 31, 33, 255, 257]))
def test_normalize(bench: Bench, cols: int) -> None:
    """What follows the values in a row, and the rows that are not asked for, keep their contents."""
    ops = bench.begin(Setup(batch=4, n=3))
    y = ops.buffer("pooled", (4, pad(cols) + 32 * (cols % 2)), pool="state")
    values = bench.fill(y)
    values[:, cols:] = np.nan
    values[1, :cols] = 0
    normalize(ops, y, cols)
    gpu, host = bench.run(ops)
    check(bench, gpu["pooled"][:, :cols], host["pooled"][:, :cols], 1e-12)
    np.testing.assert_allclose(np.linalg.norm(gpu["pooled"][:3, :cols], axis=1), [1, 0, 1], atol=1e-5)
    assert np.array_equal(gpu["pooled"][3, :cols], values[3, :cols])
    assert np.isnan(gpu["pooled"][:, cols:]).all()


@in_pairs(("n, pos", [(3, 0), (33, 5)]))
def test_rows_of_positions(bench: Bench, n: int, pos: int) -> None:
    """Position embeddings count from a segment's beginning."""
    ops = bench.begin(Setup(batch=34, n=n, pos=pos, n_ctx=192, vocab=9, segments=SEGMENTS))
    x = ops.embed(bench.weight("table", Q.F16, 9, 33))
    ops.embed(bench.weight("positions", Q.F32, 64, 33), row="position")
    gpu, host = bench.run(ops)
    check(bench, gpu[x.name][:n, :33], host[x.name][:n, :33], 1e-10)


@in_pairs(("kv_type", ["f16", "f32"]))
def test_rotation(bench: Bench, kv_type: str) -> None:
    """Rotation counts from a segment's beginning; keys and values go to the packed sequence's positions."""
    n, pos = 33, 30
    ops = bench.begin(Setup(batch=n, n=n, pos=pos, n_ctx=192, segments=SEGMENTS))
    x = ops.rows("x", 64)
    bench.fill(x)
    cache = bench.cache(32, kv_type)
    rope = Rope(32, Pairs.HALVES, ops.buffer("freqs", (16,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(32, 10000.0)), np.uint32).copy()
    projection = Projection([bench.weight("w", Q.F16, 96, 64)], norm=bench.vector("norm", 64), eps=EPS)
    q = ops.qkv(x, projection, cache, (1, 1, 32), rope)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][:n, :32], host[q.name][:n, :32])
    rows = bench.cache_rows(range(pos, pos + n))
    for name in ("k.0", "v.0"):
        got, want = (data[name][rows].astype(np.float32) for data in (gpu, host))
        check(bench, got, want, max(tolerance(bench), 1e-6))


def causal(bench: Bench, ops: Ops, n: int, pos: int, heads: tuple[int, int, int], kv_type: str, window: int) -> None:
    """Compare causal attention in a packed batch. Positions of other segments hold large values, later ones NaN."""
    n_head, n_kv, dim = heads
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type, window)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        bench.data[b.name][bench.cache_rows(range(pos + n, 192), cache=cache)] = np.nan
        bench.data[b.name][bench.cache_rows(range(3 if pos > 3 else 0), cache=cache)] = 1e3
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window))
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None  # random bytes make large scores, whose exponentials err more
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim], limit)
    assert np.isnan(gpu[y.name][n:]).all()


@in_turn(
    "heads, n, pos, kv_type, window",
    [((3, 1, 32), 64, 0, "f16", 0), ((4, 2, 64), 33, 31, "f32", 0), ((2, 1, 32), 60, 20, "q8_0", 9)],
    BOTH_ADAPTERS,
)
def test_attention(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str, window: int) -> None:
    """A token sees its own segment, in this batch and in those before it."""
    bench = Bench(bench.page, replace(bench.device, software=True))
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, segments=SEGMENTS))
    causal(bench, ops, n, pos, heads, kv_type, window)


@pytest.mark.parametrize(
    ("heads", "n", "pos", "kv_type", "window"), [((4, 2, 32), 33, 31, "f16", 0), ((2, 1, 32), 60, 20, "q8_0", 9)]
)
def test_attention_with_matrices(
    plain_bench: Bench,
    heads: tuple[int, int, int],
    n: int,
    pos: int,
    kv_type: str,
    window: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = with_matrices(plain_bench, heads, monkeypatch)
    ops = bench.begin(Setup(batch=n + 1, n=n, pos=pos, n_ctx=192, segments=SEGMENTS))
    causal(bench, ops, n, pos, heads, kv_type, window)


def places(page: int) -> tuple[list[int], list[int]]:
    """Of WITH_GAPS: the position of every token, and the positions in the gaps after prompts."""
    positions, gaps, at = list[int](), list[int](), 0
    for prompt in PROMPTS:
        end = at + prompt.end - prompt.shared
        positions += range(end - len(prompt.ids), end)
        at += page * prompt.own_pages(page)
        gaps += range(end, at)
    return positions, gaps


def attention_with_gaps(bench: Bench, heads: tuple[int, int, int], kv_type: str, options: AttentionOptions) -> None:
    """Compare attention of prompts with cached beginnings. What follows each prompt in its last page is NaN."""
    n_head, n_kv, dim = heads
    ops = bench.begin(WITH_GAPS)
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = bench.cache(n_kv * dim, kv_type, options.window)
    end = sum(prompt.own_pages(ops.plan.page) for prompt in PROMPTS) * ops.plan.page
    _, gaps = places(ops.plan.page)
    for b in (cache.k, cache.v):
        rows = bench.cache_rows([*gaps, *range(end, ops.plan.n_ctx)], cache=cache)
        if kv_type == "q8_0":
            _, scales = cache_views(bench.data[b.name], ops.plan.page, n_kv * dim)
            scales[rows // ops.plan.page, rows % ops.plan.page] = np.nan
        else:
            bench.data[b.name][rows] = np.nan
    y = ops.attention(q, cache, heads, options)
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None
    check(bench, gpu[y.name][: bench.n, : n_head * dim], host[y.name][: bench.n, : n_head * dim], limit)
    assert np.isnan(gpu[y.name][bench.n :]).all()


OPTIONS = AttentionOptions(0.2)


@in_turn(
    "heads, kv_type, options",
    [
        ((3, 1, 32), "f16", OPTIONS),
        ((4, 2, 64), "f32", replace(OPTIONS, window=40)),
        ((2, 1, 32), "q8_0", replace(OPTIONS, window=9)),
        ((4, 2, 32), "f16", replace(OPTIONS, window=24, chunked=True)),
    ],
    BOTH_ADAPTERS,
)
def test_attention_with_gaps(
    bench: Bench, heads: tuple[int, int, int], kv_type: str, options: AttentionOptions
) -> None:
    bench = Bench(bench.page, replace(bench.device, software=True))
    attention_with_gaps(bench, heads, kv_type, options)


@pytest.mark.parametrize(
    ("heads", "kv_type", "window"), [((4, 2, 32), "f16", 0), ((2, 1, 32), "q8_0", 40), ((4, 2, 32), "f32", 9)]
)
def test_attention_with_gaps_and_matrices(
    plain_bench: Bench, heads: tuple[int, int, int], kv_type: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = with_matrices(plain_bench, heads, monkeypatch)
    attention_with_gaps(bench, heads, kv_type, replace(OPTIONS, window=window))


@in_pairs(("kv_type", ["f16", "f32", "q8_0"]), ("normed", [True, False]))
def test_keys_and_values_with_gaps(bench: Bench, kv_type: str, normed: bool) -> None:
    """They go to each prompt's own pages, rotated by positions in the prompt; other rows keep their contents."""
    ops = bench.begin(WITH_GAPS)
    page = ops.plan.page
    x = ops.rows("x", 64)
    bench.fill(x)
    cache = bench.cache(32, kv_type)
    rope = Rope(32, Pairs.HALVES, ops.buffer("freqs", (16,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(32, 10000.0)), np.uint32).copy()
    projection = Projection([bench.weight("w", Q.F16, 96, 64)], norm=bench.vector("norm", 64), eps=EPS)
    norms = HeadNorm(bench.vector("heads", 64)) if normed else None
    q = ops.qkv(x, projection, cache, (1, 1, 32), rope, norms)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][: bench.n, :32], host[q.name][: bench.n, :32])
    positions, _ = places(page)
    rows = bench.cache_rows(positions)
    others = np.setdiff1d(np.arange(bench.pages * page), rows)
    for name in ("k.0", "v.0"):
        if kv_type == "q8_0":
            found = [cache_views(data[name], page, 32) for data in (gpu, host, bench.data)]
            got, want, before = (values.reshape(-1, 32) * scales.reshape(-1, 1) for values, scales in found)
        else:
            got, want, before = (data[name].astype(np.float32) for data in (gpu, host, bench.data))
        check(bench, got[rows], want[rows], max(tolerance(bench), 1e-4 if kv_type == "q8_0" else 1e-6))
        np.testing.assert_array_equal(got[others], before[others])


@in_pairs(("row", ["token", "position"]))
def test_rows_of_tokens_with_gaps(bench: Bench, row: str) -> None:
    """Tokens follow each other without gaps; position embeddings count from a prompt's beginning."""
    ops = bench.begin(replace(WITH_GAPS, vocab=9))
    x = ops.embed(bench.weight("table", Q.F16, 9, 33))
    if row == "position":
        ops.embed(bench.weight("positions", Q.F32, 100, 33), row="position")
    gpu, host = bench.run(ops)
    n = bench.n
    check(bench, gpu[x.name][:n, :33], host[x.name][:n, :33], 1e-10)
    if row == "token":
        tokens = bench.data["tokens"][0, WITH_GAPS.pos : WITH_GAPS.pos + n]
        table_rows = bench.raw["table"].view(np.float16).reshape(9, 33).astype(np.float32)
        np.testing.assert_allclose(gpu[x.name][:n, :33], table_rows[tokens], rtol=1e-3)


@in_pairs(("cols", [36]))
def test_rows_of_last_tokens_with_gaps(bench: Bench, cols: int) -> None:
    ops = bench.begin(WITH_GAPS)
    x = ops.rows("x", cols)
    values = bench.fill(x)
    last_rows(ops, x, ops.buffer("last", (len(PROMPTS), values.shape[1]), pool="state"))
    gpu, _ = bench.run(ops)
    ends = np.cumsum([len(prompt.ids) for prompt in PROMPTS])
    np.testing.assert_array_equal(gpu["last"], values[ends - 1])


def both_ways(
    bench: Bench, heads: tuple[int, int, int], window: int, slopes: bool, segments: tuple[int, ...], reach: int = 0
) -> None:
    """Compare an encoder's attention, in a packed batch or not. Positions after the end are poisoned.

    `reach`: rows to either side that each row of a segment sees, beside a sink; 0: it sees all, and there are no sinks.
    """
    n_head, n_kv, dim = heads
    n = sum(segments) or 50
    ops = bench.begin(Setup(batch=n + 1, n=n, n_ctx=128, segments=segments))
    if reach:
        own, words = np.arange(n), bench.segments()[:n]
        words[:, 0], words[:, 1] = np.maximum(words[:, 0], own - reach), np.minimum(words[:, 1], own + reach + 1)
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = Cache(ops.buffer("k", (128, n_kv * dim)), ops.buffer("v", (128, n_kv * dim)), "f32", UNPAGED)
    for b in (cache.k, cache.v):
        bench.fill(b)[n:] = np.nan
    falling = alibi.table(ops, n_head, 2.0) if slopes else None
    if falling:
        bench.data[falling.name] = np.frombuffer(ops.plan.constants[falling.name] + bytes(4), np.uint32).copy()
    sinks = bench.vector("sinks", n_head) if reach else None
    options = AttentionOptions(0.5, window=window, causal=False, slopes=falling, sinks=sinks)
    y = ops.attention(q, cache, heads, options)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])


@in_turn("window, slopes", [(0, True), (10, False)], BOTH_ADAPTERS)
def test_attention_both_ways(bench: Bench, window: int, slopes: bool) -> None:
    bench = Bench(bench.page, replace(bench.device, software=True))
    both_ways(bench, (3, 1, 16), window, slopes, SEGMENTS)


@in_turn("reach", [5, 40], BOTH_ADAPTERS)
def test_attention_to_near_rows_with_sinks(bench: Bench, reach: int) -> None:
    """As MiMo-VL has it: each row of a picture sees others than the row before it."""
    bench = Bench(bench.page, replace(bench.device, software=True))
    both_ways(bench, (4, 2, 24), 0, False, (50, 40), reach)


@pytest.mark.parametrize("reach", [5, 40])
def test_attention_to_near_rows_with_matrices(plain_bench: Bench, reach: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = (4, 2, 32)
    both_ways(with_matrices(plain_bench, heads, monkeypatch), heads, 0, False, (50, 40), reach)


@pytest.mark.parametrize(("window", "segments"), [(10, SEGMENTS), (0, ())])
def test_attention_both_ways_with_matrices(
    plain_bench: Bench, window: int, segments: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = (2, 2, 32)
    both_ways(with_matrices(plain_bench, heads, monkeypatch), heads, window, False, segments)


@in_pairs(("size", [1, 3, 5]), ("segments", [(), SEGMENTS]))
def test_shortconv_both_ways(bench: Bench, size: int, segments: tuple[int, ...]) -> None:
    """A token sees as many to either side, in its own segment."""
    n = sum(segments) or 33
    ops = bench.begin(Setup(batch=n, n=n, n_ctx=192, segments=segments))
    x = ops.rows("x", 3 * 34)
    bench.fill(x)
    y = shortconv_all(ops, x, bench.vector("weights", 34 * size), 34)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :34], host[y.name][:n, :34], 1e-10)


@in_pairs(("n, pos", [(33, 0), (31, 34)]))
def test_shortconv(bench: Bench, n: int, pos: int) -> None:
    """A segment's first tokens have nothing before them, though the cache has."""
    ops = bench.begin(Setup(batch=n, n=n, pos=pos, n_ctx=192, page=8, segments=SEGMENTS))
    x = ops.rows("x", 3 * 34)
    bench.fill(x)
    cache = make_conv_cache(ops.plan, 0, 34, "f32", page_group(ops.plan, 4))
    bench.fill(cache.k)
    y = shortconv(ops, x, bench.vector("weights", 34 * 4), cache, 34)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :34], host[y.name][:n, :34], 1e-10)


@in_pairs(("segments", [SEGMENTS, (40,)]))
def test_means_in_the_rows_of_last_tokens(bench: Bench, segments: tuple[int, ...]) -> None:
    n = sum(segments)
    ops = bench.begin(Setup(batch=n + 3, n=n, n_ctx=192, segments=segments))
    x = ops.rows("x", 40)
    bench.fill(x)
    y = spread_means(ops, x)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n], host[y.name][:n], 1e-10)
    assert np.isnan(gpu[y.name][n:]).all()
