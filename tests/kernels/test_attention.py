"""QKV projections, caches and attention in variants of the kernels: GPU against numpy.

Outputs start as NaN. NaN remains where a kernel does not write, and spreads where it reads too early.
"""

from dataclasses import replace

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import alibi
from py_engine.plan.attention import Temperature, scale_queries
from py_engine.plan.cache import UNPAGED, Cache, make_conv_cache, page_group
from py_engine.plan.encoder_decoder import part_of
from py_engine.plan.ops import AttentionOptions, HeadNorm, Projection
from py_engine.plan.pages import TABLES, shift_index
from py_engine.plan.relative_bias import relative_bias
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.plan.shortconv import shortconv
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check, tolerance
from tests.support.kernels.variants import BOTH_ADAPTERS, in_pairs, in_turn


@in_pairs(
    ("heads, rope_dim, kv_type", [((1, 1, 4), 4, "f32"), ((3, 1, 32), 16, "f16"), ((4, 2, 64), 64, "f16")]),
    ("neox", [False, True]),
    ("batch", [1, 3]),
)
def test_qkv(bench: Bench, heads: tuple[int, int, int], rope_dim: int, neox: bool, kv_type: str, batch: int) -> None:
    n_head, n_kv, dim = heads
    cols = 96
    ops = bench.begin(Setup(batch=batch, n=min(batch, 2), pos=7))
    x = ops.rows("x", cols)
    bench.fill(x)
    cache = bench.cache(n_kv * dim, kv_type)
    rope = Rope(rope_dim, Pairs(neox), ops.buffer("freqs", (rope_dim // 2,), "u32", "state"), 1.25)
    freqs = np.frombuffer(table(frequencies(rope_dim, 10000.0)), np.uint32)
    bench.data["freqs"] = freqs.copy()
    rows = (n_head + 2 * n_kv) * dim
    q = ops.qkv(
        x,
        Projection([bench.weight("w", Q.Q8_0, rows, cols)], bench.vector("b", rows), bench.vector("norm", cols), EPS),
        cache,
        heads,
        rope,
    )
    gpu, host = bench.run(ops)
    n = min(batch, 2)
    check(bench, gpu[q.name][:n, : n_head * dim], host[q.name][:n, : n_head * dim])
    for name in ("k.0", "v.0"):  # f16 rounds differently when the sum differs in its last bit
        got, want = (np.nan_to_num(data[name].astype(np.float32)) for data in (gpu, host))
        check(bench, got, want, max(tolerance(bench), 1e-8))


@in_pairs(
    (
        "heads, kind",
        [
            ((3, 1, 32), "head"),
            ((4, 2, 96), "wide"),
            ((12, 12, 96), "wide"),  # a workgroup has more quads of rows than threads
            ((3, 1, 16), "own"),
            ((2, 2, 32), "values"),
            ((3, 1, 32), "after"),
        ],
    ),
    ("batch", [1, 3]),
)
def test_normalised_queries_and_keys(bench: Bench, heads: tuple[int, int, int], kind: str, batch: int) -> None:
    """A norm per head with half a head rotated, one norm over all heads without rotation, a layer norm per head, a norm
    per head after the rotation.
    """
    wide, own = kind == "wide", kind == "own"
    n_head, n_kv, dim = heads
    ops = bench.begin(Setup(batch=batch, n=batch, pos=7))
    x = ops.rows("x", 64)
    bench.fill(x)
    cache = bench.cache(n_kv * dim, "f32")
    rope = Rope(0 if wide else dim // 2, Pairs(not wide), ops.buffer("freqs", (dim // 4,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(dim // 2, 10000.0)), np.uint32).copy()
    width = 2 * dim if kind in ("head", "values", "after") else (n_head + n_kv) * dim
    bias = bench.vector("biases", width) if own else None
    weights = HeadNorm(
        bench.vector("norms", width), bias, across_heads=wide, layer_norm=own, norm_values=kind == "values",
        after_rotation=kind == "after",
    )  # fmt: skip
    rows = (n_head + 2 * n_kv) * dim
    projection = Projection([bench.weight("w", Q.F16, rows, 64)], norm=bench.vector("norm", 64), eps=EPS)
    q = ops.qkv(x, projection, cache, heads, rope, weights)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][:, : n_head * dim], host[q.name][:, : n_head * dim])
    for name in ("k.0", "v.0"):
        check(bench, np.nan_to_num(gpu[name]), np.nan_to_num(host[name]))


@in_pairs(("kv_type", ["f16", "f32", "q8_0"]), ("page", [32, 64]), ("batch", [1, 9]))
def test_scattered_pages(bench: Bench, kv_type: str, page: int, batch: int) -> None:
    """Attention through a window in a cache whose pages are in any order. Pages before the window are freed: their
    entries in the block table lead to finite poison. Decode's tiles cross into
    other pages, and are longer than the shorter pages.
    """
    n_head, n_kv, dim, pos, window = 4, 2, 32, 60, 33
    ops = bench.begin(Setup(batch=batch, n=batch, pos=pos, n_ctx=192, page=page))
    cache = bench.cache(n_kv * dim, kv_type, window)
    q = ops.rows("q", n_head * dim)
    for b in (q, *(cache.staged or ())):
        bench.fill(b)
    before = bench.cache_rows(range(max(0, pos - window + 1) // page * page), cache=cache)
    for b in (cache.k, cache.v) if kv_type != "q8_0" else ():
        bench.data[b.name][before] = 1e4
    if kv_type == "q8_0":
        ops.quantize_cache(cache, n_kv * dim)
    y = ops.attention(q, cache, (n_head, n_kv, dim), AttentionOptions(0.1, window=window))
    gpu, host = bench.run(ops)
    limit = 1e-5 if kv_type == "q8_0" else None  # a value between two bytes may round either way
    check(bench, gpu[y.name][:batch, : n_head * dim], host[y.name][:batch, : n_head * dim], limit)
    if kv_type == "q8_0":
        assert (gpu["k.0"] == host["k.0"]).mean() > 0.98


@in_pairs(("kv_type", ["f16", "f32"]), ("batch", [1, 3]))
def test_append_to_pages(bench: Bench, kv_type: str, batch: int) -> None:
    """Fused and unfused kernels: a batch that begins at the end of a page goes on in the next page of the table."""
    ops = bench.begin(Setup(batch=batch, n=batch, pos=63, n_ctx=192, seq=5))
    x = ops.rows("x", 64)
    bench.fill(x)
    cache = bench.cache(32, kv_type)
    for b in (cache.k, cache.v):
        bench.data[b.name][:] = np.nan
    rope = Rope(32, Pairs.HALVES, ops.buffer("freqs", (16,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(32, 10000.0)), np.uint32).copy()
    projection = Projection([bench.weight("w", Q.F16, 96, 64)], norm=bench.vector("norm", 64), eps=EPS)
    ops.qkv(x, projection, cache, (1, 1, 32), rope)
    gpu, host = bench.run(ops)
    rows = bench.cache_rows(range(63, 63 + batch), 5)
    for name in ("k.0", "v.0"):
        got, want = (data[name][rows].astype(np.float32) for data in (gpu, host))
        check(bench, got, want, max(tolerance(bench), 1e-6))
        assert np.isfinite(gpu[name]).all(axis=1).sum() == batch


@in_turn("heads, n, pos", [((4, 2, 32), 9, 60), ((2, 1, 64), 40, 0)], BOTH_ADAPTERS)
def test_attention_through_a_window(bench: Bench, heads: tuple[int, int, int], n: int, pos: int) -> None:
    """With a soft cap, attention sinks and ALiBi. Positions before every query's window are poisoned."""
    n_head, n_kv, dim = heads
    bench = Bench(bench.page, replace(bench.device, software=True))
    for batch in (1, n):
        ops = bench.begin(Setup(batch=batch, n=batch, pos=pos, n_ctx=192))
        q = ops.rows("q", n_head * dim)
        bench.fill(q)
        cache = bench.cache(n_kv * dim, "f32")
        for b in (cache.k, cache.v):
            values = bench.data[b.name]
            values[bench.cache_rows(range(pos + batch, 192))] = np.nan
            # finite: other rows of the tile see these positions
            values[bench.cache_rows(range(max(0, pos - 32)))] = 1e4
        slopes = alibi.table(ops, n_head, 2.0)
        bench.data[slopes.name] = np.resize(np.frombuffer(ops.plan.constants[slopes.name], np.uint32), slopes.shape)
        sinks = bench.vector("sinks", n_head)
        options = AttentionOptions(1.0, window=33, soft_cap=2.0, sinks=sinks, slopes=slopes)
        y = ops.attention(q, cache, heads, options)
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:batch, : n_head * dim], host[y.name][:batch, : n_head * dim])


@in_turn("heads, n, pos, chunk", [((4, 2, 32), 33, 60, 31), ((2, 1, 64), 40, 0, 33)], BOTH_ADAPTERS)
def test_attention_in_chunks(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, chunk: int) -> None:
    """A token sees its own chunk up to itself. Positions before every query's chunk are poisoned."""
    n_head, n_kv, dim = heads
    for batch, at in ((1, pos + 1), (n, pos), (1, 2 * chunk), (1, 2 * chunk - 1)):  # also at a chunk's ends
        ops = bench.begin(Setup(batch=batch, n=batch, pos=at, n_ctx=192))
        q = ops.rows("q", n_head * dim)
        bench.fill(q)
        cache = bench.cache(n_kv * dim, "f32")
        for b in (cache.k, cache.v):
            bench.data[b.name][bench.cache_rows(range(at // chunk * chunk))] = 1e4
        y = ops.attention(q, cache, heads, AttentionOptions(0.3, window=chunk, chunked=True))
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:batch, : n_head * dim], host[y.name][:batch, : n_head * dim])
        assert np.abs(host[y.name][:batch, : n_head * dim]).max() < 100


@in_turn("kv_type, batch", [("f16", 1), ("f32", 3)], BOTH_ADAPTERS)
def test_attention_at_the_end_of_a_long_context(bench: Bench, kv_type: str, batch: int) -> None:
    """131,072 positions, which a query sees all. Sums of so many weights lose up to 1e-4 in float32."""
    heads, n_ctx = (2, 1, 8), 1 << 17
    ops = bench.begin(Setup(batch=batch, n=batch, pos=n_ctx - batch, n_ctx=n_ctx))
    q = ops.rows("q", 16)
    bench.fill(q)
    cache = bench.cache(8, kv_type)
    y = ops.attention(q, cache, heads, AttentionOptions(1.0))  # a scale at which few positions have most of the weight
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:batch, :16], host[y.name][:batch, :16], max(tolerance(bench), 1e-7))


PLACES = ((7, 3), (30, 0), (8, 3), (0, 5), (62, 3))  # (position, sequence)


@in_pairs(("n, cols, places", [(1, 1, ()), (3, 31, ()), (5, 33, PLACES), (4, 257, ())]), ("first", [0, 1]))
def test_queries_with_a_temperature(
    bench: Bench, n: int, cols: int, places: tuple[tuple[int, int], ...], first: int
) -> None:
    """Positions grow beyond a multiple of the length, with `first` added to them."""
    ops = bench.begin(Setup(batch=SHORT_BATCH if places else n + 1, n=n, pos=30, places=places))
    q = ops.rows("q", cols + 5)
    before = bench.fill(q).copy()
    scale_queries(ops, q, cols, Temperature(16, 0.7, first))
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name], host[q.name], 1e-12)
    changed = host[q.name] != before
    assert changed[n - 1, :cols].all()
    assert not changed[:, cols:].any()
    assert not changed[n:].any()


