"""A batch of sequences: one step reads the weights once for all of them.

A request joins if sampling needs only its logits; it receives its tokens through a queue. One task acquires the
device's time slices for the whole batch. A sequence that is alone drafts tokens where that pays (speculation.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from py_engine.generate.sequence_cache import SequenceCache
from py_engine.generate.speculation import DraftPolicy
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.lists import BATCH_STEP, DRAFT_STEP
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Runner


@dataclass
class BatchedSequence:
    """One sequence of the batch, and the queue its tokens go to."""

    cache: SequenceCache
    position: int
    left: int
    drafts: DraftPolicy
    sampled: bool = True  # the next token exists already: the prompt's last step sampled it
    cancelled: bool = False
    lacks_pages: bool = False
    batches: asyncio.Queue[list[int] | BaseException] = field(default_factory=asyncio.Queue)  # [] at the end
    released: asyncio.Event = field(default_factory=asyncio.Event)  # the device no longer works on it

    def push(self, ids: list[int]) -> None:
        """Queue the next tokens."""
        if self.finished or not ids:
            return
        self.sampled = False
        ids = ids[: self.left]
        self.position += len(ids)
        self.left -= len(ids)
        self.drafts.add(ids)
        self.batches.put_nowait(ids)

    @property
    def finished(self) -> bool:
        """Whether it needs no more tokens, or can have none."""
        return self.cancelled or self.lacks_pages or not self.left

    def reach(self, ahead: int) -> int:
        """How many tokens it may get now, `ahead` of the next one if there are pages."""
        reach = self.cache.reach(self.position, self.position + self.left, ahead) - self.position
        self.lacks_pages = reach <= 0 < self.left
        return reach


class SequenceBatch:
    """The sequences that are decoded together."""

    def __init__(self, runner: Runner, time_slices: TimeSlices, speculation: bool = True) -> None:
        self._runner, self._time_slices, self._speculation = runner, time_slices, speculation
        self._sequences: list[BatchedSequence] = []
        self._changed = False
        self._task: asyncio.Task[None] | None = None

    async def tokens(
        self, cache: SequenceCache, position: int, count: int, ids: list[int]
    ) -> AsyncGenerator[list[int], None]:
        """Yield the next `count` tokens of a sequence, from `position` on, after `ids`; fewer if pages are lacking.

        The last feed has sampled the first of them. Closing the generator cancels the sequence.
        """
        sequence = BatchedSequence(cache, position, count, DraftPolicy(ids))
        self._sequences.append(sequence)
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        try:
            while batch := await sequence.batches.get():
                if isinstance(batch, BaseException):
                    raise batch
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
        if len(self._sequences) > 1 and not self._runner.prepared(BATCH_STEP):
            self._sequences.append(self._sequences.pop(0))
            return self._sequences[-1:]
        batch = self._sequences[:MAX_SMALL_BATCH]
        self._sequences = [*self._sequences[MAX_SMALL_BATCH:], *batch]
        return batch

    def _release_finished(self) -> None:
        for sequence in [s for s in self._sequences if s.finished]:
            self._sequences.remove(sequence)
            sequence.batches.put_nowait([])
            sequence.released.set()

    async def _decode(self, batch: list[BatchedSequence]) -> None:
        """Run steps for a batch until its sequences or its drafting change, or pages are lacking."""
        runner, waiting = self._runner, len(batch) < len(self._sequences)
        drafting = len(batch) == 1 and self._should_draft(batch[0])
        self._changed = False
        granted = min(s.reach(runner.max_ahead()) - s.sampled for s in batch)
        draft_end = self._draft_end(batch[0]) if drafting else 0
        if any(s.lacks_pages for s in batch):
            return
        runner.start_batch(
            [s.cache.number for s in batch],
            [s.position for s in batch],
            [s.sampled for s in batch],
            batch[0].left if drafting else granted,
            draft_end,
        )
        more, existed = True, any(s.sampled for s in batch)
        try:
            while tokens := await runner.next_batch(more):
                for sequence, ids in zip(batch, tokens, strict=True):
                    sequence.push(ids)
                granted, existed = granted - (0 if existed else len(tokens[0])), False
                grown = min(s.reach(runner.max_ahead()) for s in batch) - granted
                if drafting:
                    grown = self._draft_end(batch[0]) - draft_end
                if grown > 0:
                    runner.extend(grown)
                    granted, draft_end = granted + grown, draft_end + grown
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

    def _draft_end(self, sequence: BatchedSequence) -> int:
        """The position before which drafts have pages."""
        runner, n_ctx = self._runner, self._runner.plan.n_ctx
        ahead = max(2 * MAX_SMALL_BATCH, runner.max_ahead())
        return min(n_ctx, sequence.cache.reserve(min(n_ctx, sequence.position + ahead)))

    def _should_draft(self, sequence: BatchedSequence) -> bool:
        """Whether the next steps draft tokens."""
        if not self._speculation or sequence.sampled:
            return False
        runner = self._runner
        pays = sequence.drafts.pays(runner.step_cost_ms(False), runner.step_cost_ms(True))
        return pays and sequence.left > MAX_SMALL_BATCH and runner.prepared(DRAFT_STEP)
