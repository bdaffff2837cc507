"""What adapters add to products and hidden states: GPU against numpy, with awkward ranks, types and rows."""

from dataclasses import replace

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import low_rank_rows, post_norms
from py_engine.plan.adapters import Direction
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Weight
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shared_constants import MAX_SEQUENCES, SHORT_BATCH
from tests.support.kernels.adapters import PLACES, begin, gather_sources, pair
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import CACHED, VARIANTS, in_pairs, in_turn


@in_pairs(
    ("types", [(Q.F16, Q.F16), (Q.F32, Q.Q8_0)]),
    ("batch, places", [(1, ()), (SHORT_BATCH, PLACES), (40, ())]),
    adapters=[CACHED],  # the other tests have the same kernels with f16 on lavapipe, which compiles 20 s here
)
def test_stacked_products(bench: Bench, types: tuple[Q, Q], batch: int, places: tuple[tuple[int, int], ...]) -> None:
    """Two matrices beside each other; adapters of two ranks, one for both, one whose rows are scattered."""
    n, rows, cols = len(places) or (1 if batch == 1 else 37), (70, 33), 96
    ops = begin(bench, Setup(batch=batch, n=n, pos=5, seq=0, places=places))
    x = ops.rows("x", cols)
    bench.fill(x)[n:] = np.nan
    bench.weight("q", Q.F16, rows[0], cols)
    bench.weight("v", Q.F32, rows[1], cols)
    scattered = Weight("q", Q.F16, rows[0], cols, (("q", 40, 30), ("q", 0, 40)))
    rank = 32 if types[1] == Q.Q8_0 else 5
    pair(bench, 0, "q", rows[0], cols, rank, types)
    pair(bench, 1, "q", rows[0], cols, 2 * rank, types)
    pair(bench, 1, "v", rows[1], cols, 2 * rank, types)
    pair(bench, 2, "v", rows[1], cols, rank, types)
    stack = [scattered, bench.plan.weights["v"]]
    norm = None if batch == 40 else bench.vector("norm", cols)
    y = ops.normed_stack("y", x, Projection(stack, bench.vector("bias", sum(rows)), norm, EPS))
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : sum(rows)], host[y.name][:n, : sum(rows)])
    assert np.isnan(gpu[y.name][n:]).all()
    assert sum(op.kernel == "add_low_rank" for op in ops.ops) == 2


@in_turn(
    "type, dot8, rank, cols",
    [
        *((Q.F16, False, rank, cols) for rank, cols in ((1, 2048), (3, 1056), (257, 1030))),
        *((Q.Q4_0, True, rank, 1056) for rank in (31, 33)),
        (Q.Q4_K, True, 255, 1280),
    ],
)
def test_first_matrices_beside_a_product(bench: Bench, type: Q, dot8: bool, rank: int, cols: int) -> None:
    """A x in the dispatch that reads x: for each token of a small batch what it gets alone, bit by bit."""
    bench = Bench(bench.page, replace(bench.device, dot8=dot8, software=False))
    batch, kernels = _beside(bench, type, rank, cols, np.arange(len(PLACES)))
    adds = "add_scaled" if _beside_products(bench, rank) else "add_low_rank"
    assert kernels == [*["quantize_rows"] * dot8, "matvec_small_batch", adds] * 2
    for m in (0, 3):
        alone, kernels = _beside(bench, type, rank, cols, np.array([m]))
        assert kernels == ["matvec", "add_low_rank"] * 2
        for got, want in zip(batch, alone, strict=True):
            assert (got[m].view(np.uint32) == want[0].view(np.uint32)).all(), m


def _beside_products(bench: Bench, rank: int) -> bool:
    """Whether products of bytes have the memory and buffers to compute beside them what adapters add."""
    return bench.device.dot8 and rank < 255 and bench.device.max_storage_buffers >= 12


