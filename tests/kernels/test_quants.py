"""Every quantised type: raw blocks through repack, the embedding gather, mat-vec and mat-mul, against gguf.quants.

The blocks are random bits (dequant.npz), which cover every code, sub-scale and sign of a format. Pipelines compile
slowly on software GPUs, so each type runs in one variant per adapter.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.files.tensor_types import TensorType as Q
from py_engine.gpu.repack import repacks
from py_engine.plan import quants
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Weight
from tests.support.kernels.bench import Bench, Setup, dispatch, nmse, planes, variants
from tests.support.kernels.quantised import BLOCKS, matrix
from tests.support.pairs import pairs

TYPES = [t for t in quants.LAYOUTS if not quants.LAYOUTS[t].plain]
ADAPTERS = {"swiftshader": "f32 subgroups", "lavapipe": "f16 subgroups"}
each_type = pytest.mark.parametrize("type", TYPES, ids=lambda t: t.name)


def name_of(value: Any) -> str:
    """A parameter's name in pytest."""
    return value.name if isinstance(value, Q) else str(value)


# The products of each type run on both adapters. What copies values or bits runs on one.
each_type_on_one = pytest.mark.parametrize(
    ("one_bench", "type"),
    [(list(ADAPTERS)[i % 2], type) for i, type in enumerate(TYPES)],
    indirect=["one_bench"],
    ids=name_of,
)


@pytest.fixture
def one_bench(request: pytest.FixtureRequest, kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """A bench for one variant of each adapter."""
    page, capabilities = kernel_pages(request.param)
    return Bench(page, variants(capabilities)[ADAPTERS[request.param]])


@each_type_on_one
def test_embed(one_bench: Bench, type: Q) -> None:
    """Every block of the file, bit for bit."""
    bench = one_bench
    block = quants.LAYOUTS[type].block
    values = BLOCKS[f"{type.name}.f32"]
    rows, cols = (8, 96) if block == 32 else (24 * block // 512, 512)
    ops = bench.begin(Setup(batch=rows, n=rows, vocab=rows))
    bench.data["tokens"][0, :rows] = np.arange(rows)
    x = ops.embed(matrix(bench, type, "table", rows, cols))
    gpu, _ = bench.run(ops)
    got = gpu[x.name].reshape(-1, block)
    for number, (ours, want) in enumerate(zip(got, values, strict=True)):
        if np.abs(want).max() > 1e-30:  # GPUs may flush smaller values to zero
            assert nmse(ours, want) < 1e-12, f"block {number}"


@pytest.mark.parametrize(
    ("one_bench", "type", "batch"), pairs(tuple(ADAPTERS), TYPES, (1, 5)), indirect=["one_bench"], ids=name_of
)
def test_products(one_bench: Bench, type: Q, batch: int) -> None:
    """One token with mat-vec, or several tokens with mat-mul: a type runs one of them on each adapter."""
    got, want = product(one_bench, type, batch)
    assert nmse(got, want) < (1e-5 if one_bench.device.f16 else 1e-7)


@pytest.mark.parametrize("one_bench", ["lavapipe"], indirect=True)
@pytest.mark.parametrize("batch", [1, 5])
@each_type
def test_bytes(one_bench: Bench, type: Q, batch: int) -> None:
    """Mat-vec and mat-mul with activations in bytes. Values midway between two bytes may round either way."""
    assert quants.LAYOUTS[type].dot8
    got, want = product(Bench(one_bench.page, replace(one_bench.device, dot8=True)), type, batch)
    assert nmse(got, want) < 1e-5


def product(bench: Bench, type: Q, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """The results (GPU, numpy) of y += x W^T."""
    ops = bench.begin(Setup(batch=batch, n=batch))
    rows, cols = 37, 3 * (96 if quants.LAYOUTS[type].block == 32 else quants.LAYOUTS[type].block)
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    bench.fill(x)
    bench.fill(y)
    ops.linear(x, matrix(bench, type, "w", rows, cols, tame=True), None, y)
    gpu, host = bench.run(ops)
    return gpu[y.name][:, :rows], host[y.name][:, :rows]


@each_type_on_one
def test_repack(one_bench: Bench, type: Q) -> None:
    """Repack two pieces of a matrix from odd bytes of the staging buffer to rows that start in the middle of a word."""
    bench = one_bench
    rows, cols = 7, quants.LAYOUTS[type].block
    size = quants.LAYOUTS[type].block_bytes
    want = np.random.default_rng(0).integers(0, 256, rows * size, dtype=np.uint8)
    weight = Weight("w", type, rows, cols, (("w", 0, rows),))
    got = {k: np.zeros(weight.plane_bytes(k), np.uint8) for k in weight.layout.planes}
    for k, plane in weight.layout.planes.items():
        got[k][: plane.table] = np.frombuffer(quants.grid(type) if plane.table else b"", np.uint8)
    for row0, n, src in ((0, 3, 6), (3, 4, 9)):
        raw = np.full(16 + rows * size, 0xEE, np.uint8)
        raw[src : src + n * size] = want[row0 * size : (row0 + n) * size]
        for job in repacks(Placement(weight, src, row0, n, size), bench.device):
            contents = {"raw": raw, job.binding: got[job.plane]}
            got[job.plane] = dispatch(bench.page, job.shader, contents, job.consts, list(job.grid))[job.binding]
    for name, expected in planes(weight, want).items():
        assert (got[name] == expected).all(), name
