"""Generate answers: feed the part of a prompt that the KV cache lacks, in batches; then decode token by token.

Each request has a sequence slot (sequence_slots.py). The scheduler (scheduler.py) interleaves the answers. Those under
a constraint hold the device in time slices (time_slices.py): they pause when others wait, and continue where they
stopped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from py_engine.errors import WispError
from py_engine.generate.answer import Answer
from py_engine.generate.constrained import ConstrainedDecoder
from py_engine.generate.scheduler import Reuse, Scheduler
from py_engine.generate.sequence_slots import SequenceSlot, SequenceSlots
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.lists import PREFILL, PREFILL_END
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Counts, Runner

MIN_PREFIX_TO_COPY = 32  # tokens that another sequence's cache must hold beyond this slot's
AskForMemory = Callable[[int], AbstractAsyncContextManager[bool]]  # may the caches grow by so many bytes?


class Generation:
    """The answers of one model."""

    def __init__(self, runner: Runner, context_length: int, parallel: int, speculation: bool = True) -> None:
        self.plan, self.runner, self.context_length = runner.plan, runner, context_length
        self.time_slices = TimeSlices()
        self.ask_for_memory: AskForMemory = lambda _: nullcontext(True)
        self.slots = SequenceSlots(self.plan.ring_slack, min(parallel, MAX_SMALL_BATCH), self._reserve_sequences)
        self._scheduler = Scheduler(runner, self.time_slices, speculation)
        self._usual_run = 0.0  # tokens in a row that a constraint usually accepts

    async def answer(self, answer: Answer, keep: int | None) -> AsyncGenerator[Batch, None]:
        """Engine.generate()."""
        started, before = time.perf_counter(), self.runner.counts()
        async with self.slots.acquire(answer.ids) as slot:
            while not answer.done:
                async with aclosing(self._continue(answer, slot)) as batches:
                    async for batch in batches:
                        self._update_stats(answer, started, before)
                        yield batch
                if answer.done or keep is None:
                    return
                answer.stats.shifted_tokens += answer.shift(keep, self.context_length)

    async def _continue(self, answer: Answer, slot: SequenceSlot) -> AsyncGenerator[Batch, None]:
        """Feed what the cache lacks, then decode until the answer or the context ends."""
        ids = answer.ids
        count = min(answer.left, self.context_length - len(ids) + 1)
        produced: list[int] = []
        try:
            run = self._scheduler.run if answer.constraint is None else self._run_constrained
            async with aclosing(run(answer, slot, count, lambda: self._reuse(answer, slot))) as batches:
                async for batch in batches:
                    accepted = answer.accept(batch)
                    produced += accepted.ids
                    yield accepted
                    if answer.done:
                        return
            if len(produced) < count:
                answer.done = True  # the constraint may allow nothing more
        finally:
            slot.cache.append(produced[:-1], generated=True)  # the last token's keys and values are not computed
            answer.ids = ids + produced

    async def _reuse(self, answer: Answer, slot: SequenceSlot) -> None:
        """Keep what the slot's cache has in common with the answer's ids, or copy more from another one."""
        slot.computed = slot.cache.reuse(answer.ids, answer.exact)
        if not answer.tokens:
            answer.stats.cached_tokens = slot.computed
        await self._copy_prefix(answer, slot)

    async def _run_constrained(
        self, answer: Answer, slot: SequenceSlot, count: int, reuse: Reuse
    ) -> AsyncGenerator[Batch, None]:
        """Feed the prompt and yield up to `count` tokens under a constraint, in time slices."""
        await reuse()
        decoder = ConstrainedDecoder(self.runner, answer, len(answer.ids), count, slot.number, self._usual_run)
        try:
            while not decoder.ended:
                async with self.time_slices.acquire():
                    try:
                        await self._feed(answer, slot)
                        if slot.computed == len(answer.ids):
                            async with aclosing(decoder.batches(self.time_slices.expired)) as batches:
                                async for batch in batches:
                                    yield batch
                    finally:
                        await self.runner.stop()
                yield Batch([])  # lets the caller abort within a long prompt
        finally:
            self._usual_run = decoder.usual_run

    async def _copy_prefix(self, answer: Answer, slot: SequenceSlot) -> None:
        """Copy another sequence's cache where it holds more of the prompt.

        Rings are not copied: the position of the other ring changes while its sequence runs.
        """
        if self.plan.ring_slack:
            return
        prompt = answer.ids[:-1]
        other = max(self.slots.all, key=lambda slot: slot.cache.common_prefix(prompt))
        shared = other.cache.common_prefix(prompt)
        shared = min(shared, other.cache.prompted) if answer.exact else shared
        if shared < slot.computed + MIN_PREFIX_TO_COPY:
            return
        try:
            await self.runner.copy_cache(other.number, slot.number)
        except WispError as error:
            if error.code != "out_of_memory":
                raise
            return
        slot.cache.copy_from(other.cache, shared)
        if not answer.tokens:
            answer.stats.cached_tokens += shared - slot.computed
        slot.computed = shared

    async def _feed(self, answer: Answer, slot: SequenceSlot) -> None:
        """Feed parts of a prompt until it or the time slice ends. The last one computes the answer's first logits."""
        runner = self.runner
        await runner.configure(answer.sampling, answer.begins, answer.shifted, True, slot.number)
        while slot.computed < len(answer.ids):
            part = answer.ids[slot.computed : slot.computed + self.plan.batch]
            last = slot.computed + len(part) == len(answer.ids)
            runner.feed(slot.computed, part, PREFILL_END if last else (PREFILL,), slot.number, read=True)
            await runner.result()
            slot.cache.append(part)
            slot.computed += len(part)
            if self.time_slices.expired():
                return

    def _update_stats(self, answer: Answer, started: float, before: Counts) -> None:
        """Update the answer's figures. Requests side by side each count all work of the device."""
        stats, tokens, now = answer.stats, answer.tokens, 1000 * (time.perf_counter() - started)
        if tokens and not stats.completion_tokens:
            stats.prefill_ms = now
        stats.completion_tokens, stats.decode_ms = tokens, max(0.0, now - (stats.prefill_ms or now))
        for name, value in self.runner.counts().since(before).items():
            setattr(stats, name, value)

    async def _reserve_sequences(self, sequences: int) -> bool:
        """Grow the caches to `sequences`. False where the memory budget refuses."""
        reserved = self.plan.sequences
        needed = self.plan.memory()["kv"] // reserved * (sequences - reserved)
        async with self.ask_for_memory(needed) as granted:
            if granted:
                async with self.time_slices.acquire():
                    await self.runner.reserve_sequences(sequences)
        return granted
