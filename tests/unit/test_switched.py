"""Adapters within a model: a control token counts for its own sequence, from it on, also in a prefix found again."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from py_engine.engine import Engine
from py_engine.files.gguf_header import parse
from py_engine.plan.lists import LAST_LOGITS, PREFILL, adapted
from py_engine.plan.low_rank import SCALES
from tests.golden.make.adapters import write_adapter
from tests.golden.make.gguf_file import Layout
from tests.golden.make.random_models import write
from tests.golden.make.reference import Reference
from tests.support.cpu_engines import GREEDY, Runner, collect
from tests.support.cpu_models import GOLDEN, evaluate, load

MODEL = GOLDEN / "granite" / "graniteswitch.F16.gguf"
CONTROL = 129  # switches on the first adapter
PLAIN = [7 * i % 120 for i in range(70)]
SWITCHED = [*PLAIN[:5], CONTROL, *PLAIN[6:]]


def make() -> Engine:
    cpu = load(MODEL, 256)
    runner = Runner(cpu.plan)
    runner._cpu = cpu
    return Engine(cpu.plan, runner, "cpu", 4)


async def test_answers_side_by_side_have_their_own_adapters() -> None:
    prompts = [PLAIN, SWITCHED, PLAIN[:20], [*PLAIN[:20], CONTROL]]
    want = [await collect(make(), prompt, GREEDY, 12) for prompt in prompts]
    assert want[0] != want[1]
    engine = make()
    assert await asyncio.gather(*(collect(engine, prompt, GREEDY, 12) for prompt in prompts)) == want


async def test_a_prefix_that_is_found_again_keeps_its_adapter() -> None:
    longer = [*SWITCHED, 3, 1, 4]
    want = await collect(make(), longer, GREEDY, 12)
    engine = make()
    for prompt in (SWITCHED, PLAIN):  # the second one leaves other tokens in the sequence's row
        await collect(engine, prompt, GREEDY, 3)
    assert await collect(engine, longer, GREEDY, 12) == want
    assert engine.last.cached_tokens >= 64


@pytest.mark.parametrize("first", [1, 2])
def test_two_control_tokens_switch_on_the_mean_of_their_numbers(first: int, tmp_path: Path) -> None:
    """Halves round up, as llama.cpp's do."""
    path, prompt = tmp_path / "model.gguf", PLAIN[:20]
    control = [301, 302, 303, 300]
    control[first - 1 : first + 1] = prompt[3], prompt[9]
    write(path, "graniteswitch", "F32", 1, Layout(), None, control=control, substitutes=[20, 21, 22, 23])
    assert evaluate(load(path, 64), prompt) == pytest.approx(Reference(path, 64).logits(prompt), abs=2e-3)


@pytest.mark.parametrize(("token", "changes"), [(CONTROL, False), (20, True)])
def test_adapters_of_embeddings_see_the_token_that_is_embedded(token: int, changes: bool, tmp_path: Path) -> None:
    """The one in the control token's place."""
    path, adapter = tmp_path / "model.gguf", tmp_path / "adapter.gguf"
    write(path, "graniteswitch", "F32", 1, Layout(), None, tied=False)
    cols, rows = parse(path.read_bytes(), path.stat().st_size).tensors["token_embd.weight"].shape
    a, b = np.zeros((2, cols), np.float32), np.zeros((rows, 2), np.float32)
    a[:], b[token] = 1, 1
    write_adapter(adapter, "graniteswitch", 1.0, {"token_embd.weight": (a, b)})
    cpu = load(path, 64, adapters=[adapter])
    logits = []
    for scale in (0.0, 1.0):
        cpu.write(SCALES, cpu.plan.adapters.pack([scale]))
        cpu.feed(0, [1, CONTROL, 7], [adapted(PREFILL), LAST_LOGITS])
        logits.append(cpu.buffers["logits"].copy())
    assert (logits[0] != logits[1]).any() == changes