@in_pairs(
    ("type, cols", [(Q.Q4_0, 1056), (Q.Q4_K, 1280), (Q.Q6_K, 1280)]),
    ("equal", [False, True]),
    adapters=["lavapipe: f16"],  # which binds enough buffers
)
def test_a_layer_of_bytes(bench: Bench, type: Q, cols: int, equal: bool) -> None:
    """What adapters add is computed beside each product, and added by the op that reads both.

    That of equal ones is added by the product itself, and its rows are rotated or activated as without adapters.
    """
    bench = Bench(bench.page, replace(bench.device, dot8=True, software=False, max_threads=1024))
    n, heads = len(PLACES), (4, 2, 16)
    ops = begin(bench, Setup(batch=SHORT_BATCH, n=n, pos=12, places=PLACES))
    x, cache = ops.rows("x", cols), bench.cache(2 * 16, "f32")
    bench.fill(x)[n:] = np.nan
    for name, rows, width in (("q", 64, cols), ("k", 32, cols), ("v", 32, cols), ("gate", 2048, cols),
                              ("up", 2048, cols), ("down", cols, 2048), ("out", 33, cols)):  # fmt: skip
        matrix(bench, type, name, rows, width, tame=True)
        bench.raw[name] = bench.raw[name].reshape(rows, -1)
        pair(bench, 0, name, rows, width, 8 if equal else 5, (Q.F16, Q.F16))
        if equal or name in ("v", "up", "down", "out"):
            pair(bench, 1, name, rows, width, 8 if equal else 5, (Q.F16, Q.F16))
    qkv = Weight("q+k+v", type, 128, cols, (("q", 0, 64), ("k", 0, 32), ("v", 0, 32)))
    gate_up = Weight("gate+up", type, 4096, cols, (("gate", 0, 2048), ("up", 0, 2048)))
    down, out = (replace(bench.plan.weights[name]) for name in ("down", "out"))
    bench.plan.weights = {"q+k+v": qkv, "gate+up": gate_up, "down": down, "out": out}
    freqs = ops.buffer("freqs", (8,), "u32", "state")
    bench.data["freqs"] = np.frombuffer(table(frequencies(16, 10000.0)), np.uint32)
    norm = bench.vector("norm", cols)
    q = ops.qkv(x, Projection([qkv], None, norm, EPS), cache, heads, Rope(16, Pairs.HALVES, freqs))
    for _ in range(2):  # the stream's two buffers change places twice
        hidden = ops.gated(x, Projection([gate_up], bench.vector("bias", 4096), norm, EPS), "silu")
        ops.linear(hidden, down, None, x)
    logits = ops.head(x, Projection([out], None, norm, EPS))
    low_rank_rows.merge(ops)
    post_norms.merge(ops)
    gather_sources(bench)
    product = ["quantize_rows", "matvec_small_batch"]
    if equal:
        assert [op.kernel for op in ops.ops] == product * 6
        assert [op.params["EPILOGUE"] for op in ops.ops[1::2]] == ["qkv", *["gated", "add"] * 2, "store"]
        assert {op.params["STAGED"] for op in ops.ops[1::2]} == {int(type is Q.Q6_K)}
    else:
        assert [op.kernel for op in ops.ops] == [*product, "rope_append", *product * 5, "add_scaled"]
        assert [op.params["GATED"] for op in ops.ops if op.params.get("ADDED") and "GATED" in op.params] == [1, 0, 1, 0]
    gpu, host = bench.run(ops)
    for b, rows in ((q, 64), (x, cols), (logits, 33)):
        check(bench, gpu[b.name][:n, :rows], host[b.name][:n, :rows], 1e-3)  # a level of a rounded x may differ
    for b in (cache.k, cache.v):
        written = np.isfinite(host[b.name]).all(axis=1)
        check(bench, gpu[b.name][written], host[b.name][written], 1e-3)


