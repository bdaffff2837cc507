"""What inspect() states before a download is what a load takes.

A selection of models covers every switch of a kernel and every tensor type; WISP_ALL=1: all models.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from bench.shapes import MIX, SHAPES
from tests.support.browser import call_python
from tests.support.golden_ops import representatives
from tests.support.pairs import pairs
from tools.goldens import GOLDEN, golden_models
from tools.paths import STATIC
from tools.selection import everything

MINI = "/repo/static/models/wisp-mini-q4_0.gguf"
ALL = golden_models()
SOME = ALL if everything() else representatives(tuple(ALL), types=True, strength=1)
MODELS = [str(p.relative_to(GOLDEN)) for p in ALL if p in SOME]

# Counts the bytes of the GPUBuffers that are not destroyed.
COUNT = """() => {
    if (globalThis.allocatedBytes) return;
    const create = GPUDevice.prototype.createBuffer, destroy = GPUBuffer.prototype.destroy;
    const live = new Map();
    GPUDevice.prototype.createBuffer = function (options) {
        const size = globalThis.allocateLittle ? Math.min(options.size, 1 << 20) : options.size;
        const buffer = create.call(this, { ...options, size });
        live.set(buffer, options.size);
        return buffer;
    };
    GPUBuffer.prototype.destroy = function () {
        live.delete(this);
        destroy.call(this);
    };
    globalThis.allocateLittle = false; // whether large buffers are counted, but made small
    globalThis.allocatedBytes = () => [...live.values()].reduce((sum, size) => sum + size, 0);
}"""


# Each model on one of the backends, in turn.
CASES = [(name, ("cpu", "webgpu")[at % 2]) for at, name in enumerate(MODELS)]


@pytest.fixture(scope="module")
def counting(engine_pages: Callable[[str | None], Page]) -> Page:
    """A page that counts the bytes of its GPUBuffers."""
    page = engine_pages("swiftshader")
    page.evaluate(COUNT)
    return page


def check(page: Page, name: str, backend: str, *, compiled: bool) -> None:
    """Compare what inspect() states with what a load takes."""
    url = f"/repo/tests/golden/{name}"
    got = call_python(page, "allocations.stated_and_taken", url=url, backend=backend, compiled=compiled)
    assert got["stated"]["total"] == pytest.approx(got["taken"], rel=0.03)
    assert got["stated"]["verdict"] == "fits"


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_memory_is_stated_within_3_percent(counting: Page, name: str, backend: str) -> None:
    """With WebGPU the load ends before its kernels are compiled, which takes long on a software GPU."""
    check(counting, name, backend, compiled=backend == "cpu")


@pytest.mark.parametrize(("backend", "type", "shape"), pairs(["cpu", "webgpu"], ["Q4_0", MIX], [*SHAPES]))
def test_memory_of_the_bench_s_shapes_is_stated_within_3_percent(
    counting: Page, shape: str, type: str, backend: str
) -> None:
    """From a header alone: the largest would take 18 GB."""
    counting.evaluate("globalThis.allocateLittle = true")
    try:
        got = call_python(counting, "allocations.of_shape", shape=shape, type=type, backend=backend)
    finally:
        counting.evaluate("globalThis.allocateLittle = false")
    assert got["stated"]["total"] == pytest.approx(got["taken"], rel=0.03)
    assert got["stated"]["context_length"] >= 512
    if backend == "webgpu":
        assert got["stated"]["verdict"] == "fits"


@pytest.mark.lavapipe
def test_what_kernels_need_beside_the_plan_is_little(engine_pages: Callable[[str | None], Page]) -> None:
    page = engine_pages("lavapipe")
    page.evaluate(COUNT)
    check(page, "llama/llama.Q4_0.gguf", "webgpu", compiled=True)


def test_the_context_is_shortened_before_a_model_is_too_large(counting: Page) -> None:
    """Wisp Mini's context is 2,048 tokens. A budget that is an estimate may be exceeded."""

    def verdicts(*capacities: tuple[int, bool], backend: str = "webgpu") -> list[dict[str, Any]]:
        return call_python(
            counting, "allocations.verdicts", url=MINI, backend=backend, capacities=[list(c) for c in capacities]
        )

    (whole,) = verdicts((1 << 32, False))
    less = whole["total"] - 1
    short, small, maybe = verdicts((less, False), (whole["weights"] - 1, False), (whole["weights"] - 1, True))
    assert (short["verdict"], short["context_length"]) == ("fits", whole["context_length"] // 2)
    assert short["total"] <= less
    assert (small["verdict"], maybe["verdict"]) == ("too_large", "maybe")
    assert "MiB" in small["advice"]
    assert whole["weights"] <= whole["bytes_per_token"] <= whole["weights"] + whole["kv"]
    assert whole["tokens_per_second"] > 0
    cpu, may_be = verdicts((1 << 32, True), (1 << 10, True), backend="cpu")
    assert may_be["verdict"] == "maybe"
    size = (STATIC / "models" / Path(MINI).name).stat().st_size  # nearly all of it is weights
    assert cpu["weights"] == pytest.approx(size, rel=0.03)
    assert cpu["weights"] <= cpu["bytes_per_token"] <= cpu["weights"] + cpu["kv"]
