"""The kernels of multi-token prediction layers and assistants, with awkward shapes: GPU against numpy.

Outputs are poisoned, as in test_kernels.py.
"""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.mtp import RING, mtp_input, store_hidden
from py_engine.plan.ops import AttentionOptions, HeadNorm, Projection
from py_engine.plan.pages import TABLES, shift_index
from py_engine.plan.rope import Rope, frequencies, table
from py_engine.plan.shared import MAX_SEQUENCES, SHORT_BATCH
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
    norms = None if is_plain else bench.vector("norms", 2 * cols)
    bench.fill(e)
    bench.fill(hidden)
    ring = np.full((MAX_SEQUENCES, RING, cols), np.nan, np.float32)
    begins = {seq: pos for pos, seq in reversed(setup.places or [(setup.pos, 0)])}
    for seq, pos in begins.items():
        if pos:
            ring[seq, (pos - 1) % RING] = bench.random.standard_normal(cols)
    bench.data["mtp.ring"] = ring
    y = mtp_input(ops, e, None if source == "ring" else hidden, cols, norms, EPS, own=source == "own")
    gpu, host = bench.run(ops)
    n = bench.n
    check(bench, gpu[y.name][:n], host[y.name][:n])
    assert not gpu[y.name][:n, 2 * cols :].any()
    assert np.isnan(gpu[y.name][n:]).all()
    if source == "batch":
        np.testing.assert_array_equal(gpu["mtp.ring"], host["mtp.ring"])


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
        rope = Rope(dim, True, ops.buffer("freqs", (dim // 2,), "u32", "state"), anchor=anchor)
        bench.data["freqs"] = np.frombuffer(table(frequencies(dim, 10000.0)), np.uint32).copy()
        projection = Projection([bench.weight("w", Q.F16, n_head * dim, 64)], norm=bench.vector("norm", 64), eps=EPS)
        q = ops.qkv(x, projection, cache, heads, rope, HeadNorm(bench.vector("heads", 2 * dim)))
        y = ops.attention(q, cache, heads, AttentionOptions(1.0, window, anchor=anchor))
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][: len(newest), : n_head * dim], host[y.name][: len(newest), : n_head * dim])
