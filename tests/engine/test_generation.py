"""Generation on WebGPU: what tests/unit/test_generation.py proves with numpy, where steps are submitted ahead."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.plan.sampling import Sampling
from tests.engine.driver import run
from tests.unit import sampling_reference as reference
from tests.unit.test_samplers import chi_square

pytestmark = pytest.mark.lavapipe
MODEL = "/repo/tests/golden/llama/llama.Q8_0.gguf"
CONSTRAINT = """
import math, random
from array import array
from pyodide.ffi import to_js
from py_engine.generate.answer import GenerationStats

VOCAB = engine.plan.n_vocab

class Fickle:
    def __init__(self, share, jumps):
        self.share, self.jumps, self.accepted = share, jumps, []

    def allowed(self):
        dice = random.Random(sum((k + 3) * token for k, token in enumerate(self.accepted)))
        return [dice.random() < self.share for _ in range(VOCAB)]

    async def mask(self):
        words = [0] * (-(-VOCAB // 32))
        for token, ok in enumerate(self.allowed()):
            words[token // 32] |= ok << token % 32
        return to_js(memoryview(array("I", words)).cast("B").cast("i"))

    async def accept(self, token):
        must = await self.forced()
        assert token == must[0] if must else self.allowed()[token], token
        self.accepted.append(token)

    async def forced(self):
        at = len(self.accepted)
        return [(at + k) % VOCAB for k in range(4)] if self.jumps and at % 11 == 7 else []

    def finished(self):
        return False

async def depth(steps, ids, sampling, count, constraint=None):
    # what a GPU of that speed would be given at once
    runner = engine.runner
    runner._step_ms, kept = 25.0 / steps, runner._time
    runner._time = lambda ms: None
    try:
        out = []
        async for batch in engine.generate(ids, sampling, count, frozenset(), constraint):
            out += batch.ids
        return out
    finally:
        runner._time = kept
"""


def test_generation_on_the_gpu(engine_pages: Callable[[str | None], Page]) -> None:
    out = run(
        engine_pages("lavapipe"),
        MODEL,
        CONSTRAINT
        + """
prompt = list(range(5, 30))
plain = Sampling(temperature=1.3, seed=5)
shaped = Sampling(temperature=1.3, seed=5, top_p=0.97, presence_penalty=0.6, repeat_penalty=1.1, dry_multiplier=0.7,
                  typical_p=0.98, logit_bias=((7, -100), (9, 3.0)))
out = {}
for name, sampling in (("plain", plain), ("shaped", shaped)):
    out[name] = [await depth(steps, prompt, sampling, 40) for steps in (1, 5, 64)]
    for share, jumps in ((0.5, False), (0.97, True)):
        out[f"{name} {share}"] = [
            await depth(steps, prompt, sampling, 40, Fickle(share, jumps)) for steps in (1, 6, 30)
        ]
scored = Sampling(temperature=1.3, seed=5, logprobs=4)
rows = []
async for batch in engine.generate(prompt, scored, 40, frozenset()):
    rows += batch.logprobs or []
logits, shape = await engine.evaluate(prompt + out["plain"][0])
values = logits.to_py().tolist()
worst = 0.0
for k, row in enumerate(rows):
    line = values[(len(prompt) + k - 1) * shape[1] : (len(prompt) + k) * shape[1]]
    base = max(line) + math.log(sum(math.exp(x - max(line)) for x in line))
    assert row.token == out["plain"][0][k]
    assert len(row.top) == 4
    for token, logprob in [(row.token, row.logprob), *row.top]:
        worst = max(worst, abs(line[token] - base - logprob))
    assert row.top[0][1] >= max(line) - base - 0.1
out["rows"], out["worst"] = len(rows), worst
longer = prompt + out["plain"][0]
first = await collect(engine, longer, plain, 20)
await collect(engine, [1, 2, 3], plain, 2)
out["seeds"] = [first, await collect(engine, longer, plain, 20)]
out["tokens"] = await depth(6, prompt, plain, 40)
long = [7 * k % 250 for k in range(70)]
prompts = [long + [k] for k in range(3)]
out["alone"] = [await collect(engine, ids, shaped, 12) for ids in prompts]
engine.forget()
stats = [GenerationStats() for _ in prompts]
async def beside(ids, stat):
    return [i async for batch in engine.generate(ids, shaped, 12, frozenset(), stats=stat) for i in batch.ids]
out["beside"] = await asyncio.gather(*(beside(ids, stat) for ids, stat in zip(prompts, stats)))
out["cached"] = [stat.cached_tokens for stat in stats]
return out
""",
        backend="webgpu",
        kv_type="f16",
        context_length=256,
    )
    for name in ("plain", "shaped"):
        for one in (name, f"{name} 0.5", f"{name} 0.97"):
            assert out[one][0] == out[one][1] == out[one][2], one
            assert len(out[one][0]) == 40
        assert out[name][0] != out[f"{name} 0.5"][0]
    assert 7 not in out["shaped"][0]
    assert out["rows"] == 40
    assert out["worst"] < 0.1, "f16, and one token at a time against a batch"
    assert out["seeds"][0] == out["seeds"][1]
    assert out["tokens"] == out["plain"][0]
    assert out["beside"] == out["alone"], "with a prompt that was copied from the sequence that had it first"
    assert sum(out["cached"]) >= 70


def test_abort_and_shift_on_the_gpu(engine_pages: Callable[[str | None], Page]) -> None:
    """A hundred requests closed at random points leave an engine that answers like a fresh one; a full context goes
    on, and seeds with it.
    """
    code = """
prompt = list(range(5, 17))
warm, shaped = Sampling(temperature=1.3, seed=5), Sampling(temperature=1.3, seed=5, presence_penalty=0.5, typical_p=0.9)
dice = random.Random(4)
runner = engine.runner
wants, shifted = [], []
for steps in (3, 64):
    runner._time = lambda ms: None
    runner._step_ms = 25.0 / steps
    out = []
    async for batch in engine.generate(prompt, warm, 120, frozenset(), None, 4):
        out += batch.ids
    shifted.append(out)
dropped = engine.last.shifted_tokens
for number in range(101):
    if number % 20 == 0:
        wants.append([await collect(engine, prompt, s, 12) for s in (warm, shaped)])
    runner._step_ms = 25.0 / dice.choice([1, 2, 8, 64])
    ids = prompt[: dice.randint(1, 12)] + [dice.randrange(VOCAB) for _ in range(dice.randint(0, 12))]
    sampling = dice.choice([warm, shaped, Sampling(temperature=0, logit_bias=((3, 9.0),), logprobs=2)])
    stream = engine.generate(ids, sampling, 30, frozenset(), Fickle(0.7, True) if number % 5 == 0 else None)
    for _ in range(dice.randint(0, 6)):
        if await anext(stream, None) is None:
            break
    await stream.aclose()
return wants, shifted, dropped
"""
    page = engine_pages("lavapipe")
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 40}
    wants, shifted, dropped = run(page, MODEL, CONSTRAINT + code, **options)
    assert len(wants) == 6
    assert all(want == wants[0] for want in wants)
    assert shifted[0] == shifted[1]
    assert len(shifted[0]) == 120
    assert dropped >= 80


def test_distribution_on_the_gpu(engine_pages: Callable[[str | None], Page]) -> None:
    """Three thousand draws from the same logits, at as many places of the noise, against softmax."""
    code = """
sampling = Sampling(temperature=0.8, seed=9)
counts = [0] * engine.plan.n_vocab
gpu, at = engine.runner.gpu, 10
for part in range(15):
    await engine.runner.configure(sampling, at, 1000 * part, False)
    await engine.runner.feed(0, list(range(10)), [*PREFILL_END] + 200 * [SAMPLE])
    drawn = js.Uint32Array.new(await gpu.replay.download(gpu.places["tokens"][0], 4 * at, 800))
    for token in drawn.to_py():
        counts[token] += 1
logits = js.Float32Array.new(await gpu.replay.download(gpu.places["logits"][0], 0, 4 * engine.plan.n_vocab))
return counts, logits.to_py().tolist()
"""
    counts, logits = run(engine_pages("lavapipe"), MODEL, code, backend="webgpu", context_length=256)
    expected = np.array(reference.distribution(logits, [], 0, Sampling(temperature=0.8)))
    assert sum(counts) == 3000
    statistic, limit = chi_square(np.array(counts), expected)
    assert statistic < limit
    warmer = np.array(reference.distribution(logits, [], 0, Sampling(temperature=1.0)))
    assert chi_square(np.array(counts), warmer)[0] > limit
