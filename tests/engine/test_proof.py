"""Kernels are proven on the device before they are used, and wrong ones are replaced."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.support.browser import call_python
from tests.support.engine_driver import logits_of, run
from tests.support.tolerances import assert_close

GOLDEN = Path(__file__).parents[1] / "golden" / "llama"
URL = "/repo/tests/golden/llama/llama.Q4_0.gguf"
F32 = {"f16": False}
OPTIONS: dict[str, Any] = {"backend": "webgpu", "kv_type": "f32", "context_length": 256, "prove": True, "variant": F32}
Faults = list[tuple[str, str, str]]  # (how a kernel's label begins, from, to)
# A GPU that computes wrong: kernels' texts are edited on their way to the browser, which the engine cannot see.
EDIT = """(faults) => {
    globalThis.rightShaderModule ??= GPUDevice.prototype.createShaderModule;
    GPUDevice.prototype.createShaderModule = function (descriptor) {
        let { code } = descriptor;
        for (const [label, from, to] of faults)
            if ((descriptor.label ?? "").startsWith(label)) code = code.replaceAll(from, to);
        return globalThis.rightShaderModule.call(this, { ...descriptor, code });
    };
}"""
SUBGROUPS: Faults = [("matvec ", "subgroupShuffleXor(sum, width)", "subgroupShuffleXor(sum, 1u)")]
NO_VARIANT: Faults = [("activate ", "gated(x[at], x[at + COLS])", "gated(x[at], x[at])")]
NOT_COMPILED: Faults = [("matvec ", "subgroupShuffleXor(sum, width)", "subgroupOf(sum, width)")]
NEVER_COMPILED: Faults = [("activate ", "gated(x[at], x[at + COLS])", "gated(nothing)")]
UPLOAD: Faults = [("repack ", "raw[i + 1u]", "raw[i]")]
SAMPLER: Faults = [("sample_shape ", "subgroupShuffleXor(best_of_block.value, block)", "value")]


pytestmark = pytest.mark.lavapipe


@pytest.fixture
def page(engine_pages: Callable[[str | None], Page]) -> Iterator[Page]:
    """A page on which nothing is proven yet, and that forgets these tests' faults: other tests use it, too."""
    page = engine_pages("lavapipe")  # whose shader cache has what an earlier load compiled
    call_python(page, "proof_faults.forget")
    yield page
    call_python(page, "proof_faults.forget")


def load(page: Page, faults: Faults, **options: Any) -> dict[str, Any]:
    """Load a model on a GPU with faults, check its logits, and return what the engine says."""
    golden = np.load(GOLDEN / "llama.Q4_0.npz")
    arguments = {"prompt": golden["prompt"].tolist(), "count": 4}
    page.evaluate(EDIT, faults)
    try:
        out = run(page, URL, "engines.evaluate_and_generate", arguments, **{**OPTIONS, **options})
    finally:
        page.evaluate(EDIT, [])
    assert_close(golden["logits_ref"], logits_of(out), "f32")
    assert out["ids"] == golden["greedy"][:4].tolist()
    return out


def test_kernels_are_proven_once(page: Page) -> None:
    first = load(page, [])
    assert first["proof"]["checked"] > 15
    assert not first["proof"]["wrong"]
    assert not first["proof"]["skipped"]
    assert not first["notices"]
    assert first["proof"]["prepare_ms"] > 0  # while kernels were compiled
    again = load(page, [])["proof"]
    assert (again["checked"], again["ms"], again["prepare_ms"]) == (0, 0, 0)
    assert again["known"] == first["proof"]["known"] + first["proof"]["checked"]


def test_wrong_kernels_are_replaced_by_another_variant(page: Page) -> None:
    out = load(page, SUBGROUPS)
    assert out["backend"] == "webgpu"
    assert out["kernels"]["device"]["subgroup"] == 0
    assert list(out["proof"]["wrong"]) == ["matvec"]
    assert out["proof"]["without"] == "subgroups"
    (notice,) = out["notices"]
    assert notice.startswith("The kernel matvec does not work on this GPU (matvec: ")
    assert notice.endswith("The model runs without subgroups.")
    again = load(page, SUBGROUPS)
    assert again["proof"]["checked"] == 0
    assert again["notices"] == [notice]


def test_kernels_that_do_not_compile_are_replaced_too(page: Page) -> None:
    """As in a browser whose compiler lacks something."""
    out = load(page, NOT_COMPILED)
    assert (out["backend"], out["proof"]["without"]) == ("webgpu", "subgroups")
    (notice,) = out["notices"]
    assert notice.startswith("The kernel matvec does not work on this GPU (it does not compile: ")
    assert load(page, NOT_COMPILED)["notices"] == [notice]  # known, so no second attempt


@pytest.mark.parametrize("faults", [NO_VARIANT, NEVER_COMPILED, UPLOAD])
def test_without_a_right_variant_the_cpu_takes_over(page: Page, faults: Faults) -> None:
    out = load(page, faults, backend="auto", variant=F32 | {"software": False})
    assert out["backend"] == "cpu"
    assert list(out["proof"]["wrong"]) == [faults[0][0].strip()]
    assert out["notices"][0].endswith("The model runs on the CPU, which is slower.")
    with pytest.raises(AssertionError, match="No variant of it is right"):
        load(page, faults)


def test_kernels_of_a_sampler_are_proven_when_a_request_needs_them(page: Page) -> None:
    """The request waits until the model is loaded with right kernels. Its answer is the one of a right GPU."""
    prompt = np.load(GOLDEN / "llama.Q4_0.npz")["prompt"].tolist()
    arguments = {"url": URL, "options": OPTIONS, "prompt": prompt}
    right = run(page, URL, "proof_faults.penalised_answer", arguments, **OPTIONS)
    assert not right["notices"]
    call_python(page, "proof_faults.forget")
    page.evaluate(EDIT, SAMPLER)
    try:
        out = run(page, URL, "proof_faults.penalised_answer", arguments, **OPTIONS)
    finally:
        page.evaluate(EDIT, [])
    assert out["ids"] == right["ids"]
    assert "sample_shape" in out["proof"]["wrong"]
    assert "the model was loaded again" in out["notices"][0]
