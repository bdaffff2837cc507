"""The kernel of multi-token prediction layers, with awkward shapes: GPU against numpy, as in test_kernels.py."""

import numpy as np

from py_engine.plan.mtp import RING, mtp_input
from py_engine.plan.shared import MAX_SEQUENCES
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
    "setup, cols, source",
    [(BATCHES[0], 70, "batch"), (BATCHES[1], 64, "batch"), (BATCHES[4], 33, "ring"), (BATCHES[3], 100, "batch"),
     (BATCHES[4], 40, "own"), (BATCHES[2], 130, "batch")],
    BOTH_ADAPTERS,
)  # fmt: skip
def test_the_input_joins_a_token_with_the_state_before(bench: Bench, setup: Setup, cols: int, source: str) -> None:
    ops = bench.begin(setup)
    e, hidden, norms = ops.rows("e", cols), ops.rows("hidden", cols), bench.vector("norms", 2 * cols)
    bench.fill(e)
    bench.fill(hidden)
    ring = np.full((MAX_SEQUENCES, RING, cols), np.nan, np.float32)
    begins = {seq: pos for pos, seq in reversed(setup.places or [(setup.pos, 0)])}
    for seq, pos in begins.items():
        if pos:
            ring[seq, (pos - 1) % RING] = bench.random.standard_normal(cols)
    bench.data["mtp.ring"] = ring
    y = mtp_input(ops, e, None if source == "ring" else hidden, norms, EPS, own=source == "own")
    gpu, host = bench.run(ops)
    n = bench.n
    check(bench, gpu[y.name][:n], host[y.name][:n])
    assert not gpu[y.name][:n, 2 * cols :].any()
    assert np.isnan(gpu[y.name][n:]).all()
    if source == "batch":
        np.testing.assert_array_equal(gpu["mtp.ring"], host["mtp.ring"])
