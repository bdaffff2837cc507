"""Small batches, with a State per token: several sequences, or a draft. GPU against numpy, with poisoned outputs.

test_draft_kernels.py has what is drafted and accepted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import sampler_ops, small_batch_tiles, tiles
from py_engine.plan.attention import HeadNorm
from py_engine.plan.cache import make_conv_cache, page_group
from py_engine.plan.ops import AttentionOptions, Projection
from py_engine.plan.plan import Weight
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.sampler_ops import Sampler
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared_constants import BUCKETS, MAX_SMALL_BATCH, SHORT_BATCH
from py_engine.plan.shortconv import shortconv
from tests.support.kernels.bench import Bench, Setup, bench_of
from tests.support.kernels.checks import EPS, check, cols_of, give, tolerance
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import CACHED, in_pairs, in_turn

Pages = Callable[[str], tuple[Page, dict[str, Any]]]
TWO = ((7, 3), (30, 0))  # (position, sequence)
FIVE = ((30, 0), (7, 3), (8, 3), (9, 3), (0, 5))  # three consecutive tokens of sequence 3 among others
MANY = tuple((7 + i, i) for i in range(MAX_SMALL_BATCH - 1))


@in_pairs(
    ("type", [Q.F16, Q.Q4_0]),
    ("rows, cols, places", [(1, 1, TWO), (31, 33, MANY), (257, 255, TWO[:1]), (40, 1056, FIVE)]),
    ("software", [False, True]),
    adapters=[CACHED],
)
def test_products(
    bench: Bench, type: Q, rows: int, cols: int, places: tuple[tuple[int, int], ...], software: bool
) -> None:
    """Mat-vec with all epilogues, with and without bias and norm. Rows outside the batch stay unwritten."""
    bench = Bench(bench.page, replace(bench.device, software=software))
    cols, n = cols_of(type, cols), len(places)
    ops = bench.begin(Setup(batch=MAX_SMALL_BATCH, n=n, places=places))
    x, y, scaled = ops.rows("x", cols), ops.rows("y", rows), ops.rows("scaled", rows)
    for b in (x, y, scaled):
        bench.fill(b)[n:] = np.nan
    weight, bias, norm = bench.weight("w", type, rows, cols), bench.vector("bias", rows), bench.vector("norm", cols)
    ops.linear(x, weight, bias, y)
    ops.linear(x, weight, bias, scaled, -0.22)
    normed = ops.normed_stack("z", x, Projection([weight], None, norm, EPS))
    hidden = ops.activated(x, Projection([weight], bias, norm, EPS), "relu2")
    gpu, host = bench.run(ops)
    for b in (y, scaled, normed, hidden):
        check(bench, gpu[b.name][:n, :rows], host[b.name][:n, :rows])
        assert np.isnan(gpu[b.name][n:]).all()


@in_pairs(
    ("type, cols", [(Q.F16, 33), (Q.Q8_0, 1056), (Q.Q4_0, 2048)]),
    ("batch, places", [(1, TWO[:1]), (MAX_SMALL_BATCH, FIVE)]),
    ("dot8", [False, True]),
    adapters=[CACHED],
)
def test_products_of_a_rows_first_columns(
    bench: Bench, type: Q, cols: int, batch: int, places: tuple[tuple[int, int], ...], dot8: bool
) -> None:
    """x is wider than the matrix. The last row of a batch, too."""
    bench, n = Bench(bench.page, replace(bench.device, dot8=dot8)), len(places)
    ops = bench.begin(Setup(batch=batch, n=n, places=places if batch > 1 else ()))
    x, y = ops.rows("x", cols + 40), ops.rows("y", 31)
    bench.fill(x)
    bench.fill(y)
    weight = bench.weight("w", type, 31, cols) if type == Q.F16 else matrix(bench, type, "w", 31, cols, tame=True)
    norm = bench.vector("norm", cols)
    ops.linear(x, weight, None, y)
    normed = ops.normed_stack("z", x, Projection([weight], None, norm, EPS))
    gpu, host = bench.run(ops)
    for b in (y, normed):
        check(bench, gpu[b.name][:n, :31], host[b.name][:n, :31], 1e-6)


@in_pairs(
    ("type", [Q.F16, Q.Q4_0]),
    ("rows, cols, places", [(5, 33, ()), (33, 31, MANY), (257, 255, TWO[:1]), (40, 1056, FIVE), (64, 64, ())]),
    ("dot8", [False, True]),
    adapters=[CACHED],
)
def test_products_that_are_gates(
    bench: Bench, type: Q, rows: int, cols: int, places: tuple[tuple[int, int], ...], dot8: bool
) -> None:
    """Of one token, or a batch: times some columns of other rows."""
    bench, cols, n = Bench(bench.page, replace(bench.device, dot8=dot8)), cols_of(type, cols), max(1, len(places))
    ops = bench.begin(Setup(batch=MAX_SMALL_BATCH if places else 1, n=n, places=places))
    x, up = ops.rows("x", cols), ops.rows("up", rows + 7)
    for b in (x, up):
        bench.fill(b)[n:] = np.nan
    bench.data[up.name][:, :7] = np.nan
    y = ops.gating(x, bench.weight("w", type, rows, cols), "gelu", up, 7)
    assert y
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :rows], host[y.name][:n, :rows], 1e-4 if dot8 and type == Q.Q4_0 else None)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(
    ("type, cols", [(Q.Q4_0, 1280), (Q.Q8_0, 1056), (Q.Q6_K, 1280)]),  # 1056: an odd number of groups
    ("rows, places", [(31, MANY), (260, TWO[:1]), (40, FIVE)]),
    adapters=[CACHED],
)
def test_products_of_bytes(bench: Bench, type: Q, cols: int, rows: int, places: tuple[tuple[int, int], ...]) -> None:
    """Integer dot products. Values between two steps may round either way."""
    bench, n = Bench(bench.page, replace(bench.device, dot8=True)), len(places)
    ops = bench.begin(Setup(batch=MAX_SMALL_BATCH, n=n, places=places))
    x, y, scaled = ops.rows("x", cols), ops.rows("y", rows), ops.rows("scaled", rows)
    for b in (x, y, scaled):
        bench.fill(b)[n:] = np.nan
    x0 = bench.data[x.name]
    x0[0, 64:96] = 0
    weight, norm = matrix(bench, type, "w", rows, cols, tame=True), bench.vector("norm", cols)
    ops.linear(x, weight, bench.vector("bias", rows), y)
    ops.linear(x, weight, bench.vector("bias", rows), scaled, -0.22)
    normed = ops.normed_stack("z", x, Projection([weight], None, norm, EPS))
    hidden = ops.activated(x, Projection([weight], None, norm, EPS), "silu")
    gpu, host = bench.run(ops)
    for b in (y, scaled, normed, hidden):
        check(bench, gpu[b.name][:n, :rows], host[b.name][:n, :rows], 1e-6)
        assert np.isnan(gpu[b.name][n:]).all()
    rounding = next(op for op in ops.ops if op.kernel == "quantize_rows" and op.params["NORM"])
    factors, *rounded = (rounding.bindings[name].name for name in ("x_scale", "xq", "xq_scale"))
    check(bench, gpu[factors][:n], host[factors][:n], 1e-6)
    for name in rounded:
        got, want = gpu[name][:n], host[name][:n]
        if name == rounded[0]:
            steps = np.abs(got.view(np.int8).astype(int) - want.view(np.int8).astype(int))
            assert steps.max() <= 1
            assert steps.mean() < 1e-3
        else:
            check(bench, got, want, 1e-6)
        assert (gpu[name][n:] == bench.data[name][n:]).all() or np.isnan(gpu[name][n:].view(np.float32)).all()


@in_turn("type, dot8, rows, cols", [(Q.Q4_0, True, 260, 1312), (Q.Q4_0, True, 31, 256), (Q.Q8_0, False, 33, 320)])
def test_a_grid_for_more_tokens_than_the_batch_has(bench: Bench, type: Q, dot8: bool, rows: int, cols: int) -> None:
    """Prompt lookup dispatches for eight, before it is known how many it drafts."""
    bench = Bench(bench.page, replace(bench.device, dot8=dot8, software=False))
    ops = bench.begin(Setup(batch=MAX_SMALL_BATCH, n=3, places=FIVE[:3]))
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    for b in (x, y):
        bench.fill(b)[3:] = np.nan
    weight = matrix(bench, type, "w", rows, cols, tame=True)
    ops.linear(x, weight, None, y)
    normed = ops.normed_stack("z", x, Projection([weight], None, bench.vector("norm", cols), EPS))
    bench.n = SHORT_BATCH
    gpu, host = bench.run(ops)
    for b in (y, normed):
        check(bench, gpu[b.name][:3, :rows], host[b.name][:3, :rows], 1e-6)
        assert np.isnan(gpu[b.name][3:]).all()


@in_turn(
    "type, dot8, cols, measured",
    [
        (Q.F16, False, 1280, ()), (Q.Q4_0, True, 1280, ()), (Q.Q4_0, False, 1280, ()), (Q.Q6_K, True, 1280, ()),
        (Q.F16, False, 1280, (1, 4, 0, 4, 0)), (Q.Q4_0, True, 1280, (4, 4, 0, 8, 1)),
        (Q.Q4_K, True, 1536, (8, 2, 0, 2, 2)),
        # x in workgroup memory: the second part of 2,048 columns is not whole
        (Q.Q8_0, True, 2336, (2, 4, 1, 2, 0)), (Q.Q4_K, True, 2304, (8, 1, 1, 8, 1)),
        (Q.Q4_0, True, 1312, (8, 1, 0, 4, 0)), (Q.Q4_0, True, 1312, (4, 2, 1, 4, 2)),
    ],
)  # fmt: skip
def test_a_token_gets_what_it_gets_alone(
    bench: Bench, type: Q, dot8: bool, cols: int, measured: tuple[int, ...]
) -> None:
    """Bit by bit, with every fusion, also with a `measured` tile (TR, R, ...). test_batch_bits.py: whole models."""
    device = replace(bench.device, dot8=dot8)
    if measured:
        weight = Weight("w", type, 384, cols, (("w", 0, 384),))
        tile = int(dot8), tiles.matvec(device, weight, dot8)["TK"], *measured
        device = tiles.with_tile(device, small_batch_tiles.key(weight), tile)
        found = small_batch_tiles.matvec_small_batch(device, weight, dot8)
        assert tuple(found.values())[1:] == measured
    _check_tokens_alone(Bench(bench.page, device), type, cols)


def _fused(bench: Bench, type: Q, cols: int, tokens: np.ndarray) -> list[np.ndarray]:
    """Products of some tokens of a batch: added, gated and normed, stored and normed; queries."""
    rows, places = 384, [FIVE[m] for m in tokens]
    several = len(places) > 1
    ops = bench.begin(
        Setup(batch=SHORT_BATCH if several else 1, n=len(places), pos=places[0][0], places=places if several else ())
    )
    bench.random = np.random.default_rng(1)  # the same numbers for any batch
    weight = bench.weight("w", type, rows, cols) if type is Q.F16 else matrix(bench, type, "w", rows, cols, tame=True)
    norm, bias = bench.vector("norm", cols), bench.vector("bias", rows)
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    for b in (x, y):
        values = bench.random.standard_normal((len(FIVE), b.shape[1])).astype(np.float32)
        bench.data[b.name] = np.resize(values[tokens], b.shape)
    cache = bench.cache(64, "f32")
    rope = Rope(64, Pairs.HALVES, ops.buffer("freqs", (32,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(64, 10000.0)), np.uint32).copy()
    ops.linear(x, weight, bias, y)
    normed = Projection([weight], None, norm, EPS)
    outputs = [(y, rows), (ops.normed_stack("z", x, normed), rows), (ops.gated(x, normed), rows // 2)]
    outputs.append((ops.qkv(x, normed, cache, (4, 1, 64), rope), 256))
    gpu, _ = bench.run(ops)
    return [gpu[b.name][: len(places), :count] for b, count in outputs]


@in_turn("type", [Q.F16, Q.Q4_0])
def test_hardware_gives_a_token_what_it_gets_alone(bench: Bench, type: Q) -> None:
    """A hardware GPU's kernel has a variable for each sum, and no loop over the tokens. Integer products never loop."""
    _check_tokens_alone(Bench(bench.page, replace(bench.device, software=False)), type, 1280)


