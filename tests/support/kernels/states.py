"""Batches of the tests of kernels with states, and what they compare."""

import numpy as np

from py_engine.plan.pages import TABLES
from py_engine.plan.states import States, StateShape, make_states
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check

# the middle of a sequence, its beginning, one token, runs of several sequences, a packed batch with two segments
BATCHES = [
    Setup(batch=19, n=19, pos=5),
    Setup(batch=3, n=2, pos=0),
    Setup(batch=1, n=1, pos=4),
    Setup(batch=8, n=6, places=((6, 1), (7, 1), (8, 1), (0, 0), (9, 2))),
    Setup(batch=12, n=11, pos=3, segments=(5, 9)),
    Setup(batch=20, n=2, pos=1),
]


def states(bench: Bench, shape: StateShape, setup: Setup) -> States:
    """Slots with random states, and NaN in the halves that no kernel may read."""
    found = make_states(bench.plan, 0, shape)
    slots = bench.data["state"][TABLES // 4 + found.paging["TABLE"] :][:: found.paging["PAGES"]]
    places = list(setup.places) or [(setup.pos + i, setup.seq) for i in range(setup.n)]
    first: dict[int, int] = {}
    for position, seq in places:
        first.setdefault(seq, position)
    for buffer in (found.matrices, found.windows):
        values = np.full((bench.pages, *buffer.shape[1:]), np.nan, np.float32)
        for seq, position in first.items():
            if position:
                values[slots[seq], (position - 1) % 2] = bench.random.standard_normal(buffer.shape[2])
        bench.data[buffer.name] = values
    return found


def compare(bench: Bench, found: States, name: str, cols: int, gpu: dict, host: dict) -> None:
    n = bench.n
    check(bench, gpu[name][:n, :cols], host[name][:n, :cols], 1e-9)
    assert np.isnan(gpu[name][n:]).all()
    for buffer in (found.matrices, found.windows):
        got, want = gpu[buffer.name], host[buffer.name]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        check(bench, np.nan_to_num(got), np.nan_to_num(want), 1e-9)