def _beside(bench: Bench, type: Q, rank: int, cols: int, tokens: np.ndarray) -> tuple[list[np.ndarray], list[str]]:
    """Products of some tokens of a batch with an adapted matrix, one added, one of the norm; and the kernels."""
    places, rows = [PLACES[m] for m in tokens], 300
    one = Setup(batch=1, n=1, pos=places[0][0], seq=places[0][1])
    ops = begin(bench, one if len(places) == 1 else Setup(batch=SHORT_BATCH, n=len(places), places=places))
    bench.random = np.random.default_rng(1)  # the same numbers for any batch
    weight = bench.weight("w", type, rows, cols) if type is Q.F16 else matrix(bench, type, "w", rows, cols, tame=True)
    norm = bench.vector("norm", cols)
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    for b in (x, y):
        values = bench.random.standard_normal((len(PLACES), b.shape[1])).astype(np.float32)
        values[:, cols if b is x else rows :] = np.nan
        bench.data[b.name] = np.resize(values[tokens], b.shape)
    weight = replace(weight, sources=(("w", 0, rows),))
    pair(bench, 0, "w", rows, cols, rank, (Q.F16, Q.F16))
    pair(bench, 1, "w", rows, cols, rank, (Q.F16, Q.F16))
    ops.linear(x, weight, None, y)
    z = ops.normed_stack("z", x, Projection([weight], None, norm, EPS))
    gather_sources(bench)
    gpu, host = bench.run(ops)
    limit = None if type is Q.F16 else 1e-3  # a level of a rounded x may differ
    for b in (y, z):
        check(bench, gpu[b.name][: len(places), :rows], host[b.name][: len(places), :rows], limit)
    return [gpu[b.name][: len(places), :rows] for b in (y, z)], [op.kernel for op in ops.ops]


@in_turn("batch, places", [(1, ()), (SHORT_BATCH, PLACES), (40, ())], VARIANTS[1:])
def test_gated_products(bench: Bench, batch: int, places: tuple[tuple[int, int], ...]) -> None:
    """The activation is in the dispatch of the last adapters."""
    n, size, cols = len(places) or (1 if batch == 1 else 37), 70, 64
    ops = begin(bench, Setup(batch=batch, n=n, pos=5, seq=0, places=places))
    x = ops.rows("x", cols)
    bench.fill(x)[n:] = np.nan
    bench.weight("gate_up", Q.F16, 2 * size, cols)
    pair(bench, 0, "gate_up", 2 * size, cols, 5, (Q.F16, Q.F16))
    pair(bench, 1, "gate_up", 2 * size, cols, 40, (Q.F16, Q.F16))
    hidden = ops.gated(x, Projection([bench.plan.weights["gate_up"]]), "silu")
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[hidden.name][:n, :size], host[hidden.name][:n, :size])
    assert np.isnan(gpu[hidden.name][n:]).all()
    assert [op.params["GATED"] for op in ops.ops if op.kernel == "add_low_rank"] == [0, 1]


