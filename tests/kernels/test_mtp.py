"""The kernels of what drafts from a model's hidden states, with awkward shapes: GPU against numpy.

Outputs are poisoned, as in test_kernels.py.
"""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.mtp import RING, InputNorms, Residual, map_logits, mtp_input, store_hidden, token_rows
from py_engine.plan.ops import AttentionOptions, HeadNorm, Projection
from py_engine.plan.pages import TABLES, shift_index
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from py_engine.plan.shared_constants import BANNED, MAX_SEQUENCES, SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.variants import BOTH_ADAPTERS, in_turn

# longer than the ring, a sequence's beginning, one token, runs of several sequences, a token of each of them
BATCHES = [
    Setup(batch=19, n=19, pos=5),
    Setup(batch=3, n=2, pos=0),
    Setup(batch=1, n=1, pos=12),
    Setup(batch=8, n=6, places=((6, 1), (7, 1), (8, 1), (0, 0), (9, 2))),
    Setup(batch=8, n=3, places=((6, 1), (0, 3), (9, 2))),
]


@in_turn(
    "setup, cols, source, is_plain",
    [(BATCHES[0], 70, "batch", False), (BATCHES[1], 64, "batch", False), (BATCHES[4], 33, "ring", False),
     (BATCHES[3], 100, "batch", False), (BATCHES[4], 40, "own", False), (BATCHES[2], 130, "batch", False),
     (BATCHES[4], 31, "ring", True), (BATCHES[4], 257, "own", True)],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_the_input_joins_a_token_with_the_state_before(
    bench: Bench, setup: Setup, cols: int, source: str, is_plain: bool
) -> None:
    ops = bench.begin(setup)
    e, hidden = ops.rows("e", cols), ops.rows("hidden", cols)
    norms = None if is_plain else InputNorms(bench.vector("norms", 2 * cols), EPS)
    bench.fill(e)
    bench.fill(hidden)
    ring = np.full((MAX_SEQUENCES, RING, cols), np.nan, np.float32)
    begins = {seq: pos for pos, seq in reversed(setup.places or [(setup.pos, 0)])}
    for seq, pos in begins.items():
        if pos:
            ring[seq, (pos - 1) % RING] = bench.random.standard_normal(cols)
    bench.data["mtp.ring"] = ring
    y = mtp_input(ops, e, None if source == "ring" else hidden, cols, norms, from_layer=source == "own")
    gpu, host = bench.run(ops)
    n = bench.n
    check(bench, gpu[y.name][:n], host[y.name][:n])
    assert not gpu[y.name][:n, 2 * cols :].any()
    assert np.isnan(gpu[y.name][n:]).all()
    if source == "batch":
        np.testing.assert_array_equal(gpu["mtp.ring"], host["mtp.ring"])


@in_turn(
    "setup, cols, source, kind",
    [(BATCHES[4], 33, "ring", "raw"), (BATCHES[4], 64, "own", "raw"), (BATCHES[2], 130, "ring", "normed"),
     (BATCHES[4], 257, "own", "normed"), (BATCHES[2], 40, "own", "normed")],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_the_layer_adds_to_the_state_before(bench: Bench, setup: Setup, cols: int, source: str, kind: str) -> None:
    """As it is or normalised; the layer's own state is where the sum will be."""
    ops = bench.begin(setup)
    e, x = ops.rows("e", cols), ops.rows("x", cols)
    bench.fill(e)
    bench.fill(x)
    norms = bench.vector("norms", 2 * cols)
    ring = bench.random.standard_normal((MAX_SEQUENCES, RING, cols)).astype(np.float32)
    if source == "ring":
        bench.data["mtp.ring"] = ring
    before = bench.data[x.name].copy()
    residual, own = Residual(x, kind == "normed"), source == "own"
    y = mtp_input(ops, e, x if own else None, cols, InputNorms(norms, EPS), from_layer=own, residual=residual)
    gpu, host = bench.run(ops)
    n, places = bench.n, setup.places or [(setup.pos, setup.seq)]
    state = np.stack([before[m, :cols] if own else ring[seq, (pos - 1) % RING] for m, (pos, seq) in enumerate(places)])
    state[[not pos for pos, _ in places]] = 0
    want = state if kind == "raw" else gpu[y.name][:n, cols : 2 * cols]
    np.testing.assert_array_equal(gpu[x.name][:n, :cols], want)
    check(bench, gpu[y.name][:n], host[y.name][:n])
    check(bench, gpu[x.name][:n, :cols], host[x.name][:n, :cols])
    assert not gpu[x.name][:n, cols:].any()
    np.testing.assert_array_equal(gpu[x.name][n:], before[n:])


@in_turn("setup, known", [(BATCHES[2], 40), (BATCHES[4], 1), (BATCHES[4], 63)], BOTH_ADAPTERS)
def test_tokens_that_a_head_does_not_know_are_never_sampled(bench: Bench, setup: Setup, known: int) -> None:
    ops = bench.begin(setup)
    vocab = ops.plan.n_vocab
    x = ops.rows("x", known)
    logits = ops.rows("logits", vocab) if setup.batch > 1 else ops.buffer("logits", (vocab,))
    bench.fill(x)
    tokens = bench.random.permutation(vocab)[:known].tolist()
    rows = token_rows(ops, "token_rows", tokens)
    bench.data[rows.name] = np.frombuffer(ops.plan.constants[rows.name], np.uint32).copy()
    map_logits(ops, x, known, rows, logits)
    gpu, host = bench.run(ops)
    n = bench.n
    want = np.full((n, vocab), np.float32(BANNED))
    want[:, tokens] = bench.data[x.name][:n, :known]
    for found in (gpu, host):
        np.testing.assert_array_equal(found[logits.name].reshape(-1, logits.shape[-1])[:n, :vocab], want)


@in_turn("setup, cols", [(BATCHES[0], 31), (BATCHES[1], 255), (BATCHES[3], 257), (BATCHES[2], 1)], BOTH_ADAPTERS)
def test_the_last_hidden_states_are_stored(bench: Bench, setup: Setup, cols: int) -> None:
    ops = bench.begin(setup)
    x, norm = ops.rows("x", cols), bench.vector("norm", cols)
    bench.fill(x)
    bench.data["mtp.ring"] = np.full((MAX_SEQUENCES, RING, cols), np.nan, np.float32)
    store_hidden(ops, x, norm, EPS)
    gpu, host = bench.run(ops)
    stored = np.isfinite(host["mtp.ring"])
    assert stored.any()
    assert (np.isfinite(gpu["mtp.ring"]) == stored).all()
    check(bench, gpu["mtp.ring"][stored], host["mtp.ring"][stored])


ANCHORED = ((37, 3), (1, 0), (64, 5), (190, 2))  # (position, sequence) of the newest tokens


@in_turn(
    "heads, kv_type, window",
    [((4, 2, 32), "f32", 0), ((4, 1, 64), "f16", 33), ((2, 2, 128), "q8_0", 31), ((8, 2, 32), "f16", 0)],
    BOTH_ADAPTERS,
)
def test_a_draft_attends_to_what_is_before_its_anchor(
    bench: Bench, heads: tuple[int, int, int], kv_type: str, window: int
) -> None:
    """Queries alone, which are rotated by the anchor. The draft has two tokens by now. Later rows are poisoned."""
    n_head, n_kv, dim = heads
    for places in ((), ANCHORED):
        newest = places or ((150, 3),)
        moved = tuple((pos + 2, seq) for pos, seq in places)
        batch = SHORT_BATCH if places else 1
        ops = bench.begin(Setup(batch=batch, n=1, pos=152, n_ctx=200, seq=3, places=moved))
        anchor = shift_index(200, ops.plan.page)
        for pos, seq in newest:
            bench.data["state"][TABLES // 4 + anchor + seq] = pos
        x, cache = ops.rows("x", 64), bench.cache(n_kv * dim, kv_type)
        bench.fill(x)
        for pos, seq in newest if kv_type != "q8_0" else ():
            for b in (cache.k, cache.v):
                bench.data[b.name][bench.cache_rows(range(pos, 200), seq)] = np.nan
        rope = Rope(dim, Pairs.HALVES, ops.buffer("freqs", (dim // 2,), "u32", "state"), anchor=anchor)
        bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
        projection = Projection([bench.weight("w", Q.F16, n_head * dim, 64)], norm=bench.vector("norm", 64), eps=EPS)
        q = ops.qkv(x, projection, cache, heads, rope, HeadNorm(bench.vector("heads", 2 * dim)))
        y = ops.attention(q, cache, heads, AttentionOptions(1.0, window, anchor=anchor))
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][: len(newest), : n_head * dim], host[y.name][: len(newest), : n_head * dim])


@in_turn(
    "heads, kv_type, places",
    [((4, 2, 32), "f32", ()), ((4, 1, 64), "f16", ((37, 3), (1, 0), (0, 5), (990, 2))),
     ((2, 2, 128), "f16", ((64, 1), (65, 0))), ((8, 2, 32), "f32", ((33, 0), (2, 1)))],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_the_first_position_is_not_seen(
    bench: Bench, heads: tuple[int, int, int], kv_type: str, places: tuple[tuple[int, int], ...]
) -> None:
    """Its row is poisoned, but for a token there, which sees itself."""
    n_head, n_kv, dim = heads
    batch, newest = (SHORT_BATCH, places) if places else (1, ((930, 3),))
    ops = bench.begin(Setup(batch=batch, n=1, pos=930, n_ctx=1000, seq=3, places=places))
    q, cache = ops.rows("q", n_head * dim), bench.cache(n_kv * dim, kv_type)
    bench.fill(q)
    for pos, seq in newest:
        for b in (cache.k, cache.v) if pos else ():
            bench.data[b.name][bench.cache_rows([0], seq)] = np.nan
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, first=1))
    gpu, host = bench.run(ops)
    found = gpu[y.name][: len(newest), : n_head * dim]
    assert np.isfinite(found).all()
    check(bench, found, host[y.name][: len(newest), : n_head * dim])
    for (pos, seq), row in zip(newest, found, strict=True):
        if pos < 2:  # the token sees itself alone
            (at,) = bench.cache_rows([pos], seq)
            value = np.repeat(
                bench.data[cache.v.name][at].astype(np.float32).reshape(n_kv, dim), n_head // n_kv, axis=0
            )
            check(bench, row, value.reshape(-1))


@in_turn(
    "heads, kv_type, window, places",
    [((4, 2, 32), "f32", 0, ((38, 3), (39, 3), (40, 3), (37, 3))),
     ((4, 1, 64), "f16", 0, ((991, 2), (992, 2), (63, 0), (64, 0), (990, 2), (62, 0))),
     ((2, 2, 128), "f16", 20, ((64, 1), (65, 1), (1, 5), (63, 1), (0, 5))),
     ((8, 2, 32), "f32", 3, ((34, 0), (35, 0), (36, 0), (37, 0), (38, 0), (39, 0), (40, 0), (33, 0)))],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_tokens_of_a_block_see_each_other(
    bench: Bench, heads: tuple[int, int, int], kv_type: str, window: int, places: tuple[tuple[int, int], ...]
) -> None:
    """Each sees all up to the last one of its sequence, in whichever order the rows are, and nothing after it."""
    n_head, n_kv, dim = heads
    ops = bench.begin(Setup(batch=SHORT_BATCH, n=1, pos=0, n_ctx=1000, places=places))
    q, cache = ops.rows("q", n_head * dim), bench.cache(n_kv * dim, kv_type)
    bench.fill(q)
    ends = {seq: 1 + max(pos for pos, other in places if other == seq) for _, seq in places}
    for seq, end in ends.items():
        for b in (cache.k, cache.v):
            bench.data[b.name][bench.cache_rows([end], seq)] = np.nan
    y = ops.attention(q, cache, heads, AttentionOptions(dim**-0.5, window, mutual=True))
    gpu, host = bench.run(ops)
    found = gpu[y.name][: len(places), : n_head * dim]
    assert np.isfinite(found).all()
    check(bench, found, host[y.name][: len(places), : n_head * dim])
    keys, values = (bench.data[b.name].astype(np.float64) for b in (cache.k, cache.v))
    queries = bench.data[q.name][: len(places), : n_head * dim].reshape(-1, n_head, dim)
    for (pos, seq), query, row in zip(places, queries, found, strict=True):
        seen = bench.cache_rows(range(max(0, pos + 1 - window) if window else 0, ends[seq]), seq)
        k, v = (np.repeat(x[seen].reshape(len(seen), n_kv, dim), n_head // n_kv, axis=1) for x in (keys, values))
        weights = np.exp(np.einsum("hd,khd->hk", query, k) / np.sqrt(dim))
        want = np.einsum("hk,khd->hd", weights / weights.sum(axis=1, keepdims=True), v)
        check(bench, row, want.reshape(-1).astype(np.float32))
