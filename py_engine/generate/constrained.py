"""Decoding under a constraint, such as a grammar.

Masked: the mask is ready before a token is sampled; while the host computes it, the GPU computes the logits. Several
tokens are sampled so before Python sees the first, where the constraint is JavaScript (Runner.sample_masked).
Ahead: where the GPU would wait for the host, tokens are sampled without a mask and checked afterwards. At the
first rejected token, the later ones are dropped and that one is sampled again with the mask.
Both give the same tokens: sample.wgsl samples without the mask first, and its noise depends on the position alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

from py_engine.errors import WispError
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.forced_tokens import feed_forced
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.sampling import Batch
from py_engine.runners import Runner

MASKED = 16  # most tokens that are sampled with masks before the first of them is handed on


class ConstrainedDecoder:
    """Decodes an answer that has the device to itself. `fed`: the device has the logits after the prompt."""

    def __init__(self, runner: Runner, answer: ConstrainedAnswer, sequence: SequenceCache, *, fed: bool) -> None:
        self._runner, self._answer, self._sequence = runner, answer, sequence
        self.lacks_pages, self.needs = False, 0  # positions that need pages
        self._fed = fed  # the logits are of a prompt's end: computed again, they would round as in decoding
        in_turn = answer.source is not None and runner.sample_masked is not None
        self._most_masked = min(MASKED, runner.plan.batch) if in_turn else 1
        self._pauses: Callable[[], bool] = lambda: False

    async def batches(self, pauses: Callable[[], bool]) -> AsyncGenerator[Batch, None]:
        """Yield tokens until the answer has ended, or until `pauses()` holds: then another decoder may go on."""
        runner, answer, self._pauses = self._runner, self._answer, pauses
        runner.begin(answer.at, answer.left, self._sequence.number)
        if not self._fed:  # compute the newest token's logits again
            if not self._reserve(1):
                return
            runner.rewind(answer.at, answer.left)
        while answer.left > 0:
            await answer.fetch_forced()
            if answer.at_end():
                answer.ended = True
                if answer.stop_ids:
                    yield Batch([min(answer.stop_ids)])
                return
            if not self._reserve(max(self._most_masked, runner.max_lookahead())):
                return
            if answer.forced and not answer.scored:
                forced = Batch(await answer.take_forced(runner.plan.batch))
                try:
                    self._feed(forced)
                except WispError:  # the constraint has advanced past them
                    yield forced
                    raise
                yield forced
            elif self._fed or not answer.samples_ahead(runner.max_lookahead()):
                yield await self._sample_masked()
            else:
                async for batch in self._sample_ahead():
                    yield batch
            if answer.left > 0 and pauses():
                return
        answer.ended = True

    def _reserve(self, tokens: int) -> bool:
        """Whether there are pages for the next tokens; the last one of the answer needs none."""
        answer = self._answer
        end = answer.at + max(0, min(max(tokens, answer.forced), answer.left - 1, self._runner.plan.batch))
        self.lacks_pages, self.needs = self._sequence.reserve(end) < end, end
        return not self.lacks_pages

    def _feed(self, forced: Batch) -> None:
        """Feed forced tokens and compute the next logits."""
        answer, first, number = self._answer, self._answer.at, self._sequence.number
        answer.advance(forced.ids)
        fed = forced.ids if answer.left else forced.ids[:-1]  # the context may end at the last token
        feed_forced(self._runner, first, fed, number, exact=answer.exact, logits=True)
        self._runner.begin(answer.at, answer.left, number)
        self._fed = False

    async def _sample_masked(self, rejected_before: bool = False) -> Batch:
        """Sample the next tokens, each with its mask. `rejected_before`: without it, the first one was rejected."""
        answer, sample = self._answer, self._runner.sample_masked
        self._fed = False
        if answer.source is not None and sample is not None:
            most = min(self._most_masked, answer.left)
            unchanged = answer.unchanged_until_ahead(self._runner.max_lookahead())
            found = await sample(answer.source, most, unchanged)
            answer.advance(found.batch.ids)
            for i, changed in enumerate(found.changed):
                answer.count_run(1, changed and not (rejected_before and i == 0))
            return found.batch
        mask = await answer.mask()
        if answer.process is not None:
            self._runner.write_logits(await answer.process(await self._runner.read_logits()))
        self._runner.mask(mask, self._sequence.number)
        self._runner.step(1, eager=True)
        batch, resampled = await self._runner.take()
        await answer.accept(batch.ids[0])
        answer.count_run(1, resampled and not rejected_before)
        return batch

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
            batch, _ = await runner.take()
            in_flight -= len(batch.ids)
            accepted = await answer.check(batch.ids)
            rejected = accepted < len(batch.ids) and not answer.ended
            if accepted:
                yield batch[:accepted]
            if rejected:
                runner.rewind(answer.at, answer.left)
                if not answer.at_end() and (not answer.forced or answer.scored):
                    yield await self._sample_masked(rejected_before=True)
            if rejected or answer.ended or self._pauses():
                return