def _check_tokens_alone(bench: Bench, type: Q, cols: int) -> None:
    """Two tokens of a batch, bit by bit, with every fusion."""
    batch = _fused(bench, type, cols, np.arange(len(FIVE)))
    for m in (0, 3):
        for got, want in zip(batch, _fused(bench, type, cols, np.array([m])), strict=True):
            assert (got[m].view(np.uint32) == want[0].view(np.uint32)).all(), m


@in_turn("tile", [(32, 2, 4, 2), (4, 16, 2, 4), (64, 1, 4, 8)])
def test_products_in_every_tile(bench: Bench, tile: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    params = dict(zip(("TK", "TR", "R", "TOKENS"), tile, strict=True)) | {"STAGED": 0, "AHEAD": 0}
    monkeypatch.setattr(small_batch_tiles, "matvec_small_batch", lambda *_: params)
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=5, places=FIVE))
    x = ops.rows("x", 1056)
    bench.fill(x)
    hidden = ops.gated(x, Projection([bench.weight("w", Q.Q4_0, 130, 1056)], None, bench.vector("n", 1056), EPS))
    gpu, host = bench.run(ops)
    check(bench, gpu[hidden.name][:5, :65], host[hidden.name][:5, :65])


@pytest.mark.parametrize(
    ("variant", "kv_type", "window", "places"),
    [
        ("swiftshader: f32", "f32", 0, TWO),
        ("swiftshader: f32 subgroups", "f16", 12, FIVE),
        ("swiftshader: f32 subgroups", "q8_0", 0, FIVE),
        ("lavapipe: f16 subgroups", "f16", 0, TWO),
    ],
)
def test_layer(
    variant: str, kv_type: str, window: int, places: tuple[tuple[int, int], ...], kernel_pages: Pages
) -> None:
    """Embedding, QKV with the sequences' caches, attention."""
    bench = bench_of(variant, kernel_pages)
    n_head, n_kv, dim, cols, n = 4, 2, 32, 96, len(places)
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=n, places=places, n_ctx=40))
    x = ops.embed(bench.weight("table", Q.F16, 64, cols))
    cache = bench.cache(n_kv * dim, kv_type, window)
    rope = Rope(dim, Pairs.HALVES, ops.buffer("freqs", (dim // 2,), "u32", "state"), 1.25)
    bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
    weight, heads = bench.weight("w", Q.Q8_0, (n_head + 2 * n_kv) * dim, cols), (n_head, n_kv, dim)
    q = ops.qkv(x, Projection([weight], None, bench.vector("norm", cols), EPS), cache, heads, rope)
    y = ops.attention(q, cache, heads, AttentionOptions(0.2, window))
    gpu, host = bench.run(ops)
    for b in (x, q, y):
        check(bench, gpu[b.name][:n], host[b.name][:n], max(tolerance(bench), 1e-9))
        assert np.isnan(gpu[b.name][n:]).all()
    if kv_type != "q8_0":
        for b in (cache.k, cache.v):
            rows = np.concatenate([bench.cache_rows(range(at + 1), seq, cache) for at, seq in places])
            check(bench, gpu[b.name][rows].astype(np.float32), host[b.name][rows].astype(np.float32), 1e-7)
            changed = np.flatnonzero((gpu[b.name].view(np.uint8) != bench.data[b.name].view(np.uint8)).any(axis=1))
            assert set(changed) == {int(bench.cache_rows([at], seq, cache)[0]) for at, seq in places}


@in_turn("kind", ["plain", "norm", "split"])
def test_rows_without_a_token_store_nothing(bench: Bench, kind: str) -> None:
    """A step with drafts is dispatched for a full batch. The States after its tokens are those of earlier drafts."""
    n_head, n_kv, dim, cols = 4, 2, 32, 96
    bench = Bench(bench.page, replace(bench.device, max_binding=4096)) if kind == "split" else bench
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=2, places=((21, 3), (22, 3))))
    bench.states(bench.data)[2:SHORT_BATCH] = [(12 + i, 0xFFFFFF, 0, 3) for i in range(SHORT_BATCH - 2)]
    bench.n = SHORT_BATCH  # tokens that are dispatched
    x = ops.rows("x", cols)
    bench.fill(x)
    cache = bench.cache(n_kv * dim, "f32")
    rope = Rope(dim, Pairs.HALVES, ops.buffer("freqs", (dim // 2,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
    norm = HeadNorm(bench.vector("norms", 2 * dim)) if kind == "norm" else None
    weight = bench.weight("w", Q.F16, (n_head + 2 * n_kv) * dim, cols)
    for _, part in weight.split(bench.device.max_binding):
        _, first, count = part.sources[0]
        bench.raw[part.name] = bench.raw["w"].reshape(weight.rows, -1)[first : first + count].reshape(-1)
        bench.plan.weights[part.name] = Weight(part.name, part.type, count, cols, ((part.name, 0, count),))
    projection = Projection([weight], None, bench.vector("norm", cols), EPS)
    q = ops.qkv(x, projection, cache, (n_head, n_kv, dim), rope, norm)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][:2, : n_head * dim], host[q.name][:2, : n_head * dim])
    for b in (cache.k, cache.v):
        changed = np.flatnonzero((gpu[b.name].view(np.uint8) != bench.data[b.name].view(np.uint8)).any(axis=1))
        assert set(changed) == set(bench.cache_rows([21, 22], 3, cache).tolist())


def test_rows_that_do_not_fuse(bench_in_f32: Bench) -> None:
    """Matrices split over several bindings: norm and rotation are separate dispatches."""
    bench = Bench(bench_in_f32.page, replace(bench_in_f32.device, max_binding=4096))
    n_head, n_kv, dim, cols = 2, 1, 32, 64
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=5, places=FIVE))
    x = ops.rows("x", cols)
    bench.fill(x)
    cache = bench.cache(n_kv * dim, "f32")
    rope = Rope(dim, Pairs.NEIGHBOURS, ops.buffer("freqs", (dim // 2,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
    stack = [bench.weight(name, Q.F16, rows * dim, cols) for name, rows in (("q", n_head), ("k", n_kv), ("v", n_kv))]
    for weight in stack:
        for _, part in weight.split(4096):
            _, first, count = part.sources[0]
            bench.raw[part.name] = bench.raw[weight.name].reshape(weight.rows, -1)[first : first + count].reshape(-1)
            bench.plan.weights[part.name] = Weight(part.name, part.type, count, cols, ((part.name, 0, count),))
    q = ops.qkv(x, Projection(stack, None, bench.vector("norm", cols), EPS), cache, (n_head, n_kv, dim), rope)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][:5, : n_head * dim], host[q.name][:5, : n_head * dim])
    for name in ("k.0", "v.0"):
        assert np.isfinite(host[name]).sum() == np.isfinite(gpu[name]).sum()
        check(bench, np.nan_to_num(gpu[name]), np.nan_to_num(host[name]))


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_convolution(bench_in_f32: Bench, kv_type: str) -> None:
    """A token reads earlier tokens of its sequence from the batch or from the cache."""
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=5, places=FIVE))
    cache = make_conv_cache(ops.plan, 0, 34, kv_type, page_group(ops.plan, 4))
    bench_in_f32.fill(cache.k)
    x = ops.rows("bcz", 3 * 34)
    bench_in_f32.fill(x)
    y = shortconv(ops, x, bench_in_f32.vector("weights", 34 * 4), cache, 34)
    gpu, host = bench_in_f32.run(ops)
    check(bench_in_f32, gpu[y.name][:5, :34], host[y.name][:5, :34])
    got, want = (np.nan_to_num(data["conv.0"].astype(np.float32)) for data in (gpu, host))
    check(bench_in_f32, got, want, 1e-7)


