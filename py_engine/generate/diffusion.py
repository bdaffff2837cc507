"""Generate text by diffusion: fill in the masked end of a sequence, some tokens a step.

A step computes the whole sequence, samples a token for each mask of the current block, and keeps those that an
algorithm chooses. A token that was filled in never changes, so the tokens before the first mask are final: they are the
answer so far. Each step holds the device for itself; requests take turns.

Sources: Ye et al. 2025, "Dream 7B" (timesteps); Nie et al. 2025, "Large Language Diffusion Models" (LLaDA: blocks, and
confidence before temperature and filters). Steps are counted, and numbers rounded, as in llama.cpp's diffusion example.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.diffusion import Algorithm, Schedule
from py_engine.plan.lists import BATCH_FORWARD, PREFILL
from py_engine.plan.plan import DiffusionPlan
from py_engine.plan.sampling import Batch, Sampling, TokenLogprob
from py_engine.plan.shared_constants import LOGPROB_ROWS, SHORT_BATCH
from py_engine.runners import FLOAT_FEED, Row, Runner
from py_engine.tasks import to_the_end

SEED_STEP = 0x9E3779B1  # between the seeds of two steps, which draw different noise for the same position


@dataclass
class Canvas:
    """A sequence whose end is to be filled in, and how far that is."""

    prompt: Sequence[int]
    count: int  # masked tokens at first
    mask: int
    schedule: Schedule
    ids: list[int] = field(init=False)
    masked: list[int] = field(init=False)  # positions, ascending
    step: int = 0  # of the current block
    steps: int = 0  # in all
    taken: int = field(init=False)  # tokens that were returned by final(), or are of the prompt

    def __post_init__(self) -> None:
        self.taken = len(self.prompt)
        self.ids = [*self.prompt, *[self.mask] * self.count]
        self.masked = list(range(self.taken, len(self.ids)))

    @property
    def _block(self) -> tuple[int, int]:
        """(first position, end) of the current block."""
        begin, size = len(self.prompt), self.schedule.block or self.count
        first = begin + (self.masked[0] - begin) // size * size
        return first, min(first + size, len(self.ids))

    @property
    def _steps_of_block(self) -> int:
        blocks = -(-self.count // (self.schedule.block or self.count))
        return max(1, self.schedule.steps // blocks)

    def open_positions(self) -> list[int]:
        """The masked positions of the current block."""
        _, end = self._block
        return [position for position in self.masked if position < end]

    def quota(self) -> int:
        """How many of open_positions() the current step fills in."""
        first, end = self._block
        return self._quota(len(self.open_positions()), end - first)

    def _quota(self, left: int, size: int) -> int:
        """quota(), if `left` masks of the block's `size` tokens are left."""
        steps = self._steps_of_block
        if self.step >= steps - 1:
            return left
        if self.schedule.block:
            return min(left, size // steps + (self.step < size % steps))
        return timestep_quota(self.step, steps, left, self.schedule.eps)

    def skip_idle_steps(self) -> None:
        """Go on to the next step that fills in a token. The others would compute the same sequence again."""
        if not self.masked:
            return
        first, end = self._block
        left = len(self.open_positions())
        while not self._quota(left, end - first):
            self.step, self.steps = self.step + 1, self.steps + 1

    def fill(self, tokens: dict[int, int]) -> None:
        """End a step: fill in tokens by position."""
        block = self._block
        for position, token in tokens.items():
            self.ids[position] = token
        self.masked = [position for position in self.masked if position not in tokens]
        self.step, self.steps = self.step + 1, self.steps + 1
        if self.masked and self._block != block:
            self.step = 0

    def final(self) -> list[int]:
        """The tokens that have become final since the last call: those before the first mask."""
        end = self.masked[0] if self.masked else len(self.ids)
        first, self.taken = self.taken, max(self.taken, end)
        return self.ids[first:end]


def timestep_quota(step: int, steps: int, left: int, eps: float) -> int:
    """Tokens of `left` that a step of Dream's schedule fills in, in float32 as llama.cpp computes it."""
    rest = _f32(1 - _f32(eps))
    t, s = (_f32(1 - _f32(_f32(i / steps) * rest)) for i in (step, step + 1))
    return int(_f32(left * _f32(1 - _f32(s / t))))


def _f32(x: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", x))[0])


class Denoiser:
    """Fills in canvases of one sequence of a runner."""

    def __init__(self, runner: Runner, seq: int, sampling: Sampling) -> None:
        assert runner.plan.diffusion is not None
        self._runner, self._seq = runner, seq
        self._plan: DiffusionPlan = runner.plan.diffusion
        self._algorithm = Algorithm(sampling.diffusion_algorithm)
        # the mask is no text; a model that was trained well never predicts it
        bias = (*(bias for bias in sampling.logit_bias if bias[0] != self._plan.mask), (self._plan.mask, -100.0))
        self._sampling = replace(sampling, logit_bias=bias, logprobs=self._algorithm.logprobs)

    async def run(self, canvas: Canvas, time_slices: TimeSlices) -> AsyncGenerator[Batch, None]:
        """Run the steps that are left; after each of them, yield the tokens that have become final."""
        while canvas.masked:
            canvas.skip_idle_steps()
            async with time_slices.acquire():
                try:
                    tokens = await self._step(canvas)
                finally:
                    await to_the_end(self._runner.stop())
            canvas.fill(tokens)
            yield Batch(canvas.final())

    async def _step(self, canvas: Canvas) -> dict[int, int]:
        """The tokens that the current step fills in, by position."""
        quota, positions = canvas.quota(), canvas.open_positions()
        sampling = replace(self._sampling, seed=((self._sampling.seed or 0) + SEED_STEP * canvas.steps) % (1 << 32))
        noise = random.Random(f"{self._sampling.seed} {canvas.steps}")
        if self._algorithm is Algorithm.RANDOM:
            positions = noise.sample(positions, quota)
        elif self._algorithm is Algorithm.ORIGIN:
            positions = [position for position in positions if noise.random() < quota / len(positions)]
        predicted = await self._predict(canvas, sorted(positions), sampling)
        if self._algorithm.logprobs >= 0:
            temperature = sampling.diffusion_alg_temp
            scores = {at: self._score(found.logprobs, temperature, noise) for at, found in predicted.items()}
            positions = sorted(predicted, key=lambda at: (-scores[at], at))[:quota]
        return {at: predicted[at].ids[0] for at in positions}

    def _score(self, logprobs: Sequence[TokenLogprob] | None, temperature: float, noise: random.Random) -> float:
        """How sure a prediction is. With a temperature, the largest scores are a sample without replacement."""
        assert logprobs
        sure = certainty(self._algorithm, logprobs[0])
        return sure if not temperature else sure / temperature - math.log(-math.log(noise.random() or 1e-300))

    async def _predict(self, canvas: Canvas, positions: list[int], sampling: Sampling) -> dict[int, Batch]:
        """Compute the sequence, and sample a token for each of the positions."""
        if not positions:  # the algorithm chose none
            return {}
        runner, seq = self._runner, self._seq
        await runner.configure(sampling, len(canvas.prompt), 0, False, seq)
        await runner.prepare([PREFILL, *runner.step_lists([seq]), *runner.step_lists([seq, seq])], [seq])
        before = 1 if self._plan.shifted else 0
        batches = batches_of([position - before for position in positions])
        runner.feed(0, canvas.ids, [PREFILL], seq)
        for batch in batches:
            runner.decode([Row(seq, row) for row in batch], 1)
        found = [result for _ in batches for result in await runner.result()]
        return dict(zip(positions, found, strict=True))


def certainty(algorithm: Algorithm, found: TokenLogprob) -> float:
    """How sure a sampled token is, by the model's probabilities; the largest is the surest."""
    match algorithm:
        case Algorithm.MARGIN:
            first, second = (math.exp(logprob) for _, logprob in found.top[:2])
            return first - second
        case Algorithm.ENTROPY:  # of the likeliest tokens, and of all others as if they were one
            parts = [math.exp(logprob) for _, logprob in found.top]
            parts.append(max(0.0, 1 - sum(parts)))
            return sum(p * math.log(p) for p in parts if p > 0)
    return math.exp(found.logprob)


def batches_of(rows: Sequence[int]) -> list[list[int]]:
    """Small batches of ascending rows; each row of a batch has its own place among the log-probabilities."""
    batches: list[list[int]] = []
    for row in rows:
        if not batches or len(batches[-1]) == SHORT_BATCH or row - batches[-1][0] >= LOGPROB_ROWS:
            batches.append([])
        batches[-1].append(row)
    return batches


async def all_logits(runner: Runner, seq: int, ids: list[int]) -> list[Any]:
    """The logits of every position, in parts of Runner.rows(). The caller has the engine to itself."""
    await runner.prepare([PREFILL, *BATCH_FORWARD], [seq])
    runner.feed(0, ids, [PREFILL], seq, options=FLOAT_FEED)
    parts = []
    for at in range(0, len(ids), SHORT_BATCH):
        batch = ids[at : at + SHORT_BATCH]
        runner.feed(at, batch, BATCH_FORWARD, seq, options=FLOAT_FEED)
        parts.append(await runner.rows("small_batch_logits.logits", len(batch), runner.plan.n_vocab))
    return parts