@in_turn("heads, n, window", [((3, 1, 16), 19, 0), ((3, 1, 16), 40, 10)], BOTH_ADAPTERS)
def test_attention_both_ways(bench: Bench, heads: tuple[int, int, int], n: int, window: int) -> None:
    """An encoder's attention, with ALiBi and heads that are not whole groups. Positions after the end are poisoned."""
    n_head, n_kv, dim = heads
    bench = Bench(bench.page, replace(bench.device, software=True))
    ops = bench.begin(Setup(batch=n + 1, n=n))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = Cache(ops.buffer("k", (64, n_kv * dim)), ops.buffer("v", (64, n_kv * dim)), "f32", UNPAGED)
    for b in (cache.k, cache.v):
        bench.fill(b)[n:] = np.nan
    slopes = alibi.table(ops, n_head, 2.0)
    bench.data[slopes.name] = np.frombuffer(ops.plan.constants[slopes.name] + bytes(4), np.uint32).copy()
    y = ops.attention(q, cache, heads, AttentionOptions(0.5, window=window, causal=False, slopes=slopes))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])


@in_turn(
    "heads, n, n_ctx, type",
    [((3, 1, 16), 140, 160, Q.F16), ((4, 2, 8), 19, 64, Q.F32), ((3, 1, 8), 40, 64, Q.BF16)],
    BOTH_ADAPTERS,
)
def test_attention_with_buckets(bench: Bench, heads: tuple[int, int, int], n: int, n_ctx: int, type: Q) -> None:
    """T5's biases, also of distances beyond the last bucket's first one."""
    n_head, n_kv, dim = heads
    bench = Bench(bench.page, replace(bench.device, software=True))
    ops = bench.begin(Setup(batch=n + 1, n=n, n_ctx=n_ctx))
    q = ops.rows("q", n_head * dim)
    bench.fill(q)
    cache = Cache(ops.buffer("k", (n_ctx, n_kv * dim)), ops.buffer("v", (n_ctx, n_kv * dim)), "f32", UNPAGED)
    for b in (cache.k, cache.v):
        bench.fill(b)[n:] = np.nan
    relative = relative_bias(ops, bench.weight("relative", type, 8, n_head), causal=False)
    places = relative.buckets
    bench.data[places.name] = np.frombuffer(ops.plan.constants[places.name], np.uint32).reshape(places.shape)
    y = ops.attention(q, cache, heads, AttentionOptions(1.0, causal=False, relative=relative))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])


