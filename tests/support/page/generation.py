"""Generation on a GPU of any speed: steps submitted ahead, seeds, constraints, aborts, a full context."""

import asyncio
import math
import random
from array import array
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import js
from pyodide.ffi import create_proxy, to_js

from py_engine.engine import Engine
from py_engine.generate import time_slices
from py_engine.generate.answer import AnswerLimits, GenerationRequest, GenerationStats
from py_engine.gpu import memory
from py_engine.gpu import runner as gpu_runner
from py_engine.gpu.memory import obj
from py_engine.gpu.step_times import StepTimes
from py_engine.plan.lists import PREFILL_END, SAMPLE
from py_engine.plan.sampling import Sampling
from tests.support.page.engines import collect

STEP_MS = 8.0  # the time of a submit that a step's time is set for


class RandomConstraint:
    """A constraint that allows a changing part of the vocabulary. With `jumps`, it sometimes forces four tokens.

    `has_source`: JavaScript can ask it for masks, as it can a grammar; `knows_forced`: for forced tokens, too.
    """

    def __init__(
        self, vocab: int, fraction: float, jumps: bool, has_source: bool = False, knows_forced: bool = False
    ) -> None:
        self.vocab, self.fraction, self.jumps, self.has_source = vocab, fraction, jumps, has_source
        self.knows_forced, self.told = knows_forced, 0
        self.accepted: list[int] = []

    @property
    def source(self) -> Any | None:
        """A MaskSource of py_engine/gpu/masked.js."""

        def accept(token: int) -> bool:
            self.accepted.append(token)
            return True

        def forced_ids() -> Any:
            self.told += 1
            return to_js(self._jump())

        calls: dict[str, Any] = {"mask": self.mask, "accept": accept, "canSample": lambda: not self._jump()}
        calls |= {"forcedIds": forced_ids} if self.knows_forced else {}
        return obj(**{name: create_proxy(call) for name, call in calls.items()}) if self.has_source else None

    def allowed(self) -> list[bool]:
        """Whether each token may come next. Depends on all accepted tokens."""
        dice = random.Random(sum((k + 3) * token for k, token in enumerate(self.accepted)))
        return [dice.random() < self.fraction for _ in range(self.vocab)]

    async def mask(self) -> Any:
        """The allowed tokens as one bit per token, in the engine's layout."""
        words = [0] * (-(-self.vocab // 32))
        for token, ok in enumerate(self.allowed()):
            words[token // 32] |= ok << token % 32
        return to_js(memoryview(array("I", words)).cast("B").cast("i"))

    async def accept(self, token: int) -> None:
        """Record a token; fail if it was not allowed."""
        at = len(self.accepted)
        assert token == at % self.vocab if self.jumps and 7 <= at % 11 < 11 else self.allowed()[token], token
        self.accepted.append(token)

    async def forced(self) -> list[int]:
        """The tokens that must come next."""
        return self._jump()

    def _jump(self) -> list[int]:
        at = len(self.accepted)
        return [(at + k) % self.vocab for k in range(4)] if self.jumps and at % 11 == 7 else []

    def finished(self) -> bool:
        """Whether the constraint is complete: never."""
        return False


class FixedTimes(StepTimes):
    """A GPU that takes as long for `steps` steps as a submit should take, whatever was measured."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._steps = steps

    def add(self, kind: Hashable, ms: float, queued: bool, *, falls: bool = False) -> None:
        """Ignore what was measured."""

    def ms(self, kind: Hashable) -> float:
        """Milliseconds of a step."""
        return STEP_MS / self._steps

    def plain_ms(self, kind: Hashable, drafting: Hashable) -> float:
        """Milliseconds of a step."""
        return self.ms(kind)

    def steps_in(self, kind: Hashable, ms: float, most: int) -> int:
        """As many as were set."""
        return min(self._steps, most)


async def generate_ahead(
    engine: Engine,
    steps: int,
    ids: list[int],
    sampling: Sampling,
    count: int,
    constraint: RandomConstraint | None = None,
) -> list[int]:
    """An answer with `steps` steps submitted ahead, whatever their duration."""
    runner: Any = engine.runner
    measured, runner._times = runner._times, FixedTimes(steps)
    try:
        stream = engine.generate(GenerationRequest(ids, sampling, AnswerLimits(count), constraint))
        return [i async for batch in stream for i in batch.ids]
    finally:
        runner._times = measured


@contextmanager
def counted_batches(engine: Engine) -> Iterator[list[int]]:
    """The rows of each call of Runner.decode_masked."""
    runner: Any = engine.runner
    decode, rows_of_calls = runner.decode_masked, list[int]()

    def counting(rows: list[Any], most: int, ms: float) -> Any:
        rows_of_calls.append(len(rows))
        return decode(rows, most, ms)

    runner.decode_masked = counting
    try:
        yield rows_of_calls
    finally:
        del runner.decode_masked


@contextmanager
def timed_tokens(engine: Engine) -> Iterator[list[int]]:
    """Of how many tokens each time of Runner.sample_masked is, where nothing else decodes and only tokens end it."""
    runner: Any = engine.runner
    measured, limit, tokens = runner._times, gpu_runner.MASKED_MS, list[int]()
    fixed: Any = FixedTimes(1)  # too slow to sample ahead
    fixed.add_waiting = lambda n, ms: tokens.append(n)
    runner._times, gpu_runner.MASKED_MS = fixed, math.inf
    try:
        yield tokens
    finally:
        runner._times, gpu_runner.MASKED_MS = measured, limit


async def answers(engine: Engine) -> dict[str, Any]:
    """The results that must not depend on the number of steps submitted ahead or on the cache's contents."""
    vocab = engine.plan.n_vocab
    prompt = list(range(5, 30))
    plain = Sampling(temperature=1.3, seed=5)
    shaped = Sampling(
        temperature=1.3, seed=5, top_p=0.97, presence_penalty=0.6, repeat_penalty=1.1, dry_multiplier=0.7,
        typical_p=0.98, logit_bias=((7, -100), (9, 3.0)),
    )  # fmt: skip
    out: dict[str, Any] = {}
    for name, sampling in (("plain", plain), ("shaped", shaped)):
        out[name] = [await generate_ahead(engine, steps, prompt, sampling, 40) for steps in (1, 5, 64)]
        for fraction, jumps in ((0.5, False), (0.97, True)):
            out[f"{name} {fraction}"] = [
                await generate_ahead(engine, steps, prompt, sampling, 40, RandomConstraint(vocab, fraction, jumps))
                for steps in (1, 6, 30)
            ]

    async def constrained(sampling: Sampling, fraction: float, jumps: bool, has_source: bool = False) -> list[int]:
        return await held_to(RandomConstraint(vocab, fraction, jumps, has_source), sampling)

    async def held_to(held: RandomConstraint, sampling: Sampling) -> list[int]:
        stream = engine.generate(GenerationRequest(prompt, sampling, AnswerLimits(40), held))
        return [i async for batch in stream for i in batch.ids]

    out["shared"] = await asyncio.gather(
        constrained(plain, 0.5, False),
        constrained(shaped, 0.5, False),
        constrained(plain, 0.97, True),
        collect(engine, prompt, plain, 40),
    )
    out["masked"] = []
    with counted_batches(engine) as batches:
        while max(batches, default=0) < 2 and len(out["masked"]) < 20:  # until the kernels of such a batch are compiled
            found = await asyncio.gather(
                constrained(plain, 0.5, False, has_source=True),
                constrained(shaped, 0.5, False, has_source=True),
                constrained(plain, 0.97, True, has_source=True),
                collect(engine, prompt, plain, 40),
            )
            out["masked"].append(found)
    out["masked alone"] = await constrained(plain, 0.97, True)
    out["masked batches"] = batches
    knowing = RandomConstraint(vocab, 0.5, jumps=True, has_source=True, knows_forced=True)
    out["forced"] = [await constrained(plain, 0.5, True)]
    with timed_tokens(engine) as timed:
        out["forced"].append(await held_to(knowing, plain))
    out["told"], out["timed"] = knowing.told, sum(timed)
    out["rows"], out["worst"] = await check_logprobs(engine, prompt, out["plain"][0])
    longer = prompt + out["plain"][0]
    first = await collect(engine, longer, plain, 20)
    await collect(engine, [1, 2, 3], plain, 2)
    out["seeds"] = [first, await collect(engine, longer, plain, 20)]
    out["tokens"] = await generate_ahead(engine, 6, prompt, plain, 40)
    long = [7 * k % 250 for k in range(70)]
    prompts = [[*long, k] for k in range(3)]
    out["alone"] = [await collect(engine, ids, shaped, 12) for ids in prompts]
    engine.forget()
    stats = [GenerationStats() for _ in prompts]

    async def beside(ids: list[int], stat: GenerationStats) -> list[int]:
        request = GenerationRequest(ids, shaped, AnswerLimits(12))
        return [i async for batch in engine.generate(request, stat) for i in batch.ids]

    out["beside"] = await asyncio.gather(*(beside(ids, stat) for ids, stat in zip(prompts, stats, strict=True)))
    out["cached"] = [stat.cached_tokens for stat in stats]
    return out


async def pages(engine: Engine) -> dict[str, Any]:
    """Answers to prompts with a common beginning, alone and side by side, in caches that start with a single page."""
    sampling = Sampling(temperature=1.3, seed=5, presence_penalty=0.6)
    prompts = [[*range(5, 35), k] for k in range(4)]
    alone = []
    for ids in prompts:
        engine.forget()
        alone.append(await collect(engine, ids, sampling, 20))
    engine.forget()
    first = engine.stats()["pages"][0]
    slice_, time_slices.TIME_SLICE = time_slices.TIME_SLICE, 0.0  # they alternate after each submit
    runner: Any = engine.runner
    copy_page, copies = runner.copy_page, list[tuple[int, ...]]()

    def counting(*page: int) -> None:
        copies.append(page)
        copy_page(*page)

    runner.copy_page = counting
    try:
        beside = await asyncio.gather(*(collect(engine, ids, sampling, 20) for ids in prompts))
    finally:
        time_slices.TIME_SLICE = slice_
    again = await collect(engine, prompts[0], sampling, 20)
    cached = engine.last.cached_tokens
    return {"alone": alone, "beside": beside, "again": again, "cached": cached, "copies": len(copies)} | {
        "pages": [first, engine.stats()["pages"][0]]
    }


async def submits_beside_allocations(engine: Engine) -> tuple[list[int], int]:
    """Submits of a first answer's steps after each cache that is allocated for a second one; the number of caches."""
    runner: Any = engine.runner
    gpu = runner.gpu
    guarded, allocate_caches, submits = gpu.guarded, gpu.allocate_caches, list[int]()

    async def waiting(work: Any) -> None:
        await guarded(work)
        before = int(gpu.replay.counts.submits)
        for _ in range(1000):
            if int(gpu.replay.counts.submits) > before:
                break
            await asyncio.sleep(0.005)
        submits.append(int(gpu.replay.counts.submits) - before)

    async def allocating(pages: list[int]) -> Any:
        gpu.guarded = waiting
        try:
            return await allocate_caches(pages)
        finally:
            gpu.guarded = guarded

    runner._times = FixedTimes(1)
    gpu.allocate_caches = allocating
    at_once, memory.AT_ONCE = memory.AT_ONCE, 1
    try:
        await asyncio.gather(*(collect(engine, [*range(5, 15), k], Sampling(temperature=0), 50) for k in range(2)))
    finally:
        memory.AT_ONCE = at_once
    return submits, sum(len(group.caches) for group in engine.plan.page_groups)


async def check_logprobs(engine: Engine, prompt: list[int], answer: list[int]) -> tuple[int, float]:
    """(number of an answer's log-probabilities, their largest distance from those of the model's logits)."""
    rows: list[Any] = []
    request = GenerationRequest(prompt, Sampling(temperature=1.3, seed=5, logprobs=4), AnswerLimits(40))
    async for batch in engine.generate(request):
        rows += batch.logprobs or []
    logits, shape = await engine.evaluate(prompt + answer)
    values = logits.to_py().tolist()
    worst = 0.0
    for k, row in enumerate(rows):
        line = values[(len(prompt) + k - 1) * shape[1] : (len(prompt) + k) * shape[1]]
        base = max(line) + math.log(sum(math.exp(x - max(line)) for x in line))
        assert row.token == answer[k]
        assert len(row.top) == 4
        for token, logprob in [(row.token, row.logprob), *row.top]:
            worst = max(worst, abs(line[token] - base - logprob))
        assert row.top[0][1] >= max(line) - base - 0.1
    return len(rows), worst


async def aborts_and_shifts(engine: Engine, aborted: int) -> list[Any]:
    """Answers between aborted ones; two answers that outgrow the context, at two speeds; the dropped tokens."""
    prompt, vocab = list(range(5, 17)), engine.plan.n_vocab
    warm = Sampling(temperature=1.3, seed=5)
    shaped = Sampling(temperature=1.3, seed=5, presence_penalty=0.5, typical_p=0.9)
    biased = Sampling(temperature=0, logit_bias=((3, 9.0),), logprobs=2)
    dice = random.Random(4)
    runner: Any = engine.runner
    wants, shifted = [], []
    for steps in (3, 64):
        runner._times = FixedTimes(steps)
        stream = engine.generate(GenerationRequest(prompt, warm, AnswerLimits(120, keep=4)))
        shifted.append([i async for batch in stream for i in batch.ids])
    dropped = engine.last.shifted_tokens
    for number in range(aborted):
        if number % 20 == 0:
            wants.append([await collect(engine, prompt, sampling, 12) for sampling in (warm, shaped)])
        runner._times = FixedTimes(dice.choice([1, 2, 8, 64]))
        ids = prompt[: dice.randint(1, 12)] + [dice.randrange(vocab) for _ in range(dice.randint(0, 12))]
        sampling = dice.choice([warm, shaped, biased])
        constraint = RandomConstraint(vocab, 0.7, True) if number % 5 == 0 else None
        stream = engine.generate(GenerationRequest(ids, sampling, AnswerLimits(30), constraint))
        for _ in range(dice.randint(0, 6)):
            if await anext(stream, None) is None:
                break
        await stream.aclose()
    return [wants, shifted, dropped]


async def draws(engine: Engine) -> list[Any]:
    """(each token's count in 3,000 draws from the same logits, each with its own noise; the logits)."""
    runner: Any = engine.runner
    counts = [0] * engine.plan.n_vocab
    gpu, at = runner.gpu, 10
    for part in range(15):
        await runner.configure(Sampling(temperature=0.8, seed=9), at, 1000 * part, False)
        runner.feed(0, list(range(10)), [*PREFILL_END] + 200 * [SAMPLE])
        drawn = js.Uint32Array.new(await gpu.replay.download(gpu.places["tokens"][0], 4 * at, 800))
        for token in drawn.to_py():
            counts[token] += 1
    logits = js.Float32Array.new(await gpu.replay.download(gpu.places["logits"][0], 0, 4 * engine.plan.n_vocab))
    return [counts, logits.to_py().tolist()]
