"""The CPU engine beyond 4 GiB: 64-bit modules in wasmtime, when they are chosen, and what is refused.

tests/engine/test_memory64.py runs them in a browser.
"""

from contextlib import nullcontext
from typing import Any

import pytest

from py_engine import planner
from py_engine.cpu.call_layouts import WORD
from py_engine.cpu.device import HEADROOM, MAX_BYTES, MAX_BYTES_64, BrowserDevice, module_bytes
from py_engine.cpu.memory import Memory
from py_engine.errors import WispError
from py_engine.load_plan import CPU
from py_engine.loader import cpu_limit_error
from py_engine.plan import budget
from py_engine.plan.sampling import Sampling
from tests.support import wasm_engines
from tests.support.cpu_engines import EVERY, batches, collect
from tests.support.cpu_models import GOLDEN, golden, header
from tests.support.wasm_engines import rounded_logits
from tests.support.wasm_machine import Machine
from tools import wasm
from tools.paths import ROOT

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "kv_type", "variant"),
    [
        ("llama/llama.Q4_K_M", "f16", "pairs"),
        ("llama/llama.IQ2_XS", "f32", "dots"),  # a grid
        ("llama/mixtral.Q4_K_M", "q8_0", "pairs"),
        ("gpt_oss/gpt-oss.MXFP4_MOE", "f16", "simd"),  # biases of experts, attention sinks
        ("gemma/gemma3.Q8_0", "q8_0", "dots"),
        ("granite/granitehybrid.F16", "f16", "pairs"),  # states
    ],
)
async def test_64_bit_modules_compute_the_same_bits(name: str, kv_type: str, variant: str) -> None:
    """With all of the plan beyond 4 GiB: logits, an answer with every sampler, caches that grow and move."""
    path = GOLDEN / f"{name}.gguf"
    prompt, found = golden(path)[0]["prompt"].tolist(), []
    for bits, threads, skipped in (("", 1, 0), ("64", 1, 4 * GIB), ("64", 2, 12 * GIB)):
        engine = await wasm_engines.load(
            path, 256, kv_type=kv_type, variant=variant + bits, threads=threads, skipped=skipped
        )
        runner: Any = engine.runner
        assert min(runner._memory.of(w) for w in engine.plan.weights.values()) > skipped
        rounded = (await rounded_logits(engine, prompt)).tobytes()
        logits, _ = await engine.evaluate(prompt)
        await runner.reserve_pages([group.pages + 1 for group in engine.plan.page_groups], nullcontext)
        answer = await batches(engine, prompt, EVERY, 12)
        rows = [row for batch in answer for row in batch.logprobs or []]
        found.append((rounded, logits.tobytes(), rows))
    assert found[0] == found[1] == found[2]
    assert found[0][2]


async def test_a_32_bit_module_refuses_what_a_64_bit_one_takes() -> None:
    path = GOLDEN / "llama" / "llama.F32.gguf"
    with pytest.raises(WispError, match=r"needs 4\.\d GiB.*at most 4\.0 GiB.*64-bit WebAssembly") as raised:
        await wasm_engines.load(path, 256, skipped=4 * GIB)
    assert raised.value.code == "model_too_large"
    with pytest.raises(WispError, match=r"needs 16\.0 GiB.*at most 16\.0 GiB") as raised:
        await wasm_engines.load(path, 256, variant="pairs64", skipped=16 * GIB - (1 << 20))
    assert raised.value.code == "model_too_large"
    assert "64-bit" not in str(raised.value)


async def test_caches_that_cannot_grow_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sequence then waits; the one that runs goes on."""
    path = GOLDEN / "llama" / "llama.F32.gguf"
    engine = await wasm_engines.load(path, 256)
    prompt, greedy = golden(path)[0]["prompt"].tolist(), Sampling(temperature=0)
    wanted = await collect(engine, prompt, greedy, 8)
    runner: Any = engine.runner
    memory: Memory = runner._memory
    before = memory.end, [memory.buffer(name) for name in engine.plan.buffers]

    async def full(self: Machine, end: int) -> None:
        assert end > before[0]
        raise WispError("There is no more.", "out_of_memory")

    monkeypatch.setattr(Machine, "grow", full)
    with pytest.raises(WispError, match="no more"):
        await runner.reserve_pages([group.pages + 1 for group in engine.plan.page_groups], nullcontext)
    assert (memory.end, [memory.buffer(name) for name in engine.plan.buffers]) == before
    engine.forget()
    runner._lists.forget()
    assert await collect(engine, prompt, greedy, 8) == wanted


@pytest.mark.parametrize(
    ("size", "most", "expected"),
    [
        (1 << 20, MAX_BYTES_64, MAX_BYTES),
        (MAX_BYTES - HEADROOM, MAX_BYTES_64, MAX_BYTES),
        (MAX_BYTES - HEADROOM + 1, MAX_BYTES_64, MAX_BYTES_64),
        (MAX_BYTES - HEADROOM + 1, MAX_BYTES, MAX_BYTES),  # without memory64
        (5 * GIB, MAX_BYTES, MAX_BYTES),
    ],
)
def test_only_large_plans_get_a_64_bit_module(size: int, most: int, expected: int) -> None:
    assert module_bytes(size, most) == expected


def test_plans_that_exceed_the_browser_s_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """inspect() and the choice of another backend ask for this error before a load does."""
    plan = planner.make_plan(header("llama/llama.Q4_0"), CPU, planner.PlanOptions(64, 64, "f16"))
    size = sum(budget.pools(plan, on_cpu=True).values())
    monkeypatch.setattr(BrowserDevice, "max_bytes", lambda: size)
    assert cpu_limit_error(plan) is None
    monkeypatch.setattr(BrowserDevice, "max_bytes", lambda: size - 1)
    error = cpu_limit_error(plan)
    assert error is not None
    assert error.code == "model_too_large"


def test_python_and_the_modules_have_the_same_limits() -> None:
    assert MAX_BYTES == wasm.MAX_PAGES << 16
    assert MAX_BYTES_64 == wasm.MAX_PAGES_64 << 16 == WORD << 32
    script = (ROOT / "py_engine" / "cpu" / "compute_worker.js").read_text()
    assert f"MOST_PAGES = [{wasm.MAX_PAGES}," in script
    assert f"MOST_PAGES_64 = [{wasm.MAX_PAGES_64}," in script
