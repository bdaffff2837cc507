"""Products of many tokens with activations rounded to bytes (matmul_int8.wgsl). test_quants.py has every type."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import matmul_tiles, products
from py_engine.plan.plan import PerToken
from py_engine.plan.products import Product
from tests.support.kernels.bench import Bench, Setup, nmse
from tests.support.kernels.quantised import matrix


@pytest.mark.parametrize("tile", [(16, 32, 2, 2, 2), *matmul_tiles.INT8_TILES])
@pytest.mark.parametrize(
    ("type", "rows", "cols", "n"), [(Q.Q4_K, 257, 512, 131), (Q.Q6_K, 31, 256, 3), (Q.Q4_0, 255, 96, 255), (Q.Q8_0, 1, 32, 1)]
)
def test_tiles(plain_bench: Bench, tile: tuple[int, ...], type: Q, rows: int, cols: int, n: int) -> None:
    """Tiles of real GPUs, with a bias, both epilogues, and padding of tokens, rows and groups.

    The last token is the first once more: its bits are the same in a tile that is not full.
    """
    bench = Bench(plain_bench.page, replace(plain_bench.device, dot8=True))
    ops = bench.begin(Setup(batch=n + 5, n=n))
    x, y, z = ops.rows("x", cols), ops.rows("y", rows), ops.rows("z", rows)
    for b in (x, y):
        bench.fill(b)
        bench.data[b.name][n - 1] = bench.data[b.name][0]
    w = matrix(bench, type, "w", rows, cols, tame=True)
    ops.linear(x, w, bench.vector("bias", rows), y)
    products.append(ops, Product(x, w, z))
    assert [op.kernel for op in ops.ops] == ["quantize_rows", "matmul_int8", "matmul_int8"]
    named = dict(zip(matmul_tiles.INT8, tile, strict=True))
    grid = -(-rows // named["TN"]), PerToken(named["TM"]), 1
    ops.ops[1:] = [replace(op, params=op.params | named, grid=grid) for op in ops.ops[1:]]
    gpu, host = bench.run(ops)
    for b in (y, z):
        assert nmse(gpu[b.name][:n, :rows], host[b.name][:n, :rows]) < 1e-6
        assert (gpu[b.name][n - 1, :rows] == gpu[b.name][0, :rows]).all()
    assert np.isnan(gpu[z.name][n:]).all()
