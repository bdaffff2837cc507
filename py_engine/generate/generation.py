"""Generate answers: feed the part of a prompt that the KV caches lack, in batches; then decode token by token.

Each request is a sequence with pages of the caches (sequences.py). The scheduler (scheduler.py) interleaves the
answers. One under a constraint that is alone holds the device in time slices (time_slices.py). An answer pauses when
pages are lacking or when the GPU is lost, and continues where it stopped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from functools import partial
from typing import Any, TypeVar

from py_engine.errors import WispError
from py_engine.generate.access import Access
from py_engine.generate.answer import Answer
from py_engine.generate.constrained import ConstrainedDecoder
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.diffusion import Canvas, Denoiser, all_logits
from py_engine.generate.draft_model import drafter_of
from py_engine.generate.encoded import answer_logits, prompt_lists
from py_engine.generate.kv_cache import START, KvCache, key_after
from py_engine.generate.media import PromptMedia
from py_engine.generate.prefix_store import PrefixStore
from py_engine.generate.prompt_parts import UNREAD_MS, prompt_part, tokens_of_part
from py_engine.generate.scheduler import Reuse, Scheduler
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.generate.sequences import Sequences
from py_engine.generate.time_slices import TIME_SLICE, TimeSlices
from py_engine.generate.totals import Totals
from py_engine.plan.diffusion import Schedule
from py_engine.plan.lists import ALL_LOGITS, MEDIA
from py_engine.plan.sampling import Batch
from py_engine.runners import FeedOptions, Rounding, Runner
from py_engine.tasks import to_the_end

AskForMemory = Callable[[int], AbstractAsyncContextManager[bool]]  # may the caches grow by so many bytes?
Result = TypeVar("Result")
Recover = Callable[[], Awaitable[None]]  # wait until restart() was called with a runner that works; WispError


class Generation:
    """The answers of one model."""

    def __init__(
        self, runner: Runner, context_length: int, parallel: int, speculation: bool = True, draft_tokens: int = 0
    ) -> None:
        """`draft_tokens`: most tokens of a draft by a draft model or an MTP layer."""
        self.context_length, self._speculation, self._draft_tokens = context_length, speculation, draft_tokens
        self.access, self.time_slices, self.totals = Access(), TimeSlices(), Totals()
        self.ask_for_memory: AskForMemory = lambda _: nullcontext(True)
        self.recover: Recover | None = None
        self.prefixes: PrefixStore | None = None
        self.sequences = Sequences(_empty_cache(runner), runner, parallel, self._reserve_pages)
        self.scales: Sequence[float] = runner.plan.adapters.defaults  # where a request gives none
        self._use(runner)
        self._usual_run = 0.0  # tokens in a row that a constraint usually accepts
        self._running = 0  # answers that do not wait for pages

    def _use(self, runner: Runner) -> None:
        self.plan, self.runner = runner.plan, runner
        drafter = drafter_of(runner, self._draft_tokens) if self._speculation else None
        self._scheduler = Scheduler(runner, self.time_slices, self.totals, self._speculation, drafter)

    def restart(self, runner: Runner) -> None:
        """Continue on another runner, whose caches are empty, after the device of the last one was lost."""
        self.sequences.restart(_empty_cache(runner), runner)
        self._use(runner)

    async def again_after_loss(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """What `work` returns; it is called again whenever the GPU is lost and comes back."""
        while True:
            runner = self.runner
            try:
                return await work()
            except WispError as error:
                await self.recover_from(error, runner)

    async def alone(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run work that has the engine to itself, again after each loss of the GPU."""
        async with self.access.exclusive():
            return await self.again_after_loss(work)

    async def recover_from(self, error: WispError, runner: Runner) -> None:
        """Wait until the device is back. Raises the error if it was not the loss of `runner`'s device.

        A projector's lost device does not come back: trying again would not end.
        """
        of_projector = runner is self.runner and runner.lost is None
        if error.code != "device_lost" or self.recover is None or of_projector:
            raise error
        await self.recover()

    async def answer(self, answer: Answer, keep: int | None) -> AsyncGenerator[Batch, None]:
        """Run an answer to its end, also where the GPU is lost meanwhile. `keep`: as in AnswerLimits."""
        started = time.perf_counter()
        self.totals.requests += 1
        self.totals.prompt_tokens += len(answer.ids)
        canvas = self._canvas(answer)
        try:
            while True:
                runner = self.runner
                before = runner.counts()
                run = self._run(answer, keep, started) if canvas is None else self._denoise(answer, canvas, started)
                try:
                    async with aclosing(run) as batches:
                        async for batch in batches:
                            yield batch
                    return
                except WispError as error:
                    if answer.sampling.processor is not None:  # a caller's code that never ends loses each device
                        raise
                    await self.recover_from(error, runner)
                finally:
                    for name, value in runner.counts().since(before).items():
                        setattr(answer.stats, name, value)
                answer.lacks_pages = False
        finally:
            self.totals.prompt_ms += answer.stats.prefill_ms
            self.totals.decode_ms += answer.stats.decode_ms
            self.totals.longest = max(self.totals.longest, len(answer.ids))
            if self.prefixes is not None:
                self.prefixes.write_when_idle(self.sequences.cache, self.runner, lambda: self.sequences.idle)

    async def _run(self, answer: Answer, keep: int | None, started: float) -> AsyncGenerator[Batch, None]:
        """Continue an answer to its end, or until the device is lost."""
        async with self.sequences.acquire() as sequence:
            # Those of the sequence's device: another one may replace it at any wait, and have other pages.
            scheduler, runner = self._scheduler, self.runner
            sequence.private = answer.private
            sequence.end = min(len(answer.ids) + answer.left, self.context_length)
            self.set_scales(sequence, answer.scales, answer.ids[: answer.begins])
            if self.prefixes is not None:
                cache, root = self.sequences.cache, sequence.root
                await self.prefixes.restore(answer.ids, cache, runner, answer.exact, root)
            prompt = [MEDIA] if answer.media else []
            await runner.prepare([*prompt_lists(self.plan), *prompt], [sequence.number])
            while not answer.done:
                async with aclosing(self._continue(answer, sequence, scheduler)) as batches:
                    async for batch in batches:
                        self.sequences.resumed(sequence)
                        _update_stats(answer, started)
                        yield batch
                if answer.lacks_pages and not answer.done:
                    await self.sequences.wait_for_pages(sequence, self._needed_end(answer))
                    answer.lacks_pages = False
                elif answer.done or keep is None:
                    return
                else:
                    answer.shift(keep, self.context_length)
                    self.set_scales(sequence, answer.scales, answer.ids[: answer.begins])

    def _canvas(self, answer: Answer) -> Canvas | None:
        """What a diffusion model fills in for an answer; None of other models."""
        if self.plan.diffusion is None:
            return None
        count = min(answer.left, self.context_length - len(answer.ids))
        mask, shifted = self.plan.diffusion.mask, self.plan.diffusion.shifted
        return Canvas(list(answer.ids), count, mask, Schedule.of(answer.sampling, shifted))

    async def _denoise(self, answer: Answer, canvas: Canvas, started: float) -> AsyncGenerator[Batch, None]:
        """Fill in a canvas until the answer ends, or until the device is lost."""
        async with self.sequences.acquire() as sequence:
            self.set_scales(sequence, answer.scales, answer.ids[: answer.begins])
            denoiser = Denoiser(self.runner, sequence.number, answer.sampling)
            async with aclosing(denoiser.run(canvas, self.time_slices)) as batches:
                async for batch in batches:
                    accepted = answer.accept(batch)
                    answer.ids += accepted.ids
                    self.totals.completion_tokens += len(accepted.ids)
                    _update_stats(answer, started)
                    yield accepted
                    if answer.done:
                        return

    def set_scales(self, sequence: SequenceCache, scales: Sequence[float], prompt: Sequence[int] = ()) -> None:
        """Set the scales of adapters that a sequence is computed with. `prompt`: may have their invocation tokens.

        What is cached with other scales is not for this sequence: its root is a hash of them.
        """
        adapters = self.plan.adapters
        if not adapters.count:
            return
        packed = adapters.pack(scales, prompt)
        root = hashlib.blake2b(packed, digest_size=16).digest() if any(scales) else START
        if sequence.tokens and root != sequence.root:
            sequence.release()
        sequence.root = root
        self.runner.set_scales(sequence.number, packed)

    def _needed_end(self, answer: Answer) -> int:
        """The end of the positions that an answer needs before it can go on: those of its tokens, and the next ones."""
        return min(max(len(answer.ids) + 1, answer.needs), self.context_length)

    async def _continue(
        self, answer: Answer, sequence: SequenceCache, scheduler: Scheduler
    ) -> AsyncGenerator[Batch, None]:
        """Feed what the caches lack, then decode until the answer, the context or the pages end."""
        ids = answer.ids
        count = min(answer.left, self.context_length - len(ids) + 1)
        produced: list[int] = []
        run = scheduler.run if answer.constraint is None else partial(self._run_constrained, scheduler)
        self._running += 1
        try:
            async with aclosing(run(answer, sequence, count, lambda: self._reuse(answer, sequence))) as batches:
                async for batch in batches:
                    accepted = answer.accept(batch)
                    produced += accepted.ids
                    self.totals.completion_tokens += len(accepted.ids)
                    # the last token's keys and values are not computed
                    sequence.append(produced[len(sequence.tokens) - len(ids) : -1], generated=True)
                    yield accepted
                    if answer.done:
                        return
            if len(produced) < count and not answer.lacks_pages:
                answer.done = True  # the constraint may allow nothing more
        finally:
            self._running -= 1
            answer.ids = ids + produced

    def _reuse(self, answer: Answer, sequence: SequenceCache) -> bool:
        """Hold what the caches know of an answer's tokens. False: pages are lacking."""
        if not self.sequences.may_hold(sequence):  # what it would hold could not be evicted for an older sequence
            answer.lacks_pages = True
            return False
        before = len(sequence.tokens)
        cached = sequence.reuse(answer.ids, answer.exact)
        if answer.tokens == answer.begun:
            answer.stats.cached_tokens += max(0, cached - before)
            self.totals.cached_tokens += max(0, cached - before)
        answer.lacks_pages = not self.sequences.enough_pages(sequence, self._needed_end(answer))
        return not answer.lacks_pages

    async def _run_constrained(
        self, scheduler: Scheduler, answer: Answer, sequence: SequenceCache, count: int, reuse: Reuse
    ) -> AsyncGenerator[Batch, None]:
        """Feed the prompt and yield up to `count` tokens under a constraint: alone, or beside others if others run."""
        shares = not self.plan.encodes_prompts
        constrained = ConstrainedAnswer(
            answer, self.plan.n_vocab, count, self._usual_run, lambda: self._running > 1,
            can_rewind=shares and not self.plan.recurrent,
            masked_batches=shares and scheduler.runner.decode_masked is not None,
        )  # fmt: skip
        first: Reuse | None = reuse
        try:
            while not constrained.ended and not answer.lacks_pages:
                if constrained.shares():
                    run = scheduler.run(answer, sequence, constrained.left, first, constrained)
                else:
                    run = self._run_alone(scheduler.runner, answer, sequence, constrained, first)
                first = None
                async with aclosing(run) as batches:
                    async for batch in batches:
                        yield batch
                yield Batch([])  # lets the caller abort within a long prompt
        finally:
            self._usual_run = constrained.usual_run

    def _ends_slice(self, constrained: ConstrainedAnswer) -> bool:
        return self.time_slices.expired() or constrained.shares()

    async def _run_alone(
        self,
        runner: Runner,
        answer: Answer,
        sequence: SequenceCache,
        constrained: ConstrainedAnswer,
        reuse: Reuse | None,
    ) -> AsyncGenerator[Batch, None]:
        """Feed the prompt and yield tokens under a constraint for a time slice, or until it can share steps."""
        prompted = reuse is None and len(sequence.tokens) >= len(answer.ids)
        async with self.time_slices.acquire(beside_part=prompted):
            try:
                if reuse is not None and not reuse():
                    return
                fed = len(sequence.tokens) < len(answer.ids)
                if not await self._feed(runner, answer, sequence):
                    return
                beside_part = self.time_slices.part_open
                decoder = ConstrainedDecoder(runner, constrained, sequence, fed=fed, beside_part=beside_part)
                pauses = partial(self._ends_slice, constrained)
                async with aclosing(decoder.batches(pauses)) as batches:
                    async for batch in batches:
                        self.totals.count(len(batch.ids), 1)
                        yield batch
                if decoder.lacks_pages:
                    answer.lacks_pages, answer.needs = True, decoder.needs
            finally:
                await to_the_end(runner.stop())

    async def _feed(self, runner: Runner, answer: Answer, sequence: SequenceCache) -> bool:
        """Feed parts of a prompt; the last one computes the first logits. False: the time slice or the pages ended."""
        await answer.media.encode(answer.ids, len(sequence.tokens))
        await runner.configure(answer.sampling, answer.begins, answer.shifted, True, sequence.number)
        unread = 0.0
        while len(sequence.tokens) < len(answer.ids):
            shares = self.time_slices.wanted  # then a part should not take much longer than a time slice
            most = runner.prompt_tokens_in(1000 * TIME_SLICE) if shares else tokens_of_part(runner)
            part = prompt_part(answer, sequence, runner, most)
            if not part.ids:
                answer.lacks_pages = True
                return False
            # The result only tells the time. If it is not awaited, the first mask is made while the device computes.
            ms = runner.prompt_ms(len(part.ids))
            unread += ms
            read = not ms or (unread > UNREAD_MS and not part.last)
            runner.feed(part.at, part.ids, part.lists, sequence.number, read=read, options=part.options)
            if read:
                await runner.result()
                unread = 0.0
            part.record(sequence)
            self.totals.count(1, 1)
            if len(sequence.tokens) < len(answer.ids) and self.time_slices.expired(ms / 1000):
                return False
        sequence.advance(None, exact=False)  # the decoder computes tokens ahead, and once more
        return True

    async def feed(
        self, ids: list[int], size: int, lists: Sequence[str], first: int = 0, media: PromptMedia | None = None
    ) -> AsyncGenerator[int, None]:
        """Feed a whole sequence; from its token `first` on, run lists on batches of at most `size` tokens.

        Yields after each of these batches how many tokens it had. Tokens from `first` on are not of media. The caller
        has the engine to itself.
        """
        media = media or PromptMedia()
        # What comes before the wanted tokens is as exact as they are.
        rounding = Rounding.FLOATS if ALL_LOGITS in lists else Rounding.SAME
        await media.encode(ids, 0)
        async with self.sequences.acquire() as sequence:
            runner = self.runner  # of the sequence's device
            self.set_scales(sequence, self.scales, ids)
            if rounding is Rounding.FLOATS:  # requests' prompts are rounded otherwise, so none may have these rows
                sequence.root, sequence.private = key_after(sequence.root, []), True
            await runner.prepare([*lists, MEDIA] if media else lists, [sequence.number])
            if self.plan.causal:
                await self.sequences.wait_for_pages(sequence, len(ids))
                self.sequences.resumed(sequence)  # the caller has the engine to itself
            at = 0
            while at < len(ids):
                wanted = at >= first
                count = min(size, len(ids) - at) if wanted else media.part(ids[:first], at, self.plan.batch)
                batch = ids[at : at + count]
                given, shift = media.batch(ids, at, count)
                sequence.reserve(at + count)
                run = lists if wanted else lists[:1] if given is None else [MEDIA]
                options = FeedOptions(given, shift, rounding)
                runner.feed(at, batch, run, sequence.number, options=options)
                if self.plan.causal:
                    sequence.append(batch)
                    sequence.advance(at + count, exact=True)
                at += count
                if wanted:
                    yield count

    async def all_logits(self, ids: list[int]) -> list[Any]:
        """The logits of every position of a diffusion model's sequence, in parts of Runner.rows()."""
        async with self.sequences.acquire() as sequence:
            self.set_scales(sequence, self.scales, ids)
            return await all_logits(self.runner, sequence.number, ids)

    async def answer_logits(self, prompt: list[int], answer: Sequence[int]) -> list[Any]:
        """The logits of an encoder-decoder model after its start token and each token of an answer, in parts."""
        return await answer_logits(self.runner, self.sequences, prompt, answer)

    async def _reserve_pages(self, pages: list[int]) -> bool:
        """Grow the caches to so many pages, by group. False where the memory budget refuses.

        They may have grown already, for a request that was aborted before it heard of that.
        """
        groups = self.plan.page_groups
        pages = [max(n, g.pages) for g, n in zip(groups, pages, strict=True)]
        if pages == [g.pages for g in groups]:
            return True
        needed = sum(self.plan.page_bytes(g) * (n - g.pages) for g, n in zip(groups, pages, strict=True))
        async with self.ask_for_memory(needed) as granted:
            if granted:
                await self.runner.reserve_pages(pages, partial(self.time_slices.acquire, beside_part=True))
        return granted


def _update_stats(answer: Answer, started: float) -> None:
    """Update the answer's figures."""
    stats, tokens, now = answer.stats, answer.tokens, 1000 * (time.perf_counter() - started)
    if tokens > answer.begun and not stats.prefill_ms:
        stats.prefill_ms = now
    stats.completion_tokens, stats.decode_ms = tokens, max(0.0, now - (stats.prefill_ms or now))


def _empty_cache(runner: Runner) -> KvCache:
    return KvCache(runner.plan.page_groups, runner.plan.page, shares=not runner.plan.encodes_prompts)