ENCODED = {0: 1, 3: 37, 5: 64}  # rows of each sequence's encoder
DECODED = ((37, 3), (38, 3), (130, 3), (1, 0), (64, 5), (190, 5))  # (position, sequence)


@in_turn(
    "heads, kv_type, type",
    [((3, 3, 20), "f32", Q.F16), ((8, 8, 64), "f16", Q.F32), ((4, 2, 32), "q8_0", Q.F16), ((1, 1, 128), "f16", Q.F16)],
    BOTH_ADAPTERS,
)
def test_attention_to_parts_of_a_cache(bench: Bench, heads: tuple[int, int, int], kv_type: str, type: Q) -> None:
    """A decoder's two attentions: to its encoder's rows, and with T5's biases to its own. Other rows are poisoned."""
    n_head, n_kv, dim = heads
    for places in ((), DECODED[:1], DECODED):
        for part in ("encoder", "decoder"):
            ops = bench.begin(Setup(batch=SHORT_BATCH if places else 1, n=1, pos=150, n_ctx=192, seq=3, places=places))
            words = bench.data["state"][TABLES // 4 + shift_index(192, ops.plan.page) :]
            for seq, rows in ENCODED.items():
                words[seq] = -rows % (1 << 32)
            q = ops.rows("q", n_head * dim)
            bench.fill(q)
            cache = bench.cache(n_kv * dim, kv_type)
            for seq in {seq for _, seq in places or [(150, 3)]} if kv_type != "q8_0" else ():
                last = max(pos for pos, other in places or [(150, 3)] if other == seq)
                unread = range(ENCODED[seq]) if part == "decoder" else range(ENCODED[seq], last + 1)
                for b in (cache.k, cache.v):
                    bench.data[b.name][bench.cache_rows([*unread, *range(last + 1, 192)], seq)] = np.nan
            relative = relative_bias(ops, bench.weight("relative", type, 32, n_head), causal=True)
            name = relative.buckets.name
            bench.data[name] = np.frombuffer(ops.plan.constants[name], np.uint32).reshape(relative.buckets.shape)
            biases = relative if part == "decoder" else None
            options = AttentionOptions(1.0, relative=biases, part=part_of(ops.plan, part))
            y = ops.attention(q, cache, heads, options)
            gpu, host = bench.run(ops)
            n = len(places) or 1
            check(bench, gpu[y.name][:n, : n_head * dim], host[y.name][:n, : n_head * dim])


@in_pairs(("pos, kv_type", [(0, "f16"), (1, "f32"), (9, "f16"), (30, "f16")]))
def test_shortconv(bench: Bench, pos: int, kv_type: str) -> None:
    """Batches at the start of a sequence and later in it, where earlier inputs are in the cache."""
    for n in (1, 5):
        ops = bench.begin(Setup(batch=n, n=n, pos=pos, page=8))
        x = ops.rows("x", 3 * 34)
        bench.fill(x)
        cache = make_conv_cache(ops.plan, 0, 34, kv_type, page_group(ops.plan, 4))
        values = bench.fill(cache.k)
        read = bench.cache_rows([pos - k for k in (1, 2, 3) if k <= pos])
        values[np.setdiff1d(np.arange(len(values)), read)] = np.nan
        y = shortconv(ops, x, bench.vector("weights", 34 * 4), cache, 34)
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:n, :34], host[y.name][:n, :34], 1e-10)
        written = bench.cache_rows(range(pos, pos + n))
        got, want = (x[cache.k.name][written].astype(np.float32) for x in (gpu, host))
        check(bench, got, want, 1e-8)


