"""Engines on the numpy executor, with prompts, samplers and constraints for them."""

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.options import PARALLEL
from py_engine.plan.lists import DECODE, SMALL_BATCH, verify
from py_engine.plan.pages import PAGE
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling
from tests.support.cpu_models import GOLDEN, load

MODEL = GOLDEN / "llama" / "llama.F32.gguf"
VOCAB = 304
PROMPT = [1, 5, 9, 13, 17, 21]
PROMPTS = [PROMPT, [7, 3, 200, 45], [9], list(range(40, 75)), [250, 1, 250, 1, 6], [88, 12, 13]]
STOPS: frozenset[int] = frozenset()
GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.5, seed=3)
SHAPED = Sampling(temperature=1.2, seed=4, top_p=0.98, presence_penalty=0.5, repeat_penalty=1.1, dry_multiplier=0.5)
EVERY = Sampling(
    temperature=1.3, seed=7, top_k=60, top_p=0.97, min_p=0.001, typical_p=0.98, top_n_sigma=3, xtc_probability=0.5,
    xtc_threshold=0.05, repeat_penalty=1.1, dry_multiplier=0.4, logit_bias=((5, 2.0), (9, -100.0)), logprobs=5,
    dynatemp_range=0.5,
)  # fmt: skip
UNLIKELY = Sampling(temperature=1, seed=9, xtc_probability=1, xtc_threshold=0, logit_bias=((9, -100.0),))
DYNAMIC = Sampling(temperature=0, seed=8, dynatemp_range=1.2, dynatemp_exponent=0.5, top_p=0.99)


def let_drafts_pay(runner: Any) -> None:
    """Let steps with a model's drafts cost as much as plain ones, and drafts by prompt lookup too much."""

    def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return 1.0 if n_model_draft or not drafting else 100.0

    runner.step_ms = step_ms


def draft_counts(engine: Engine) -> tuple[int, int, int]:
    """Steps with drafts by a model, its tokens, and how many of them were accepted."""
    totals = engine._generation.totals
    return totals.draft_steps, totals.model_drafted, totals.model_accepted


class Runner(CpuRunner):
    """A CPU runner that samples up to `ahead` tokens ahead under a constraint and counts forward passes.

    It decodes no position whose page the sequence has not been given.
    """

    ahead = 1
    forwards = 0

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._ends: dict[int, int] = {}  # of the pages in the first group, by sequence

    def max_lookahead(self) -> int:
        return self.ahead

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        if not group:
            self._ends[seq] = self.plan.page * (first + len(pages))
        super().set_pages(group, seq, first, pages)

    def _run(self, lists: Any) -> None:
        self.forwards += DECODE in lists
        if DECODE in lists or SMALL_BATCH in lists:
            rows = self._states()[: max(1, self._states()[0][1])]
            assert all(position < self._ends.get(int(seq), position + 1) for position, _, _, seq in rows)
        super()._run(lists)


def make(
    n_ctx: int = 256, batch: int = 16, ahead: int = 1, page: int = PAGE, path: Path = MODEL, parallel: int = PARALLEL
) -> Engine:
    cpu = load(path, n_ctx, batch, page=page)
    runner = Runner(cpu.plan)
    runner._cpu, runner.ahead = cpu, ahead
    return Engine(cpu.plan, runner, "cpu", parallel)


async def batches(
    engine: Engine, ids: list[int], sampling: Sampling, count: int, stops: frozenset[int] = STOPS, **options: Any
) -> list[Batch]:
    limits = AnswerLimits(count, stops, options.pop("keep", None))
    stats = options.pop("stats", None)
    return [batch async for batch in engine.generate(GenerationRequest(ids, sampling, limits, **options), stats)]


async def collect(engine: Engine, ids: list[int], sampling: Sampling, count: int, **options: Any) -> list[int]:
    stops = options.pop("stops", STOPS)
    return [i for b in await batches(engine, ids, sampling, count, stops, **options) for i in b.ids]


class Anything:
    """A constraint that allows every token and records the accepted ones."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    async def mask(self) -> Any | None:
        return None

    async def accept(self, token: int) -> None:
        self.accepted.append(token)

    async def forced(self) -> list[int]:
        return []

    def finished(self) -> bool:
        return False


def as_mask(allowed: np.ndarray) -> np.ndarray:
    return np.packbits(np.pad(allowed, (0, -len(allowed) % 32)), bitorder="little").view(np.int32)


class RandomConstraint(Anything):
    """A constraint that allows a random part of the vocabulary (seed: the accepted tokens) and forces some tokens."""

    def __init__(
        self, fraction: float = 0.8, jumps: bool = True, end: int | None = None, has_source: bool = False
    ) -> None:
        super().__init__()
        self.source = Source(self) if has_source else None
        self.fraction, self.jumps, self.end = fraction, jumps, end

    def _allowed(self) -> np.ndarray:
        return np.random.default_rng([*self.accepted, 1]).random(VOCAB) < self.fraction

    async def mask(self) -> Any | None:
        allowed = self._allowed()
        return None if allowed[0] and allowed[1] else as_mask(allowed)

    async def accept(self, token: int) -> None:
        allowed = self._allowed()
        must = await self.forced()
        if must:
            assert token == must[0]
        else:
            assert allowed[token] or (allowed[0] and allowed[1])
        await super().accept(token)

    async def forced(self) -> list[int]:
        if not self.jumps:
            return []
        for back in range(3):  # in about a third of the cases, three tokens are forced after a token
            before = self.accepted[: len(self.accepted) - back]
            if before and sum(before) % 7 == 0 and not any(sum(before[: -k or None]) % 7 == 0 for k in (1, 2)):
                return [(before[-1] + k) % VOCAB for k in range(1, 4)][back:]
        return []

    def finished(self) -> bool:
        return self.end is not None and len(self.accepted) >= self.end


class Source:
    """The MaskSource (gpu/masked.js) of a constraint whose methods never wait."""

    def __init__(self, constraint: Anything) -> None:
        self._constraint = constraint

    async def mask(self) -> np.ndarray:
        mask: np.ndarray | None = await self._constraint.mask()
        return as_mask(np.ones(VOCAB, bool)) if mask is None else mask

    def accept(self, token: int) -> bool:
        at_once(self._constraint.accept(token))
        return True

    def canSample(self) -> bool:
        return not self._constraint.finished() and not at_once(self._constraint.forced())


def at_once(call: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Counting(Runner):
    """A runner that counts the steps that serve several sequences, and the steps that verify drafts."""

    each = 0
    verified = 0

    def _run(self, lists: Any) -> None:
        verifies = any(name.endswith(verify("")) for name in lists)
        self.each += SMALL_BATCH in lists and not verifies
        self.verified += verifies
        super()._run(lists)


def engine(n_ctx: int = 256, parallel: int = 4, draft: bool = False, page: int = PAGE, path: Path = MODEL) -> Engine:
    """An engine that never drafts, or always drafts (`draft`), whatever drafts cost."""
    plain = make(n_ctx, page=page, path=path)
    runner = Counting(plain.plan)
    runner._cpu = plain.runner._cpu  # type: ignore[attr-defined]
    runner.step_ms = lambda rows, *, drafting=False, **_: 1.0 if drafting == draft else 100.0  # type: ignore[method-assign]
    return Engine(plain.plan, runner, "cpu", parallel)


def counts(used: Engine) -> Counting:
    assert isinstance(used.runner, Counting)
    return used.runner
