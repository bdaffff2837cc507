"""Answers: what the KV cache lacks of a prompt goes through the model in batches, then token follows token.

Requests have a sequence each (seats.py). What needs nothing but the logits is generated together (together.py); other
answers, and prompts, have the device in turns (slices.py): they pause when others wait, and go on where they were.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext

from py_engine.errors import WispError
from py_engine.generate.answer import Answer
from py_engine.generate.batching import Together
from py_engine.generate.constrained import ConstrainedTokens
from py_engine.generate.sequence_slots import Seat, Seats
from py_engine.generate.time_slices import Slices
from py_engine.plan.ops import FEW
from py_engine.plan.sampling import Batch
from py_engine.runners import Counts, Runner

SHORT = 2 * FEW  # tokens of a prompt that are read FEW at a time: the tiles of more would be mostly empty
WORTH_COPYING = 32  # tokens of a prompt that another sequence's cache holds
Room = Callable[[int], AbstractAsyncContextManager[bool]]  # whether caches may grow by so many bytes, while they do


class Generation:
    """The answers of one model."""

    def __init__(self, runner: Runner, context_length: int, parallel: int, speculation: bool = True) -> None:
        self.plan, self.runner, self.context_length = runner.plan, runner, context_length
        self.slices = Slices()
        self.room: Room = lambda _: nullcontext(True)
        self.seats = Seats(self.plan.spare, min(parallel, FEW), self._make_room)
        self._together = Together(runner, self.slices, speculation)
        self._unrefused = 0.0  # tokens that a constraint usually accepts one after the other

    async def answer(self, answer: Answer, keep: int | None) -> AsyncGenerator[Batch, None]:
        """Engine.generate()."""
        begun, before = time.perf_counter(), self.runner.counts()
        async with self.seats.seat(answer.ids) as seat:
            while not answer.done:
                async with aclosing(self._go_on(answer, seat)) as batches:
                    async for batch in batches:
                        self._note(answer, begun, before)
                        yield batch
                if answer.done or answer.paused:
                    continue
                if keep is None:
                    return
                answer.stats.shifted_tokens += answer.shift(keep, self.context_length)

    async def _go_on(self, answer: Answer, seat: Seat) -> AsyncGenerator[Batch, None]:
        """Compute what the cache lacks, and generate until the answer or the context ends, or others want a turn."""
        ids = answer.ids
        seat.held = seat.cache.reuse(ids, answer.exact and not answer.paused)
        if not answer.tokens:
            answer.stats.cached_tokens = seat.held
        count = min(answer.left, self.context_length - len(ids) + 1)
        resumed, answer.paused = answer.paused, False
        produced: list[int] = []
        try:
            while seat.held < len(ids):
                async with aclosing(self._turn(answer, seat, count, resumed)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        yield batch
            if answer.together:
                async with aclosing(self._shared(answer, seat, count)) as batches:
                    async for batch in batches:
                        produced += batch.ids
                        yield batch
            if len(produced) < count and not answer.paused:
                answer.done = True  # the constraint may have nothing more
        finally:
            seat.cache.append(produced[:-1], generated=True)  # the last token's keys and values are not computed
            answer.ids = ids + produced

    async def _turn(self, answer: Answer, seat: Seat, count: int, resumed: bool) -> AsyncGenerator[Batch, None]:
        """A turn on the device: more of the prompt, and behind it, unless others may share the steps, the tokens up to
        the next pause.
        """
        async with self.slices.turn():
            try:
                await self._borrow(answer, seat)
                while seat.held < len(answer.ids):
                    await self._feed(answer, seat, resumed)
                    yield Batch([])  # a place to stop a long prompt
                    if seat.held < len(answer.ids) and self.slices.over():
                        return
                if answer.together:
                    return
                async with aclosing(self._alone(answer, seat, count)) as batches:
                    async for chosen in batches:
                        yield answer.take(chosen)
                        answer.paused = not answer.done and self.slices.over()
                        if answer.done or answer.paused:
                            return
            finally:
                await self.runner.stop()

    async def _borrow(self, answer: Answer, seat: Seat) -> None:
        """Takes over what another sequence's cache holds of the prompt, where that is more. Not from rings: where they
        stand while that sequence goes on is not known.
        """
        if self.plan.spare:
            return
        wanted = answer.ids[:-1]
        other = max(self.seats.all, key=lambda one: one.cache.holds(wanted))
        held = other.cache.holds(wanted)
        held = min(held, other.cache.prompted) if answer.exact else held
        if held < seat.held + WORTH_COPYING:
            return
        try:
            await self.runner.copy_cache(other.number, seat.number)
        except WispError as error:
            if error.code != "out_of_memory":
                raise
            return
        seat.cache.take_over(other.cache, held)
        if not answer.tokens:
            answer.stats.cached_tokens += held - seat.held
        seat.held = held

    async def _feed(self, answer: Answer, seat: Seat, resumed: bool) -> None:
        """The next batch of the prompt; behind its last token the first of the answer is chosen."""
        at, runner = seat.held, self.runner
        left = len(answer.ids) - at
        few = left <= SHORT and runner.quick and not answer.exact and runner.prepared(("few", "few.last"))
        batch = answer.ids[at : at + (FEW if few else self.plan.batch)]
        lists = ["few" if few else "prefill"]
        if len(batch) == left:
            constrained = answer.constraint is not None
            await runner.configure(answer.sampling, answer.begins, answer.shifted, constrained, seat.number)
            through = ["decode"] if resumed and left == 1 else ["few", "few.last"] if few else ["prefill", "last"]
            lists = [*through, *([] if constrained else runner.lists)]
        await self.runner.feed(at, batch, lists, seat.number)
        seat.cache.append(batch)
        seat.held += len(batch)

    async def _alone(self, answer: Answer, seat: Seat, count: int) -> AsyncGenerator[Batch, None]:
        """Up to `count` tokens, with the device to itself."""
        position = len(answer.ids)
        if answer.constraint is None:
            self.runner.start(position, count, seat.number)
            while (batch := await self.runner.next()).ids:
                yield batch
            return
        tokens = ConstrainedTokens(self.runner, answer, position, count, seat.number, self._unrefused)
        try:
            async with aclosing(tokens.batches()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._unrefused = tokens.usual

    async def _shared(self, answer: Answer, seat: Seat, count: int) -> AsyncGenerator[Batch, None]:
        """Up to `count` tokens, in steps that serve others, too."""
        async with aclosing(self._together.tokens(seat.number, len(answer.ids), count, answer.ids)) as batches:
            async for tokens in batches:
                yield answer.take(Batch(tokens))
                if answer.done:
                    return

    def _note(self, answer: Answer, begun: float, before: Counts) -> None:
        """Bring the statistics up to date; of requests side by side each counts what the device did for all."""
        stats, tokens, now = answer.stats, answer.tokens, 1000 * (time.perf_counter() - begun)
        if tokens and not stats.completion_tokens:
            stats.prefill_ms = now
        stats.completion_tokens, stats.decode_ms = tokens, max(0.0, now - (stats.prefill_ms or now))
        for name, value in self.runner.counts().since(before).items():
            setattr(stats, name, value)

    async def _make_room(self, sequences: int) -> bool:
        held = self.plan.sequences
        needed = self.plan.memory()["kv"] // held * (sequences - held)
        async with self.room(needed) as granted:
            if granted:
                async with self.slices.turn():
                    await self.runner.make_room(sequences)
        return granted
