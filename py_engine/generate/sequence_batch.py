"""A batch of sequences: one step reads the weights once for all of them.

A request joins if sampling needs only its logits; it receives its tokens through a queue. One task acquires the
device's time slices for the whole batch. A sequence that is alone drafts tokens where that pays (speculation.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from py_engine.generate.speculation import DraftPolicy
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Runner


@dataclass
class BatchedSequence:
    """One sequence of the batch, and the queue its tokens go to."""

    seq: int
    position: int
    left: int
    drafts: DraftPolicy
    sampled: bool = True  # the next token exists already: the prompt's last step sampled it
    cancelled: bool = False
    batches: asyncio.Queue[Batch | BaseException] = field(default_factory=asyncio.Queue)  # an empty one at the end
    released: asyncio.Event = field(default_factory=asyncio.Event)  # the device no longer works on it

    def push(self, batch: Batch) -> None:
        """Queue the next tokens."""
        if self.finished or not batch.ids:
            return
        self.sampled = False
        batch = batch[: self.left]
        self.position += len(batch.ids)
        self.left -= len(batch.ids)
        self.drafts.add(batch.ids)
        self.batches.put_nowait(batch)

    @property
    def finished(self) -> bool:
        """Whether it needs no more tokens."""
        return self.cancelled or not self.left


class SequenceBatch:
    """The sequences that are decoded together."""

    def __init__(self, runner: Runner, time_slices: TimeSlices, speculation: bool = True) -> None:
        self._runner, self._time_slices, self._speculation = runner, time_slices, speculation
        self._sequences: list[BatchedSequence] = []
        self._changed = False
        self._task: asyncio.Task[None] | None = None

    async def tokens(self, seq: int, position: int, count: int, ids: list[int]) -> AsyncGenerator[Batch, None]:
        """Yield the next `count` tokens of a sequence, from `position` on, after `ids`.

        The last feed has sampled the first of them. Closing the generator cancels the sequence.
        """
        sequence = BatchedSequence(seq, position, count, DraftPolicy(ids))
        self._sequences.append(sequence)
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        try:
            while True:
                batch = await sequence.batches.get()
                if isinstance(batch, BaseException):
                    raise batch
                if not batch.ids:
                    return
                yield batch
        finally:
            sequence.cancelled = self._changed = True
            await sequence.released.wait()

    async def _run(self) -> None:
        try:
            while self._sequences:
                async with self._time_slices.acquire():
                    await self._run_slice()
        except BaseException as error:
            for sequence in self._sequences:
                sequence.batches.put_nowait(error)
                sequence.released.set()
            self._sequences = []
            if not isinstance(error, Exception):
                raise
        finally:
            self._task = None

    async def _run_slice(self) -> None:
        self._release_finished()
        while self._sequences and not self._time_slices.expired():
            await self._decode(self._next_batch())
            self._release_finished()

    def _next_batch(self) -> list[BatchedSequence]:
        """The sequences of the next steps: as many as fit. Until the batch kernels are compiled: one, in turn."""
        batch = self._sequences[:MAX_SMALL_BATCH]
        if len(batch) > 1 and not self._runner.prepared(self._runner.step_lists([s.seq for s in batch])):
            self._sequences.append(self._sequences.pop(0))
            return self._sequences[-1:]
        return batch

    def _release_finished(self) -> None:
        for sequence in [s for s in self._sequences if s.finished]:
            self._sequences.remove(sequence)
            sequence.batches.put_nowait(Batch([]))
            sequence.released.set()

    async def _decode(self, batch: list[BatchedSequence]) -> None:
        """Run steps for a batch until its sequences or its drafting change."""
        runner, waiting = self._runner, len(batch) < len(self._sequences)
        drafting = len(batch) == 1 and self._should_draft(batch[0])
        self._changed = False
        runner.start_batch(
            [s.seq for s in batch],
            [s.position for s in batch],
            [s.sampled for s in batch],
            min(s.left - s.sampled for s in batch),
            drafting,
        )
        more = True
        try:
            while tokens := await runner.next_batch(more):
                for sequence, own in zip(batch, tokens, strict=True):
                    sequence.push(own)
                more = not (
                    self._changed
                    or waiting
                    or self._time_slices.expired()
                    or any(s.finished for s in batch)
                    or (len(batch) == 1 and self._should_draft(batch[0]) != drafting)
                )
        finally:
            await runner.stop()
        if drafting and more and not batch[0].finished:
            batch[0].drafts.fits = False

    def _should_draft(self, sequence: BatchedSequence) -> bool:
        """Whether the next steps draft tokens."""
        if not self._speculation or sequence.sampled:
            return False
        runner = self._runner
        pays = sequence.drafts.pays(runner.step_cost_ms(False), runner.step_cost_ms(True))
        return (
            pays
            and sequence.left > MAX_SMALL_BATCH
            and runner.prepared(runner.step_lists([sequence.seq], drafting=True))
        )
