"""Products of prompts in each tile of a GPU without subgroup matrices: a token has the same bits in all of them."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import matmul_tiles
from py_engine.plan.plan import PerToken
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import in_turn


@in_turn(
    "type, rows, cols, n, precise",
    [
        (Q.Q6_K, 70, 256, 37, False),
        (Q.F16, 131, 70, 65, False),
        (Q.Q4_0, 33, 96, 17, True),
        (Q.F32, 65, 33, 64, False),
    ],
    ["lavapipe: f16", "swiftshader: f32"],
)
def test_floats(bench: Bench, type: Q, rows: int, cols: int, n: int, precise: bool) -> None:
    """Tokens, rows and columns that do not fill whole tiles; columns of padding are NaN.

    WIDE_TILE needs more workgroup memory than software GPUs have: one with as many sums of a thread stands for it.
    """
    wide = 64, 64, *matmul_tiles.WIDE_TILE[2:]
    _check_tiles(bench, matmul_tiles.FLOAT, (*matmul_tiles.FLOAT_TILES, wide), (type, rows, cols, n), precise)


@pytest.mark.parametrize(("type", "cols"), [(Q.Q6_K, 256), (Q.Q4_0, 96)])
def test_bytes(plain_bench: Bench, type: Q, cols: int) -> None:
    """Groups with two scales; three groups, which are no whole steps."""
    bench = Bench(plain_bench.page, replace(plain_bench.device, dot8=True))
    _check_tiles(bench, matmul_tiles.INT8, matmul_tiles.INT8_TILES, (type, 70, cols, 37))


def _check_tiles(
    bench: Bench, names: tuple[str, ...], tiles: tuple[tuple[int, ...], ...], shape: tuple[Q, int, int, int],
    precise: bool = False,
) -> None:  # fmt: skip
    """Compare a product in every tile with numpy's, and all of them with each other."""
    type, rows, cols, n = shape
    ops = bench.begin(Setup(batch=n + 3, n=n))
    ops.precise = precise
    x = ops.rows("x", cols)
    bench.fill(x)[:, cols:] = np.nan
    w = bench.weight("w", type, rows, cols) if type in (Q.F16, Q.F32) else matrix(bench, type, "w", rows, cols, True)
    y = ops.project("y", x, w, bench.vector("bias", rows))
    *before, usual = ops.ops
    found = []
    for tile in tiles:
        params = dict(zip(names, tile, strict=True))
        ops.ops[:] = [
            *before,
            replace(usual, params=usual.params | params, grid=(-(-rows // params["TN"]), PerToken(params["TM"]), 1)),
        ]
        gpu, host = bench.run(ops)
        check(bench, gpu[y.name][:n, :rows], host[y.name][:n, :rows], 1e-6 if "STEP" in names else None)
        assert np.isnan(gpu[y.name][n:]).all()
        found.append(gpu[y.name][:n, :rows])
    for other in found[1:]:
        assert (other == found[0]).all()
