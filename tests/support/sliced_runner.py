"""Runners on numpy whose prompts are submitted in slices, also with a clock of their own: waits are exact there."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from py_engine.cpu.runner import PROMPT as PROMPT_KIND
from py_engine.cpu.runner import Work
from py_engine.engine import Engine
from py_engine.generate import joining, time_slices
from py_engine.plan.packing import PackedBatch
from py_engine.plan.sampling import Batch
from py_engine.runners import DEFAULT_FEED, FeedOptions, Row
from tests.support.cpu_engines import MODEL, Runner
from tests.support.cpu_models import load


class SlicedRunner(Runner):
    """A runner that divides the lists of prompts, and notes what it submits."""

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.queues = self.divides_prompts = True
        self.submitted: list[str] = []

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        self.submitted.append(lists[0])
        if options.slices == 1:
            return super().feed(position, ids, lists, seq, read=read, options=options)
        assert read
        ops, count = self.plan.lists[lists[0]], options.slices

        def run(i: int) -> list[Batch]:
            self._cpu.set_media(seq, options.shift, options.media)
            self._cpu.set_tokens(seq, position, ids)
            self._cpu.states[0] = position, len(ids), 0, seq
            for op in ops[i * len(ops) // count : (i + 1) * len(ops) // count]:
                self._cpu.run_op(op)
            for name in lists[1:] if i == count - 1 else ():
                self._cpu.run(name)
            return [self._read(Row(seq, position + len(ids) - 1), 1)]

        def submit(i: int) -> None:
            self.submitted.append("slice")
            self._work.append(Work(partial(run, i), PROMPT_KIND, len(ids)))

        self._work.append(Work(partial(run, 0), PROMPT_KIND, len(ids)))
        return [partial(submit, i) for i in range(1, count)]

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        self.submitted.append("packed")
        super().feed_packed(batch, lists, seq)

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        self.submitted.append("steps")
        super().decode(rows, steps)


class TimedRunner(SlicedRunner):
    """A runner on a device that takes `token_ms` for each token of a prompt, and `step_time` for a step of any rows.

    `now`: the time in milliseconds. It passes only while a result is awaited.
    """

    token_ms, step_time = 8.0, 1.0

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.now = 0.0
        self._free = 0.0  # when the device has done all that was submitted
        self._result_ends, self._step_ends = deque[float](), deque[float]()  # of results: of result(), and of take()

    def _occupy(self, ms: float) -> float:
        self._free = max(self._free, self.now) + ms
        return self._free

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Sequence[Callable[[], None]]:  # fmt: skip
        ms = self.token_ms * len(ids) / options.slices
        rest = super().feed(position, ids, lists, seq, read=read, options=options)
        end = self._occupy(ms)
        if read:
            self._result_ends.append(end)

        def submit(slice_: Callable[[], None]) -> None:
            slice_()
            self._result_ends.append(self._occupy(ms))

        return [partial(submit, slice_) for slice_ in rest]

    def decode(self, rows: Sequence[Row], steps: int) -> None:
        super().decode(rows, steps)
        self._result_ends.append(self._occupy(steps * self.step_time))

    async def result(self) -> list[Batch]:
        for _ in range(50):  # whatever the host does meanwhile takes no time
            await asyncio.sleep(0)
        batches = await super().result()
        self.now = max(self.now, self._result_ends.popleft())
        return batches

    def step(self, count: int, eager: bool = False) -> int:
        self.submitted.append("step")
        self._step_ends.append(self._occupy(count * self.step_time))
        if eager:
            self._occupy(self.step_time)
        return super().step(count, eager)

    async def take(self) -> tuple[Batch, bool]:
        self.now = max(self.now, self._step_ends.popleft())
        return await super().take()

    def rewind(self, position: int, count: int) -> None:
        self._occupy(self.step_time)
        self._step_ends.clear()
        super().rewind(position, count)

    async def stop(self) -> None:
        await super().stop()
        self.now = max(self.now, self._free)
        self._result_ends.clear()

    def prompt_ms(self, n: int) -> float:
        return self.token_ms * n

    def prompt_timed(self, n: int) -> bool:
        return True

    def prompt_tokens_in(self, ms: float) -> int:
        return max(1, min(self.plan.batch, int(ms / self.token_ms)))

    def step_ms(self, rows: int, *, drafting: bool = False, n_model_draft: int = 0) -> float:
        return self.step_time

    def steps_in(self, rows: int, ms: float, *, drafting: bool = False, n_model_draft: int = 0) -> int:
        return max(1, int(ms / self.step_time))


def timed_engine(monkeypatch: pytest.MonkeyPatch, path: Path = MODEL) -> tuple[Engine, TimedRunner]:
    """An engine whose prompts are read in parts of 32 tokens that take 256 ms, by a clock of its own."""
    cpu = load(path, 256, 32)
    runner = TimedRunner(cpu.plan)
    runner._cpu = cpu
    clock = SimpleNamespace(perf_counter=lambda: runner.now / 1000)
    for module in (time_slices, joining):
        monkeypatch.setattr(module, "time", clock)
    return Engine(cpu.plan, runner, "cpu", 4, speculation=False), runner


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError
