"""Products of many tokens with activations rounded to bytes (matmul_int8.wgsl). test_quants.py has every type."""

from dataclasses import replace

import numpy as np
import pytest

from bench.shapes import MIX, SHAPES, Shape, header
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import matmul_tiles, products
from py_engine.plan.lists import PREFILL
from py_engine.plan.plan import PerToken
from py_engine.plan.products import Product
from py_engine.planner import PlanOptions, make_plan
from py_engine.proof import comparison
from py_engine.proof.cases import cases
from tests.support.kernels.bench import Bench, Setup, nmse
from tests.support.kernels.proofs import run_case
from tests.support.kernels.quantised import matrix

KERNELS = {"quantize_rows", "matmul_int8"}


@pytest.mark.parametrize(
    ("type", "rows", "cols", "n", "tile"),
    [
        *((Q.Q4_K, 257, 512, 131, tile) for tile in matmul_tiles.INT8_TILES),
        (Q.Q6_K, 31, 256, 3, matmul_tiles.INT8_TILES[-1]),
        (Q.Q6_K, 33, 768, 65, matmul_tiles.INT8_TILES[-2]),
        (Q.Q4_0, 255, 96, 255, (16, 32, 2, 2, 2)),
        (Q.Q8_0, 1, 32, 1, matmul_tiles.INT8_TILES[-1]),
        (Q.Q2_K, 63, 256, 33, (16, 32, 2, 2, 2)),
    ],
)
def test_tiles(plain_bench: Bench, type: Q, rows: int, cols: int, n: int, tile: tuple[int, ...]) -> None:
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


@pytest.mark.parametrize(
    "shape", [SHAPES["llama-3.2-1b"], replace(SHAPES["qwen3-moe"], experts=4, experts_used=2, n_ff=256)]
)
def test_proof(plain_bench: Bench, shape: Shape) -> None:
    """The proof of a model's prompts has cases for the rounding and for the product, and right kernels pass."""
    device = replace(plain_bench.device, dot8=True)
    plan = make_plan(header(shape, MIX), device, PlanOptions(512, 64, "f16"))
    found = [c for c in cases(plan, device, [PREFILL], lambda _: False) if c.ops[0].kernel in KERNELS]
    assert {op.kernel for case in found for op in case.ops} == KERNELS
    for case in found:
        assert comparison.fault(case, run_case(plain_bench.page, case, device)) is None
