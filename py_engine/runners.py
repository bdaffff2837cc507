"""What the engine needs of an executor: gpu_runner.py (WebGPU) and cpu_runner.py (numpy) are the two.

A runner's `feed` puts tokens of a sequence at their positions and runs lists of the plan over them; `start`, `next` and
`stop` generate one sequence freely, `begin`, `mask`, `step`, `take` and `rewind` step by step, `start_each` and
`next_each` several together, or one with guesses; `load` takes the weights that a record holds. One thing at a time:
the engine gives the turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling


@dataclass(frozen=True)
class Counts:
    """What a device was asked for; milliseconds that went into asking, and into waiting for its answers."""

    submits: int = 0
    dispatches: int = 0
    encode_ms: float = 0.0
    wait_ms: float = 0.0

    def since(self, before: Counts) -> dict[str, Any]:
        """The difference, by name."""
        return {f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)}


class Runner(Protocol):
    """What the engine needs of an executor."""

    plan: Plan
    lists: list[str]  # those that choose a token, behind "last" or "decode"
    quick: bool  # a GPU, where few tokens are worth kernels of their own

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        """Take the weights out of a record, a JavaScript ArrayBuffer."""

    async def ready(self) -> None:
        """Wait until every weight is in place."""

    async def make_room(self, sequences: int) -> None:
        """Let the caches hold that many sequences; what they hold stays. WispError out_of_memory."""

    async def copy_cache(self, source: int, to: int) -> None:
        """Let a sequence have another's tokens, and what its caches hold of them. WispError out_of_memory, and nothing
        has changed then.
        """

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        """Set a sequence's sampling parameters. `answer`: position of the answer's first token; `shifted`: tokens that
        were dropped from the context; `constrained`: masks will come.
        """

    async def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        """Run lists over a sequence's tokens at `position`; returns when the batch before this one is done."""

    def start(self, position: int, count: int, seq: int = 0) -> None:
        """Generate up to `count` tokens, the first of which the last feed has sampled for `position`."""

    async def next(self) -> Batch:
        """The next ids; none at the end."""

    def prepared(self, lists: Sequence[str]) -> bool:
        """Whether lists can be run at once; if not, they soon can."""

    def start_each(
        self, sequences: list[int], positions: list[int], chosen: list[bool], count: int, guesses: bool = False
    ) -> None:
        """Hand out the tokens of each sequence from its position on: one that the last feed has `chosen`, and up to
        `count` that are generated. `guesses`: of one, whose next tokens are guessed, so that a step may give several.
        """

    async def next_each(self, more: bool = True) -> list[list[int]]:
        """The next ids of each sequence; none at the end. `more`: go on computing meanwhile."""

    def price(self, guesses: bool, sequences: int = 1) -> float:
        """Milliseconds of a step that start_each() would take; 0: not known."""

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        """Generate up to `count` tokens by step(), for the first of which the last feed has made the logits."""

    def mask(self, allowed: Any | None) -> None:
        """What the tokens of the next step may be (Constraint.mask), None: anything."""

    def step(self, count: int, eager: bool = False) -> int:
        """Choose the next tokens, each from the logits of the one before; gives how many it will be. `eager`: then make
        the logits behind the last, too, while the host looks at the tokens.
        """

    async def take(self) -> tuple[Batch, bool]:
        """The tokens of the oldest step, and whether the mask refused the first choice of any of them."""

    async def rewind(self, position: int, count: int) -> None:
        """Forget the tokens from `position` on, and make its logits again; up to `count` tokens may follow."""

    def most_ahead(self) -> int:
        """Tokens that are worth choosing before the first of them is looked at."""

    async def stop(self) -> None:
        """End generation."""

    async def logits(self, n: int) -> Any:
        """Rows of the list "every" after a feed, float32 (n, vocab)."""

    async def rows(self, name: str, n: int, width: int) -> Any:
        """The first rows of a buffer of the plan without their padding, float32 (n, width)."""

    def counts(self) -> Counts:
        """What the device was asked for so far."""

    def close(self) -> None:
        """Give the memory back."""


async def step_ms(runner: Runner, steps: int = 3) -> float:
    """Milliseconds of one decode step, the mean of a few, after one that pays for first-time costs; of an encoder,
    those of a token in a small batch.
    """
    if not runner.plan.generates:
        return await _encode_ms(runner)
    await runner.feed(0, [0], ["prefill", "last", *runner.lists])
    runner.start(1, steps + 2)
    for _ in range(2):
        await runner.next()
    begun = time.perf_counter()
    for _ in range(steps):
        await runner.next()
    await runner.stop()
    return 1000 * (time.perf_counter() - begun) / steps


async def _encode_ms(runner: Runner) -> float:
    n = min(16, runner.plan.batch)
    begun = 0.0
    for _ in range(2):  # the first pays for first-time costs
        begun = time.perf_counter()
        await runner.feed(0, [0] * n, ["prefill", "embed", "last"])
        await runner.rows("pooled", 1, 1)
    return 1000 * (time.perf_counter() - begun) / n
