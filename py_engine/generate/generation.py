"""Generate answers: feed the part of a prompt that the KV caches lack, in batches; then decode token by token.

Each request is a sequence with pages of the caches (sequences.py). Answers that need only their logits are decoded in
one batch (sequence_batch.py). Other answers, and prompts, share the device in time slices (time_slices.py): they pause
when others wait, or when pages are lacking, and continue where they stopped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from py_engine.generate.answer import Answer
from py_engine.generate.constrained import ConstrainedDecoder
from py_engine.generate.kv_cache import KvCache
from py_engine.generate.sequence_batch import SequenceBatch
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.generate.sequences import Sequences
from py_engine.generate.time_slices import TimeSlices
from py_engine.plan.lists import DECODE, PREFILL, PREFILL_END, SMALL_BATCH, SMALL_BATCH_END
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Counts, Runner

SHORT_PROMPT = 2 * MAX_SMALL_BATCH  # tokens that are fed in small batches: prefill's larger tiles would be mostly empty
AskForMemory = Callable[[int], AbstractAsyncContextManager[bool]]  # may the caches grow by so many bytes?


class Generation:
    """The answers of one model."""

    def __init__(self, runner: Runner, context_length: int, parallel: int, speculation: bool = True) -> None:
        self.plan, self.runner, self.context_length = runner.plan, runner, context_length
        self.time_slices = TimeSlices()
        self.ask_for_memory: AskForMemory = lambda _: nullcontext(True)
        cache = KvCache(self.plan.page_groups, self.plan.page)
        self.sequences = Sequences(cache, runner, parallel, self._reserve_pages)
        self._batch = SequenceBatch(runner, self.time_slices, speculation)
        self._usual_run = 0.0  # tokens in a row that a constraint usually accepts

    async def answer(self, answer: Answer, keep: int | None) -> AsyncGenerator[Batch, None]:
        """Engine.generate()."""
        started, before = time.perf_counter(), self.runner.counts()
        async with self.sequences.acquire() as sequence:
            while not answer.done:
                async with aclosing(self._continue(answer, sequence)) as batches:
                    async for batch in batches:
                        self._update_stats(answer, started, before)
                        yield batch
                if answer.lacks_pages:
                    await self.sequences.wait_for_pages(sequence, self._end(answer))
                    answer.lacks_pages = False
                if answer.done or answer.paused:
                    continue
                if keep is None:
                    return
                answer.stats.shifted_tokens += answer.shift(keep, self.context_length)

    def _end(self, answer: Answer) -> int:
        """The positions that an answer needs before it can go on: those of its tokens, and the next one."""
        return min(len(answer.ids) + 1, self.context_length)

    async def _continue(self, answer: Answer, sequence: SequenceCache) -> AsyncGenerator[Batch, None]:
        """Feed what the caches lack, then decode until the answer, the context, the time slice or the pages end."""
        ids = answer.ids
        count = min(answer.left, self.context_length - len(ids) + 1)
        if not answer.paused:
            answer.prompted = len(ids)
        answer.paused = False
        produced: list[int] = []
        fed = False  # reuse() looks for what others have computed in the meantime
        try:
            while not fed:
                async with aclosing(self._run_slice(answer, sequence, count)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        sequence.append(produced[len(sequence.tokens) - len(ids) : -1], generated=True)
                        yield batch
                fed = len(sequence.tokens) >= len(ids)
                if answer.paused:
                    return
            if answer.batchable:
                async with aclosing(self._decode_batched(answer, sequence, count)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        sequence.append(produced[len(sequence.tokens) - len(ids) : -1], generated=True)
                        yield batch
            if len(produced) < count and not answer.paused:
                answer.done = True  # the constraint may allow nothing more
        finally:
            answer.ids = ids + produced

    async def _run_slice(self, answer: Answer, sequence: SequenceCache, count: int) -> AsyncGenerator[Batch, None]:
        """Use one time slice: feed more of the prompt, and decode after it unless the answer joins the batch."""
        async with self.time_slices.acquire():
            try:
                before = len(sequence.tokens)
                cached = sequence.reuse(answer.ids, answer.exact)
                if not answer.tokens:
                    answer.stats.cached_tokens += max(0, cached - before)
                if not self.sequences.enough_pages(sequence, self._end(answer)):
                    answer.lacks_pages = answer.paused = True
                    return
                while len(sequence.tokens) < len(answer.ids):
                    if not await self._feed(answer, sequence):
                        answer.lacks_pages = answer.paused = True
                        return
                    yield Batch([])  # lets the caller abort within a long prompt
                    if len(sequence.tokens) < len(answer.ids) and self.time_slices.expired():
                        return
                if answer.batchable:
                    return
                async with aclosing(self._decode_alone(answer, sequence, count)) as batches:
                    async for batch in batches:
                        yield answer.accept(batch)
                        answer.paused = not answer.done and self.time_slices.expired()
                        if answer.done or answer.paused:
                            return
            finally:
                await self.runner.stop()

    async def _feed(self, answer: Answer, sequence: SequenceCache) -> bool:
        """Feed the next batch of the prompt. The last batch also samples the answer's first token. False: no pages."""
        at, runner = len(sequence.tokens), self.runner
        left = len(answer.ids) - at
        # Tokens that were decoded once are decoded again if the text must not depend on it, and where it is one token.
        decoded = at >= answer.prompted and (answer.exact or left == 1)
        short = left <= SHORT_PROMPT and runner.on_gpu and not answer.exact
        small = not decoded and short and runner.prepared(SMALL_BATCH_END)
        most = 1 if decoded else MAX_SMALL_BATCH if small else self.plan.batch
        if answer.exact and at < answer.prompted:
            most = min(most, answer.prompted - at)
        batch = answer.ids[at : at + most]
        if sequence.reserve(at + len(batch)) < at + len(batch):
            return False
        lists = [DECODE if decoded else SMALL_BATCH if small else PREFILL]
        if len(batch) == left:
            constrained = answer.constraint is not None
            await runner.configure(answer.sampling, answer.begins, answer.shifted, constrained, sequence.number)
            layers = (DECODE,) if decoded else SMALL_BATCH_END if small else PREFILL_END
            lists = [*layers, *([] if constrained else runner.lists)]
        await runner.feed(at, batch, lists, sequence.number)
        sequence.append(batch, generated=decoded)
        return True

    async def _decode_alone(self, answer: Answer, sequence: SequenceCache, count: int) -> AsyncGenerator[Batch, None]:
        """Yield up to `count` tokens of one sequence that has the device to itself."""
        first = len(answer.ids)
        if answer.constraint is None:
            async with aclosing(self._sample_freely(sequence, first, count)) as batches:
                async for batch in batches:
                    yield batch
                    first += len(batch.ids)
            answer.lacks_pages = answer.paused = first < len(answer.ids) + count
            return
        decoder = ConstrainedDecoder(self.runner, answer, first, count, sequence, self._usual_run)
        try:
            async with aclosing(decoder.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._usual_run = decoder.usual_run
        answer.lacks_pages = answer.paused = decoder.lacks_pages

    async def _sample_freely(self, sequence: SequenceCache, position: int, count: int) -> AsyncGenerator[Batch, None]:
        """Yield up to `count` tokens from `position` on, as many as there are pages for."""
        runner, end = self.runner, position + count
        granted = max(position + 1, sequence.reach(position, end, runner.max_ahead()))
        runner.start(position, granted - position, sequence.number)
        while (batch := await runner.next()).ids:
            position += len(batch.ids)
            yield batch
            more = sequence.reach(position, end, runner.max_ahead()) - granted
            if more > 0:
                runner.extend(more)
                granted += more

    async def _decode_batched(self, answer: Answer, sequence: SequenceCache, count: int) -> AsyncGenerator[Batch, None]:
        """Yield up to `count` tokens, decoded in steps shared with other sequences."""
        left = count
        async with aclosing(self._batch.tokens(sequence, len(answer.ids), count, answer.ids)) as batches:
            async for ids in batches:
                left -= len(ids)
                yield answer.accept(Batch(ids))
                if answer.done:
                    return
        answer.lacks_pages = answer.paused = left > 0

    async def feed(self, ids: list[int], size: int, lists: list[str]) -> AsyncGenerator[int, None]:
        """Feed a whole sequence in batches of at most `size` tokens; after each, yield how many it had.

        The caller has the engine to itself.
        """
        async with self.sequences.acquire() as sequence:
            if self.plan.generates:
                await self.sequences.wait_for_pages(sequence, len(ids))
            for at in range(0, len(ids), size):
                batch = ids[at : at + size]
                sequence.reserve(at + len(batch))
                await self.runner.feed(at, batch, lists, sequence.number)
                if self.plan.generates:
                    sequence.append(batch)
                yield len(batch)

    def _update_stats(self, answer: Answer, started: float, before: Counts) -> None:
        """Update the answer's figures. Requests side by side each count all work of the device."""
        stats, tokens, now = answer.stats, answer.tokens, 1000 * (time.perf_counter() - started)
        if tokens and not stats.completion_tokens:
            stats.prefill_ms = now
        stats.completion_tokens, stats.decode_ms = tokens, max(0.0, now - (stats.prefill_ms or now))
        for name, value in self.runner.counts().since(before).items():
            setattr(stats, name, value)

    async def _reserve_pages(self, pages: list[int]) -> bool:
        """Grow the caches to so many pages, by group. False where the memory budget refuses."""
        groups = self.plan.page_groups
        needed = sum(self.plan.page_bytes(g) * (n - g.pages) for g, n in zip(groups, pages, strict=True))
        async with self.ask_for_memory(needed) as granted:
            if granted:
                async with self.time_slices.acquire():
                    await self.runner.reserve_pages(pages)
        return granted
