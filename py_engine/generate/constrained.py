"""Decoding under a constraint, such as a grammar.

Masked: the mask is ready before a token is sampled; while the host computes it, the GPU computes the logits. Where
the constraint is JavaScript, Runner.sample_masked samples several tokens before Python sees the first.
Ahead: where the GPU would wait for the host, tokens are sampled without a mask and checked afterwards. At the
first rejected token, the later ones are dropped and that one is sampled again with the mask.
Both give the same tokens: sample.wgsl samples without the mask first, and its noise depends on the position alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from py_engine.errors import WispError
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.forced_tokens import FORCED_BESIDE_PART, feed_forced
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.sampling import Batch
from py_engine.runners import Runner, constraint_failed
from py_engine.tasks import begin, quietly

MAX_MASKED = 64  # most tokens that are sampled with masks before the first of them is handed on


class ConstrainedDecoder:
    """Decodes an answer that has the device to itself.

    `fed`: the device has the logits after the prompt. `beside_part`: another prompt's part is open, so that no list for
    prompts may run.
    """

    def __init__(
        self, runner: Runner, answer: ConstrainedAnswer, sequence: SequenceCache, *, fed: bool, beside_part: bool
    ) -> None:
        self._runner, self._answer, self._sequence = runner, answer, sequence
        self._most_forced = min(FORCED_BESIDE_PART, runner.plan.batch) if beside_part else runner.plan.batch
        self._exact = answer.exact or beside_part
        self.lacks_pages, self.needs = False, 0  # positions that need pages
        self._fed = fed  # the logits are of a prompt's end: computed again, they would round as in decoding
        in_turn = answer.source is not None and runner.sample_masked is not None
        self._most_masked = min(MAX_MASKED, runner.plan.batch) if in_turn else 1
        self._ready = list[Batch]()  # tokens that the constraint has advanced past, and that were not yielded
        self._pauses: Callable[[], bool] = lambda: False

    async def batches(self, pauses: Callable[[], bool]) -> AsyncGenerator[Batch, None]:
        """Yield tokens until the answer has ended, or until `pauses()` holds: then another decoder may go on."""
        self._pauses = pauses
        try:
            async with aclosing(self._decoded()) as batches:
                async for batch in batches:
                    yield batch
        except WispError:
            for batch in self._take_ready():
                yield batch
            raise
        for batch in self._take_ready():
            yield batch

    def _take_ready(self) -> list[Batch]:
        ready, self._ready = self._ready, []
        return ready

    async def _decoded(self) -> AsyncGenerator[Batch, None]:
        """Yield tokens once the device has work after them; the last ones are left in `_ready`."""
        runner, answer = self._runner, self._answer
        runner.begin(answer.at, answer.left, self._sequence.number)
        if not self._fed:  # compute the newest token's logits again
            if not self._reserve(1):
                return
            runner.rewind(answer.at, answer.left)
        while answer.left > 0 and not answer.ended:
            await answer.fetch_forced()
            if answer.at_end():
                answer.ended = True
                if answer.stop_ids:
                    self._ready.append(Batch([min(answer.stop_ids)]))
                return
            if not self._reserve(max(self._most_masked // 2, runner.max_lookahead())):  # fewer do not pay
                return
            if answer.forced and not answer.scored:
                forced = Batch(await answer.take_forced(self._most_forced))
                self._ready.append(forced)
                self._feed(forced)
                for batch in self._take_ready():
                    yield batch
            elif self._fed or not answer.samples_ahead(runner.max_lookahead()):
                async for batch in self._sample_masked():
                    yield batch
            else:
                async for batch in self._sample_ahead():
                    yield batch
            if answer.left > 0 and self._pauses():
                return
        answer.ended = True

    def _reserve(self, tokens: int) -> bool:
        """Take pages for the next tokens; False: some are lacking. The answer's last token needs none."""
        answer = self._answer
        end = answer.at + max(0, min(max(tokens, answer.forced), answer.left - 1, self._runner.plan.batch))
        self.lacks_pages, self.needs = self._sequence.reserve(end) < end, end
        return not self.lacks_pages

    def _feed(self, forced: Batch) -> None:
        """Feed forced tokens and compute the next logits."""
        answer, first, number = self._answer, self._answer.at, self._sequence.number
        answer.advance(forced.ids)
        fed = forced.ids if answer.left else forced.ids[:-1]  # the context may end at the last token
        feed_forced(self._runner, first, fed, number, exact=self._exact, logits=True)
        self._runner.begin(answer.at, answer.left, number)
        self._fed = False

    async def _sample_masked(self, rejected_before: bool = False) -> AsyncGenerator[Batch, None]:
        """Sample the next tokens, each with its mask. `rejected_before`: the first one was rejected without it."""
        runner, answer = self._runner, self._answer
        self._fed = False
        if answer.source is not None and runner.sample_masked is not None:
            unchanged = answer.run_until_lookahead(runner.max_lookahead())
            end = answer.at + min(self._most_masked, answer.left - 1)
            most = max(1, min(self._most_masked, answer.left, self._sequence.reserve(end) - answer.at))
            work = quietly(begin(runner.sample_masked(answer.source, most, unchanged)))
            if self._ready:
                await asyncio.sleep(0)  # the mask is made and the step submitted
            for ready in self._take_ready():
                yield ready
            found = await work
            batch, changed = found.batch, found.changed
            answer.advance(batch.ids)
            if found.error:  # the device may have computed tokens after these
                self._ready.append(batch)
                raise constraint_failed(found.error)
        else:
            if answer.process is not None:
                for ready in self._take_ready():
                    yield ready
                runner.write_logits(await answer.process(await runner.read_logits()))
            runner.mask(await answer.mask(), self._sequence.number)
            runner.step(1, eager=True)
            for ready in self._take_ready():
                yield ready
            batch, resampled = await runner.take()
            changed = [resampled]
            await answer.accept(batch.ids[0])
        self._ready.append(batch)
        answer.ended = not answer.stop_ids.isdisjoint(batch.ids)
        for i, by_mask in enumerate(changed):
            answer.count_run(1, by_mask and not (rejected_before and i == 0))

    async def _sample_ahead(self) -> AsyncGenerator[Batch, None]:
        """Sample tokens without a mask until one is rejected, then sample that one with the mask."""
        runner, answer = self._runner, self._answer
        runner.mask(None, self._sequence.number)
        in_flight = 0
        while answer.left > 0:
            window = min(answer.lookahead(runner.max_lookahead()), answer.left, runner.plan.batch)
            if not self._reserve(window):
                return
            while in_flight < window:  # which has pages
                in_flight += runner.step(max(1, min(window // 3, window - in_flight)))
            for ready in self._take_ready():
                yield ready
            batch, _ = await runner.take()
            in_flight -= len(batch.ids)
            accepted = await answer.check(batch.ids)
            rejected = accepted < len(batch.ids) and not answer.ended
            if accepted:
                self._ready.append(batch[:accepted])
            if rejected:
                runner.rewind(answer.at, answer.left)
                if not answer.at_end() and (not answer.forced or answer.scored):
                    async for ready in self._sample_masked(rejected_before=True):
                        yield ready
            if rejected or answer.ended or self._pauses():
                return