@in_pairs(
    ("heads, n, pos, kv_type", [((1, 1, 4), 1, 0, "f32"), ((3, 3, 32), 3, 30, "f16"), ((4, 2, 64), 1, 150, "f16")])
)
def test_attention(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str) -> None:
    """Prefill in tiles; decoding in splits that are then combined. Positions after the end are poisoned."""
    attention(bench, heads, n, pos, kv_type)


@in_turn(
    "heads, n, pos, kv_type",
    [
        ((8, 2, 64), 17, 31, "f32"),
        ((4, 1, 80), 5, 1, "f16"),
        ((14, 2, 64), 3, 40, "f16"),
        ((2, 1, 256), 2, 33, "f32"),
        ((8, 1, 512), 3, 9, "f16"),
    ],
)
def test_attention_of_wide_groups(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str) -> None:
    """With a software GPU's tiles: others take a minute to compile."""
    attention(Bench(bench.page, replace(bench.device, software=True)), heads, n, pos, kv_type)


def attention(bench: Bench, heads: tuple[int, int, int], n: int, pos: int, kv_type: str) -> None:
    """Compare attention of one token and of n tokens at `pos`."""
    n_head, n_kv, dim = heads
    for batch in {1, n}:
        ops = bench.begin(Setup(batch=batch, n=batch, pos=pos, n_ctx=192))
        q = ops.rows("q", n_head * dim)
        bench.fill(q)
        cache = bench.cache(n_kv * dim, kv_type)
        for b in (cache.k, cache.v):
            bench.data[b.name][bench.cache_rows(range(pos + batch, 192))] = np.nan
        y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5))
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:batch, : n_head * dim], host[y.name][:batch, : n_head * dim])
