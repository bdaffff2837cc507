"""Adapters that control tokens switch on: GPU against numpy."""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.switched import LowRank, add_low_rank, switch
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check, tolerance
from tests.support.kernels.variants import in_turn

VOCAB, CONTROL, SUBSTITUTES = 40, (7, 30, 12), (1, 2, 39)
PLACES = ((3, 0), (90, 2), (0, 1), (91, 2))  # (position, sequence)


@in_turn(
    "setup, others",
    [
        (Setup(batch=70, n=66, vocab=VOCAB, n_ctx=192, seq=2), 1e-13),
        (Setup(batch=8, n=4, vocab=VOCAB, n_ctx=192, places=PLACES), 0.02),
        (Setup(batch=1, n=1, pos=150, vocab=VOCAB, n_ctx=192), 1e-13),
    ],
)
def test_adapters_of_tokens(bench: Bench, setup: Setup, others: float) -> None:
    """What precedes a sequence's tokens, and other sequences, do not count."""
    ops = bench.begin(setup)
    found = switch(ops, CONTROL, SUBSTITUTES, others)
    route = found.route
    bench.data["control"] = np.frombuffer(ops.plan.constants["control"], np.float32).reshape(1, -1)
    x, y = ops.rows("x", 33), ops.rows("y", 48)
    bench.fill(x)
    bench.fill(y)
    slots, rank = len(CONTROL) + 1, 5
    pairs = []
    for row0, rows in ((0, 16), (16, 32)):
        a = bench.weight(f"a{row0}", Q.F32, slots * rank, 33)
        pairs.append(LowRank(a, bench.weight(f"b{row0}", Q.F32, slots * rows, rank), row0))
    add_low_rank(ops, found, x, pairs, y)
    gpu, host = bench.run(ops)
    n = bench.n
    assert np.array_equal(gpu[route.chosen.name][:n], host[route.chosen.name][:n])
    assert len(set(host[route.chosen.name][:n, 0])) > 1 or n == 1
    assert np.array_equal(gpu[found.tokens.name], host[found.tokens.name])
    check(bench, gpu["test.y"][:n, :48], host["test.y"][:n, :48], tolerance(bench))
