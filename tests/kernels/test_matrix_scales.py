"""Products with matrices that have scales of their own (NAME.scale), stacked: GPU against numpy."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import experts
from py_engine.plan.experts import ExpertNetwork
from py_engine.plan.ops import Projection
from py_engine.plan.plan import Weight
from py_engine.plan.routing import Routing, choose_experts
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import in_pairs

FIVE = ((30, 0), (7, 3), (8, 3), (9, 3), (0, 5))  # (position, sequence)
Places = tuple[tuple[int, int], ...]


def scaled(bench: Bench, weight: Weight, rows: Sequence[int], each: int = 1) -> Weight:
    """A weight as if it stacked tensors of so many rows, which have `each` scales."""
    names = [f"{weight.name}.{i}" for i in range(len(rows))]
    scales = bench.vector(f"{weight.name}.scales", len(rows) * each)
    sources = tuple((f"{name}.scale", 0, 1) for name in names)
    tensors = tuple((f"{name}.weight", 0, n) for name, n in zip(names, rows, strict=True))
    return replace(weight, sources=tensors, scales=replace(scales, sources=sources))


@in_pairs(
    ("type", [Q.F16, Q.Q4_0, Q.NVFP4]),
    ("stack", [(5, 33, 24), (31, 31), (40,)]),
    ("batch, places", [(1, ()), (SHORT_BATCH, FIVE), (70, ())]),
    ("dot8", [False, True]),
)
def test_products(bench: Bench, type: Q, stack: tuple[int, ...], batch: int, places: Places, dot8: bool) -> None:
    """Of one token, a small batch and many: added, with a bias; stored, of a norm; and gated."""
    bench, n = Bench(bench.page, replace(bench.device, dot8=dot8)), len(places) or batch
    ops = bench.begin(Setup(batch=batch, n=n, places=places))
    rows, cols = sum(stack), 128
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    for b in (x, y):
        bench.fill(b)
    made = bench.weight("w", type, rows, cols) if type == Q.F16 else matrix(bench, type, "w", rows, cols, tame=True)
    weight, norm = scaled(bench, made, stack), bench.vector("norm", cols)
    ops.linear(x, weight, bench.vector("bias", rows), y)
    results = [(y, rows), (ops.normed_stack("z", x, Projection([weight], None, norm, EPS)), rows)]
    if len(stack) == 2:
        results.append((ops.gated(x, Projection([weight], None, norm, EPS)), rows // 2))
    gpu, host = bench.run(ops)
    for b, count in results:
        check(bench, gpu[b.name][:n, :count], host[b.name][:n, :count], 1e-4 if dot8 else None)


@in_pairs(("type", [Q.F16, Q.NVFP4]), ("batch", [1, 9]))
def test_experts(bench: Bench, type: Q, batch: int) -> None:
    """Each expert's gate and up have a scale."""
    n, used, cols, n_ff = 5, 2, 64, 64
    ops = bench.begin(Setup(batch=batch, n=batch))
    x, y, logits = ops.rows("x", cols), ops.rows("y", cols), ops.rows("router", n)
    for b in (x, y, logits):
        bench.fill(b)
    sizes = (("gate_up", 2 * n * n_ff), ("down", n * cols))
    inputs, down = (
        bench.weight(name, type, rows, cols, 0.3) if type == Q.F16 else matrix(bench, type, name, rows, cols, tame=True)
        for name, rows in sizes
    )
    inputs = scaled(bench, inputs, (n * n_ff, n * n_ff), n)
    network = ExpertNetwork([(inputs, None)], (down, None), n_ff, "silu", True)
    route = choose_experts(ops, logits, Routing(n, used, True, 0.5))
    experts.combine(ops, experts.hidden(ops, route, x, network), network.down, y)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:batch, :cols], host[y.name][:batch, :cols], 1e-4)


def test_an_op_that_applies_no_scales_refuses_them(plain_bench: Bench) -> None:
    ops = plain_bench.begin(Setup(batch=1, n=1))
    table = scaled(plain_bench, plain_bench.weight("w", Q.F16, 64, 32), (64,))
    with pytest.raises(WispError, match=r"w\.0\.scale") as error:
        ops.embed(table)
    assert error.value.code == "unsupported_quantization"


@pytest.mark.parametrize("epilogue", ["store", "add", "gated"])
def test_products_in_matrices(plain_bench: Bench, epilogue: str) -> None:
    """Results that leave the matrices of a subgroup are scaled one by one."""
    bench = Bench(plain_bench.page, replace(plain_bench.device, subgroup=32, matrix=16))
    ops = bench.begin(Setup(batch=70, n=70))
    ops.precise = True  # else "add" is not "accumulate" without scales
    x, y = ops.rows("x", 64), ops.rows("y", 128)
    for b in (x, y):
        bench.fill(b)
    weight, bias = scaled(bench, bench.weight("w", Q.F16, 128, 64), (64, 64)), bench.vector("bias", 128)
    if epilogue == "add":
        ops.linear(x, weight, bias, y)
    elif epilogue == "store":
        y = ops.project("z", x, weight, bias)
    else:
        y = ops.gated(x, Projection([weight], bias))
    assert ops.ops[0].kernel == "matmul_matrix"
    ops.ops[0] = replace(ops.ops[0], params=ops.ops[0].params | {"DEPTH": 64})  # in f32, 128 exceed workgroup memory
    gpu, host = bench.run(ops)
    cols = 64 if epilogue == "gated" else 128
    check(bench, gpu[y.name][:, :cols], host[y.name][:, :cols], 1e-6)
