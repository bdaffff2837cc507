"""Llama 4's attention in chunks of other sizes than its 8192 positions, which would take too long here.

The reference is the one of the goldens. With 8,230 tokens it agreed with llama.cpp within 0.001.
"""

import numpy as np
import pytest

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.generate.media import Media, PromptMedia, media_ids
from py_engine.models import llama4
from py_engine.plan.lists import DECODE
from tests.golden.make import reference_model
from tests.golden.make.reference import Reference
from tests.support import cpu_models, wasm_engines
from tests.support.cpu_models import evaluate
from tests.support.tolerances import assert_close
from tools.goldens import GOLDEN

PATH = GOLDEN / "experts" / "llama4.F16.gguf"
IDS = [int(i) for i in np.random.default_rng(8).integers(3, 300, 45)]


@pytest.fixture(params=[5, 16])
def want(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The reference's logits of IDS, with chunks of that many positions in it and in the engine."""
    monkeypatch.setattr(llama4, "CHUNK", request.param)
    monkeypatch.setattr(reference_model, "LLAMA4_CHUNK", request.param)
    return Reference(PATH).logits(IDS).astype(np.float32)


@pytest.mark.parametrize("page", [4, 32])
def test_chunks_on_numpy(want: np.ndarray, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt in batches, then token by token; pages before a chunk may be used again."""
    monkeypatch.setattr("py_engine.plan.cache.MAX_AHEAD", 8)
    model = cpu_models.load(PATH, 256, batch=8, page=page)
    assert_close(want, evaluate(model, IDS), "f32")
    for at in range(len(IDS) - 5, len(IDS)):
        model.feed(at, IDS[at : at + 1], [DECODE])
        np.testing.assert_allclose(model.buffers["logits"], want[at], atol=2e-3)


async def test_chunks_on_the_cpu(want: np.ndarray) -> None:
    engine = await wasm_engines.load(PATH, 256)
    logits, _ = await engine.evaluate(IDS)
    assert_close(want, logits, "f32")
    for at in (len(IDS) - 6, len(IDS) - 1):  # one token after a prompt
        engine.forget()
        logits, _ = await engine.evaluate(IDS[: at + 1])
        assert_close(want[: at + 1], logits, "f32")


async def test_a_picture_that_is_read_whole_reaches_into_the_next_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """In llama.cpp, a chunk hides what is before it only. The two executors of the CPU count it in different ways."""
    monkeypatch.setattr(llama4, "CHUNK", 16)
    rows = np.random.default_rng(1).standard_normal((12, 80)).astype(np.float32)
    picture = Media(media_ids("x", 12), rows, whole=True)
    ids = [*IDS[:9], *picture.ids, *IDS[9:20]]
    cpu = cpu_models.load(PATH, 256, media_width=80, whole_media=True)
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    numpy = Engine(cpu.plan, runner, "cpu", 1)
    compiled = await wasm_engines.load(PATH, 256, media_width=80, whole_media=True)
    want, found = [(await engine.evaluate(ids, PromptMedia([picture])))[0] for engine in (numpy, compiled)]
    np.testing.assert_allclose(found, want, atol=2e-3)
