"""Generate answers: feed the part of a prompt that the KV cache lacks, in batches; then decode token by token.

Each request has a sequence slot (sequence_slots.py). Answers that need only their logits are decoded in one
batch (sequence_batch.py). Other answers, and prompts, share the device in time slices (time_slices.py): they pause when
others wait, and continue where they stopped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from py_engine.errors import WispError
from py_engine.generate.answer import Answer
from py_engine.generate.constrained import ConstrainedDecoder
from py_engine.generate.sequence_batch import SequenceBatch
from py_engine.generate.sequence_slots import SequenceSlot, SequenceSlots
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.lists import DECODE, PREFILL, PREFILL_END, SMALL_BATCH, SMALL_BATCH_END
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Counts, Runner

SHORT_PROMPT = 2 * MAX_SMALL_BATCH  # tokens that are fed in small batches: prefill's larger tiles would be mostly empty
MIN_PREFIX_TO_COPY = 32  # tokens that another sequence's cache must hold beyond this slot's
AskForMemory = Callable[[int], AbstractAsyncContextManager[bool]]  # may the caches grow by so many bytes?


class Generation:
    """The answers of one model."""

    def __init__(self, runner: Runner, context_length: int, parallel: int, speculation: bool = True) -> None:
        self.plan, self.runner, self.context_length = runner.plan, runner, context_length
        self.time_slices = TimeSlices()
        self.ask_for_memory: AskForMemory = lambda _: nullcontext(True)
        self.slots = SequenceSlots(self.plan.ring_slack, min(parallel, MAX_SMALL_BATCH), self._reserve_sequences)
        self._batch = SequenceBatch(runner, self.time_slices, speculation)
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
                if answer.done or answer.paused:
                    continue
                if keep is None:
                    return
                answer.stats.shifted_tokens += answer.shift(keep, self.context_length)

    async def _continue(self, answer: Answer, slot: SequenceSlot) -> AsyncGenerator[Batch, None]:
        """Feed what the cache lacks, then decode until the answer, the context or the time slice ends."""
        ids = answer.ids
        slot.computed = slot.cache.reuse(ids, answer.exact and not answer.paused)
        if not answer.tokens:
            answer.stats.cached_tokens = slot.computed
        count = min(answer.left, self.context_length - len(ids) + 1)
        resumed, answer.paused = answer.paused, False
        produced: list[int] = []
        try:
            while slot.computed < len(ids):
                async with aclosing(self._run_slice(answer, slot, count, resumed)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        yield batch
            if answer.batchable:
                async with aclosing(self._decode_batched(answer, slot, count)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        yield batch
            if len(produced) < count and not answer.paused:
                answer.done = True  # the constraint may allow nothing more
        finally:
            slot.cache.append(produced[:-1], generated=True)  # the last token's keys and values are not computed
            answer.ids = ids + produced

    async def _run_slice(
        self, answer: Answer, slot: SequenceSlot, count: int, resumed: bool
    ) -> AsyncGenerator[Batch, None]:
        """Use one time slice: feed more of the prompt, and decode after it unless the answer joins the batch."""
        async with self.time_slices.acquire():
            try:
                await self._copy_prefix(answer, slot)
                while slot.computed < len(answer.ids):
                    await self._feed(answer, slot, resumed)
                    yield Batch([])  # lets the caller abort within a long prompt
                    if slot.computed < len(answer.ids) and self.time_slices.expired():
                        return
                if answer.batchable:
                    return
                async with aclosing(self._decode_alone(answer, slot, count)) as batches:
                    async for batch in batches:
                        yield answer.accept(batch)
                        answer.paused = not answer.done and self.time_slices.expired()
                        if answer.done or answer.paused:
                            return
            finally:
                await self.runner.stop()

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

    async def _feed(self, answer: Answer, slot: SequenceSlot, resumed: bool) -> None:
        """Feed the next batch of the prompt. The last batch also samples the answer's first token."""
        at, runner = slot.computed, self.runner
        left = len(answer.ids) - at
        short = left <= SHORT_PROMPT and runner.on_gpu and not answer.exact
        small = short and runner.prepared(SMALL_BATCH_END)
        batch = answer.ids[at : at + (MAX_SMALL_BATCH if small else self.plan.batch)]
        lists = [SMALL_BATCH if small else PREFILL]
        if len(batch) == left:
            constrained = answer.constraint is not None
            await runner.configure(answer.sampling, answer.begins, answer.shifted, constrained, slot.number)
            layers = (DECODE,) if resumed and left == 1 else SMALL_BATCH_END if small else PREFILL_END
            lists = [*layers, *([] if constrained else runner.lists)]
        await self.runner.feed(at, batch, lists, slot.number)
        slot.cache.append(batch)
        slot.computed += len(batch)

    async def _decode_alone(self, answer: Answer, slot: SequenceSlot, count: int) -> AsyncGenerator[Batch, None]:
        """Yield up to `count` tokens of one sequence that has the device to itself."""
        position = len(answer.ids)
        if answer.constraint is None:
            self.runner.start(position, count, slot.number)
            while (batch := await self.runner.next()).ids:
                yield batch
            return
        decoder = ConstrainedDecoder(self.runner, answer, position, count, slot.number, self._usual_run)
        try:
            async with aclosing(decoder.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._usual_run = decoder.usual_run

    async def _decode_batched(self, answer: Answer, slot: SequenceSlot, count: int) -> AsyncGenerator[Batch, None]:
        """Yield up to `count` tokens, decoded in steps shared with other sequences."""
        async with aclosing(self._batch.tokens(slot.number, len(answer.ids), count, answer.ids)) as batches:
            async for batch in batches:
                yield answer.accept(batch)
                if answer.done:
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