@in_turn("neox, places", [(False, PLACES), (True, ()), (True, PLACES)], VARIANTS[1:])
def test_queries_keys_and_values(bench: Bench, neox: bool, places: tuple[tuple[int, int], ...]) -> None:
    """Rotated and stored by the kernel that adds what the last adapters add."""
    n, heads, cols = len(places) or 1, (4, 2, 16), 64
    ops = begin(bench, Setup(batch=SHORT_BATCH if places else 1, n=n, pos=12, seq=3, places=places))
    x, cache = ops.rows("x", cols), bench.cache(2 * 16, "f32")
    bench.fill(x)[n:] = np.nan
    for name, rows in (("q", 64), ("k", 32), ("v", 32)):
        bench.weight(name, Q.F16, rows, cols)
        bench.raw[name] = bench.raw[name].reshape(rows, -1)
    stack = Weight("q+k+v", Q.F16, 128, cols, (("q", 0, 64), ("k", 0, 32), ("v", 0, 32)))
    bench.plan.weights = {"q+k+v": stack}
    pair(bench, 0, "q", 64, cols, 5, (Q.F16, Q.F16))
    pair(bench, 1, "v", 32, cols, 5, (Q.F16, Q.F16))
    pair(bench, 1, "k", 32, cols, 40, (Q.F16, Q.F32))
    freqs = ops.buffer("freqs", (8,), "u32", "state")
    bench.data["freqs"] = np.frombuffer(table(frequencies(16, 10000.0)), np.uint32)
    q = ops.qkv(
        x, Projection([stack], None, bench.vector("norm", cols), EPS), cache, heads, Rope(16, Pairs(neox), freqs)
    )
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[q.name][:n, :64], host[q.name][:n, :64])
    for b in (cache.k, cache.v):
        written = np.isfinite(host[b.name]).all(axis=1)
        check(bench, gpu[b.name][written], host[b.name][written])
    assert [op.kernel for op in ops.ops if "entries" in op.bindings] == ["add_low_rank", "rope_append"]


@in_pairs(("rank", [3, 40]))
def test_the_last_token_s_logits(bench: Bench, rank: int) -> None:
    """A list of one token after a batch of many."""
    ops = begin(bench, Setup(batch=1, n=9, pos=1, seq=3))
    x = ops.buffer("prefill.x", (12, 64))
    bench.fill(x)
    weight = bench.weight("output", Q.Q4_0, 300, 64)
    pair(bench, 1, "output", 300, 64, rank, (Q.F16, Q.F16))
    logits = ops.head(x, Projection([weight]))
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[logits.name], host[logits.name])


@in_pairs(("places, batch, streams", [((), 6, 3), (PLACES, SHORT_BATCH, 1)]))
def test_directions(bench: Bench, places: tuple[tuple[int, int], ...], batch: int, streams: int) -> None:
    """A control vector after a layer, for every residual stream."""
    n = len(places) or 5
    ops = begin(bench, Setup(batch=batch, n=n, pos=5, seq=0, places=places))
    x = ops.rows("x", streams * 64)
    bench.fill(x)[n:] = np.nan
    before = bench.data[x.name].copy()
    bench.raw["direction"] = bench.random.standard_normal((1, 36)).astype(np.float32).view(np.uint8)
    bench.plan.adapters.directions[0] = [Direction(2, "direction", 36)]
    ops.end_layer(x)
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[x.name][:n], host[x.name][:n], 1e-12)
    assert np.isnan(gpu[x.name][n:]).all()
    changed = (host[x.name] != before)[0].reshape(streams, 64)
    assert changed[:, :36].all()
    assert not changed[:, 36:].any()


@in_turn("places", [(), PLACES])
def test_many_adapters_take_several_dispatches(bench: Bench, places: tuple[tuple[int, int], ...]) -> None:
    """More of them than a workgroup's memory holds. A small batch does not load all scales first."""
    n, count = len(places) or 7, 100
    ops = begin(bench, Setup(batch=SHORT_BATCH if places else 9, n=n, pos=5, seq=0, places=places))
    bench.plan.adapters.defaults[:] = [1.0] * count
    scales = np.zeros((MAX_SEQUENCES, count, 2), np.float32)
    scales[[0, 5], ::7, 0] = 1
    bench.data["lora_scales"] = scales.reshape(MAX_SEQUENCES, 2 * count)
    x = ops.rows("x", 64)
    bench.fill(x)
    weight = bench.weight("w", Q.F16, 65, 64)
    for number in range(count):
        pair(bench, number, "w", 65, 64, 2, (Q.F16, Q.F16))
    y = ops.project("y", x, weight, None)
    gather_sources(bench)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :65], host[y.name][:n, :65])
    assert sum(op.kernel == "add_low_rank" for op in ops.ops) == 2
    assert {op.params["PRELOAD"] for op in ops.ops if op.kernel == "add_low_rank"} == {0}