@pytest.mark.parametrize("vocab", [1, 33, 2500])
def test_each_sequence_chooses_with_its_own_parameters(bench_in_f32: Bench, vocab: int) -> None:
    """The tokens are appended to their sequences, and the states advance by one."""
    places = ((7, 3), (30, 0), (0, 5))
    ops = bench_in_f32.begin(Setup(batch=SHORT_BATCH, n=3, places=places, vocab=vocab))
    logits = ops.rows("logits", vocab)
    bench_in_f32.fill(logits)[:] *= 3
    sampler_ops.sample(ops, logits, Sampler())
    bench_in_f32.data["each.histogram"] = np.zeros((SHORT_BATCH, BUCKETS, 4), np.uint32)
    give(bench_in_f32, 3, Sampling(temperature=0))
    give(bench_in_f32, 0, Sampling(seed=5, temperature=1.5))
    give(bench_in_f32, 5, Sampling(seed=9, top_k=9, top_p=0.9, min_p=0.01))
    before = bench_in_f32.data["tokens"].copy()
    gpu, host = bench_in_f32.run(ops)
    assert (gpu["tokens"] == host["tokens"]).all()
    assert (bench_in_f32.states(gpu)[:3] == [[8, 3, 0, 3], [31, 3, 0, 0], [1, 3, 0, 5]]).all()
    assert (gpu["state"] == host["state"]).all()
    changed = {tuple(int(i) for i in at) for at in np.argwhere(gpu["tokens"] != before)}
    assert changed <= {(3, 8), (0, 31), (5, 1)}
    assert gpu["tokens"][3, 8] == gpu[logits.name][0, :vocab].argmax()
