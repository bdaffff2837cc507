"""What the engine needs of an executor. There are two: gpu/runner.py (WebGPU) and cpu/runner.py (numpy).

`load` copies weights out of a record. `feed` writes tokens of a sequence at their positions and runs lists of the plan
over them. There are three ways to decode, each ended by `stop`:
    start, next                      one sequence, unconstrained
    begin, mask, step, take, rewind  one sequence, step by step under the host's control
    start_batch, next_batch          several sequences together, or one with drafts
A runner serves one caller at a time; generate/ schedules the calls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from py_engine.plan.lists import EMBED, PREFILL, PREFILL_END, pool
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling


@dataclass(frozen=True)
class Counts:
    """Work of a device so far; milliseconds spent encoding it and waiting for its results."""

    submits: int = 0
    dispatches: int = 0
    encode_ms: float = 0.0
    wait_ms: float = 0.0

    def since(self, before: Counts) -> dict[str, Any]:
        """The difference to earlier counts, by name."""
        return {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}


class Runner(Protocol):
    """An executor of one plan."""

    plan: Plan
    lists: list[str]  # the lists that sample a token, after LAST_LOGITS or DECODE
    on_gpu: bool  # a real GPU, where small batches have kernels of their own

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        """Copy weights out of a record, a JavaScript ArrayBuffer. On return it may be freed."""

    async def ready(self) -> None:
        """Wait until every weight is in place."""

    async def reserve_sequences(self, sequences: int) -> None:
        """Grow the caches to `sequences`; what they hold stays. WispError out_of_memory."""

    async def copy_cache(self, source: int, to: int) -> None:
        """Copy a sequence's tokens and cache to another. WispError out_of_memory; nothing has changed then."""

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        """Set a sequence's sampling parameters.

        `answer`: position of the answer's first token; `shifted`: tokens dropped from the context; `constrained`: masks
        will follow.
        """

    async def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        """Run lists over a sequence's tokens at `position`; returns when the batch before this one is done."""

    def start(self, position: int, count: int, seq: int = 0) -> None:
        """Begin decoding up to `count` tokens; the last feed has sampled the first one, for `position`."""

    async def next(self) -> Batch:
        """The next ids; none at the end."""

    def prepared(self, lists: Sequence[str]) -> bool:
        """Whether lists can run now. If not, start compiling them."""

    def start_batch(
        self, sequences: list[int], positions: list[int], sampled: list[bool], count: int, drafting: bool = False
    ) -> None:
        """Begin decoding several sequences, each from its position on.

        `sampled`: the last feed has sampled that token already. `count`: tokens of each beyond it. `drafting`: one
        sequence whose next tokens are drafted, so that a step may yield several.
        """

    async def next_batch(self, more: bool = True) -> list[list[int]]:
        """The next ids of each sequence; none at the end. `more`: keep submitting steps."""

    def step_cost_ms(self, drafting: bool, sequences: int = 1) -> float:
        """Milliseconds of one step of such a batch; 0: not measured yet."""

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        """Begin decoding up to `count` tokens by step(); the last feed has computed the first one's logits."""

    def mask(self, allowed: Any | None) -> None:
        """Set which tokens the next step may sample (Constraint.mask); None: all."""

    def step(self, count: int, eager: bool = False) -> int:
        """Sample the next tokens, each from the logits of the one before; returns how many there will be.

        `eager`: also compute the logits after the last one, while the host looks at the tokens.
        """

    async def take(self) -> tuple[Batch, bool]:
        """The tokens of the oldest step, and whether the mask rejected the first choice of any of them."""

    async def rewind(self, position: int, count: int) -> None:
        """Drop the tokens from `position` on and recompute its logits; up to `count` tokens may follow."""

    def max_lookahead(self) -> int:
        """Tokens that are worth sampling before the first of them is checked."""

    async def stop(self) -> None:
        """End decoding."""

    async def logits(self, n: int) -> Any:
        """The first n rows of the list ALL_LOGITS after a feed, float32 (n, vocab)."""

    async def rows(self, name: str, n: int, width: int) -> Any:
        """The first n rows of a buffer of the plan without padding, float32 (n, width)."""

    async def pooled_rows(self, sequences: Sequence[list[int]], lists: list[str], name: str, width: int) -> Any:
        """Feed each sequence from position 0 on, run lists over each of its batches, and read row 0 of a buffer.

        Float32 (sequences, width). Waits for the device once, not once per sequence.
        """

    def counts(self) -> Counts:
        """Work of the device so far."""

    def close(self) -> None:
        """Free all memory."""


async def step_ms(runner: Runner, steps: int = 3) -> float:
    """Milliseconds of one decode step, averaged after a warm-up; for an encoder, of a token in a small batch."""
    if not runner.plan.generates:
        return await _encode_ms(runner)
    await runner.feed(0, [0], [*PREFILL_END, *runner.lists])
    runner.start(1, steps + 2)
    for _ in range(2):
        await runner.next()
    started = time.perf_counter()
    for _ in range(steps):
        await runner.next()
    await runner.stop()
    return 1000 * (time.perf_counter() - started) / steps


async def _encode_ms(runner: Runner) -> float:
    n = min(16, runner.plan.batch)
    started = 0.0
    for _ in range(2):  # the first run warms up
        started = time.perf_counter()
        await runner.feed(0, [0] * n, [PREFILL, EMBED, pool("last")])
        await runner.rows("pooled", 1, 1)
    return 1000 * (time.perf_counter() - started) / n
