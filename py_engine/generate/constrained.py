"""Decoding under a constraint, such as a grammar.

Masked: the mask is ready before a token is sampled; while the host computes it, the GPU computes the logits.
Ahead: where the GPU would wait for the host, tokens are sampled without a mask and checked afterwards. At the
first rejected token, the later ones are dropped and that one is sampled again with the mask.
Both give the same tokens: sample.wgsl samples without the mask first, and its noise depends on the position alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any

from py_engine.errors import WispError
from py_engine.generate.answer import Answer
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.plan.lists import DECODE, PREFILL_END
from py_engine.plan.sampling import Batch
from py_engine.runners import Runner

MIN_LOOKAHEAD = 4  # tokens; sampling fewer ahead does not pay


class ConstrainedDecoder:
    """A decoder of up to `count` tokens from `position` on. The last feed has computed the first one's logits."""

    def __init__(
        self, runner: Runner, answer: Answer, position: int, count: int, sequence: SequenceCache, usual_run: float = 0.0
    ) -> None:
        """`usual_run`: tokens that earlier requests sampled between two that the mask changed, on average."""
        assert answer.constraint is not None
        self._runner, self._constraint = runner, answer.constraint
        self._process = getattr(answer.constraint, "process", None)  # of a logits processor
        self._sequence, self._at, self._left = sequence, position, count
        self.lacks_pages, self.needs = False, 0  # positions that need pages
        self._stop_ids = answer.stop_ids
        # every token needs a log-probability, so none may be fed unsampled
        self._scored = answer.sampling.logprobs >= 0
        self._forced: deque[int] = deque()  # the only tokens that may come next
        self._run = 0  # tokens since the mask last changed one
        self.usual_run = usual_run
        self._fed = True  # the logits come from a batch, so they can be sampled only once
        self._begun = self.ended = False
        self._pauses: Callable[[], bool] = lambda: False

    async def batches(self, pauses: Callable[[], bool]) -> AsyncGenerator[Batch, None]:
        """Yield tokens until the constraint allows no more, an id of stop_ids came, or all were decoded (`ended`).

        It returns earlier once `pauses()` holds, and may be called again after others have used the device.
        """
        runner, self._pauses = self._runner, pauses
        runner.begin(self._at, self._left, self._sequence.number)
        if self._begun:  # compute the newest token's logits again
            runner.rewind(self._at, self._left)
        self._begun = True
        while self._left > 0:
            await self._fetch_forced()
            if self._at_end():
                self.ended = True
                if self._stop_ids:
                    yield Batch([min(self._stop_ids)])
                return
            if not self._reserve(self._runner.max_lookahead()):
                return
            if self._forced and not self._scored:
                forced = await self._accept_forced()
                try:
                    await self._feed(forced)
                except WispError:  # the constraint has advanced past them
                    yield forced
                    raise
                yield forced
            elif self._fed or self._process is not None or self._lookahead() < MIN_LOOKAHEAD:
                yield await self._sample_masked()
            else:
                async for batch in self._sample_ahead():
                    yield batch
            if not self._fed and self._left > 0 and pauses():  # logits of a batch cannot be computed again
                return
        self.ended = True

    def _reserve(self, tokens: int) -> bool:
        """Whether there are pages for the next tokens; the last one of the answer needs none."""
        end = self._at + min(max(tokens, len(self._forced)), self._left - 1, self._runner.plan.batch)
        self.lacks_pages, self.needs = self._sequence.reserve(end) < end, end
        return not self.lacks_pages

    async def _fetch_forced(self) -> None:
        if not self._forced:
            self._forced.extend(await self._constraint.forced())

    def _at_end(self) -> bool:
        """Whether the end may be emitted without sampling it."""
        return not self._forced and not self._scored and self._constraint.finished()

    def _lookahead(self) -> int:
        """Tokens to sample ahead: as many as are usually accepted in a row."""
        return min(self._runner.max_lookahead(), int(max(self._run, self.usual_run)))

    def _update_run(self, tokens: int, rejected: bool) -> None:
        self._run += tokens
        if rejected:
            self.usual_run = (self.usual_run + self._run) / 2 if self.usual_run else self._run
            self._run = 0

    def _advance(self, tokens: int) -> None:
        self._at += tokens
        self._left -= tokens

    async def _accept_forced(self) -> Batch:
        """Forced tokens, as many as a batch holds."""
        plan = self._runner.plan
        count = min(len(self._forced), self._left, 1 if plan.encodes_prompts else plan.batch)  # PREFILL is the encoder
        tokens = [self._forced.popleft() for _ in range(count)]
        for token in tokens:
            await self._constraint.accept(token)
        return Batch(tokens)

    async def _feed(self, forced: Batch) -> None:
        first = self._at
        self._advance(len(forced.ids))
        fed = forced.ids if self._left else forced.ids[:-1]  # the context may end at the last token
        if fed:
            lists = [*PREFILL_END] if len(fed) > 1 else [DECODE]
            self._runner.feed(first, fed, lists, self._sequence.number, read=True)
            await self._runner.result()
        self._runner.begin(self._at, self._left, self._sequence.number)
        self._fed = True

    async def _sample_masked(self, rejected_before: bool = False) -> Batch:
        """Sample the next token with the mask. `rejected_before`: without it, this token was rejected."""
        if self._forced:
            mask: Any = _only(self._forced.popleft(), self._runner.plan.n_vocab)
        else:
            mask = await self._constraint.mask()
        self._fed = False
        if self._process is not None:
            self._runner.write_logits(await self._process(await self._runner.read_logits()))
        self._runner.mask(mask, self._sequence.number)
        self._runner.step(1, eager=True)
        batch, resampled = await self._runner.take()
        await self._constraint.accept(batch.ids[0])
        self._advance(1)
        self._update_run(1, resampled and not rejected_before)
        return batch

    async def _sample_ahead(self) -> AsyncGenerator[Batch, None]:
        """Sample tokens without a mask until one is rejected, then sample that one with the mask."""
        self._runner.mask(None, self._sequence.number)
        in_flight = 0
        while self._left > 0:
            window = self._lookahead()
            if not self._reserve(window):
                return
            while in_flight < min(window, self._left):
                in_flight += self._runner.step(max(1, min(window // 3, self._left - in_flight)))
            batch, _ = await self._runner.take()
            in_flight -= len(batch.ids)
            accepted, stopped = 0, False
            while accepted < len(batch.ids) and not stopped and await self._accepts(batch.ids[accepted]):
                stopped = batch.ids[accepted] in self._stop_ids
                accepted += 1
            self._advance(accepted)
            rejected = accepted < len(batch.ids) and not stopped
            self._update_run(accepted, rejected)
            if accepted:
                yield batch[:accepted]
            if rejected:
                self._runner.rewind(self._at, self._left)
                if not self._at_end() and (not self._forced or self._scored):
                    yield await self._sample_masked(rejected_before=True)
            if rejected or stopped or self._pauses():
                return

    async def _accepts(self, token: int) -> bool:
        """Whether the constraint accepts the token. If so, the constraint has advanced past it."""
        await self._fetch_forced()
        if self._at_end():
            return False
        if self._forced:
            if token != self._forced[0]:
                return False
            await self._constraint.accept(self._forced.popleft())
            return True
        try_accept = getattr(self._constraint, "try_accept", None)
        if try_accept is not None:
            return bool(await try_accept(token))
        mask = await self._constraint.mask()
        if mask is not None and not (int(mask[token >> 5]) >> (token & 31)) & 1:
            return False
        await self._constraint.accept(token)
        return True


def _only(token: int, vocab: int) -> bytes:
    """The mask that allows one token."""
    bits = bytearray(-(-vocab // 32) * 4)
    bits[token // 8] |= 1 << token % 8
    return bytes(bits)
