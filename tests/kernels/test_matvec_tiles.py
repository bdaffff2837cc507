"""Mat-vec with the tiles that tiles.py chooses for devices, against numpy."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import tiles
from py_engine.plan.ops import Projection
from py_engine.plan.rope import Pairs, Rope, frequencies, table
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import in_turn


@in_turn(
    "type, tile",
    [
        (Q.Q4_0, {"TK": 32, "TR": 8, "R": 8, "AHEAD": 1}),
        (Q.Q4_0, {"TK": 8, "TR": 32, "R": 1, "AHEAD": 5}),
        (Q.Q8_0, {"TK": 16, "TR": 16, "R": 2, "AHEAD": 2}),
        (Q.Q4_K, {"TK": 8, "TR": 16, "R": 4, "AHEAD": 2}),
        (Q.Q6_K, {"TK": 64, "TR": 4, "R": 2, "AHEAD": 1}),
        (Q.F16, {"TK": 64, "TR": 1, "R": 4}),
        (Q.F16, {"TK": 32, "TR": 2, "R": 8}),
    ],
)
def test_matvec_in_every_tile(bench: Bench, type: Q, tile: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles for matrices of many rows and of few, with every fusion of mat-vec."""
    monkeypatch.setattr(tiles, "matvec", lambda *_: tile)
    bench = Bench(bench.page, replace(bench.device, dot8=type is not Q.F16))
    cols, heads = 1280, (6, 2, 64)
    ops = bench.begin(Setup(batch=1, n=1))
    x, y = ops.rows("x", cols), ops.rows("y", 640)
    bench.fill(x)
    bench.fill(y)
    w = bench.weight("w", type, 640, cols) if type is Q.F16 else matrix(bench, type, "w", 640, cols, tame=True)
    norms = [bench.vector("norm", cols), None]
    hidden = ops.gated(x, Projection([w], None, norms[tile["R"] > 1], EPS))
    cache = bench.cache(128, "f32")
    rope = Rope(64, Pairs.HALVES, ops.buffer("freqs", (32,), "u32", "state"))
    bench.data["freqs"] = np.frombuffer(table(frequencies(64, 10000.0)), np.uint32).copy()
    q = ops.qkv(x, Projection([w], None, norms[tile["R"] == 1], EPS), cache, heads, rope)
    ops.linear(x, w, None, y)
    gpu, host = bench.run(ops)
    for b, rows in ((hidden, 320), (q, 384), (y, 640)):
        check(bench, gpu[b.name][:, :rows], host[b.name][:, :rows], 1e-6 if bench.device.dot8 else None)
