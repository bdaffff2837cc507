"""Generation under a constraint, such as a grammar.

Either the mask is there before a token is chosen: while the host works it out, the GPU computes the logits. Or, where
the GPU is so fast that it would wait for the host, tokens are chosen ahead without a mask and looked at afterwards; at
the first that is refused, the others behind it are forgotten and that one is chosen again, with the mask. Both give the
same tokens: sample.wgsl chooses without the mask first, and its noise depends on the position alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from py_engine.generate.answer import Answer
from py_engine.plan.sampling import Batch
from py_engine.runners import Runner

LEAST_AHEAD = 4  # fewer are not worth it


class ConstrainedTokens:
    """Up to `count` tokens from `position` on, whose logits the last feed has made."""

    def __init__(
        self, runner: Runner, answer: Answer, position: int, count: int, seq: int = 0, usual: float = 0.0
    ) -> None:
        """`usual`: how many tokens, in requests before, came between two for which the mask made a difference."""
        assert answer.constraint is not None
        self._runner, self._constraint = runner, answer.constraint
        self._seq, self._at, self._left = seq, position, count
        self._stop_ids = answer.stop_ids
        # the log-probability of every token is wanted: none is fed without having been chosen
        self._scored = answer.sampling.logprobs >= 0
        self._forced: deque[int] = deque()  # tokens that must come next
        self._run = 0  # tokens since the mask last made a difference
        self.usual = usual
        self._fed = True  # whether the logits come from a batch: the first choice from them is to be the last
        runner.begin(position, count, seq)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Until the constraint has nothing more, an id of stop_ids has come, or all tokens have."""
        while self._left > 0:
            await self._ask()
            if self._over():
                if self._stop_ids:
                    yield Batch([min(self._stop_ids)])
                return
            if self._forced and not self._scored:
                yield await self._jump()
            elif self._fed or self._window() < LEAST_AHEAD:
                yield await self._masked()
            else:
                async for batch in self._ahead():
                    yield batch

    async def _ask(self) -> None:
        if not self._forced:
            self._forced.extend(await self._constraint.forced())

    def _over(self) -> bool:
        """Whether the end may be given without choosing it."""
        return not self._forced and not self._scored and self._constraint.finished()

    def _window(self) -> int:
        """Tokens to choose ahead: as many as are usually not refused."""
        return min(self._runner.most_ahead(), int(max(self._run, self.usual)))

    def _count(self, tokens: int, refused: bool) -> None:
        self._run += tokens
        if refused:
            self.usual = (self.usual + self._run) / 2 if self.usual else self._run
            self._run = 0

    def _moved(self, tokens: int) -> None:
        self._at += tokens
        self._left -= tokens

    async def _jump(self) -> Batch:
        """Feed tokens that must come next, all at once."""
        tokens = [self._forced.popleft() for _ in range(min(len(self._forced), self._left))]
        for token in tokens:
            await self._constraint.accept(token)
        first, size = self._at, self._runner.plan.batch
        self._moved(len(tokens))
        fed = tokens if self._left else tokens[:-1]  # behind the last token there may be no room
        for at in range(0, len(fed), size):
            batch = fed[at : at + size]
            await self._runner.feed(first + at, batch, ["prefill", "last"] if len(batch) > 1 else ["decode"], self._seq)
        self._runner.begin(self._at, self._left, self._seq)
        self._fed = True
        return Batch(tokens)

    async def _masked(self, known: bool = False) -> Batch:
        """The next token, chosen with the mask; `known`: it has been refused before."""
        if self._forced:
            mask: Any = _only(self._forced.popleft(), self._runner.plan.n_vocab)
        else:
            mask = await self._constraint.mask()
        self._fed = False
        self._runner.mask(mask)
        self._runner.step(1, eager=True)
        batch, refused = await self._runner.take()
        await self._constraint.accept(batch.ids[0])
        self._moved(1)
        self._count(1, refused and not known)
        return batch

    async def _ahead(self) -> AsyncGenerator[Batch, None]:
        """Tokens chosen without a mask, until one is refused; that one then with it."""
        self._runner.mask(None)
        flying = 0
        while self._left > 0:
            window = self._window()
            while flying < min(window, self._left):
                flying += self._runner.step(max(1, min(window // 3, self._left - flying)))
            batch, _ = await self._runner.take()
            flying -= len(batch.ids)
            good, over = 0, False
            while good < len(batch.ids) and not over and await self._accepts(batch.ids[good]):
                over = batch.ids[good] in self._stop_ids
                good += 1
            self._moved(good)
            refused = good < len(batch.ids) and not over
            self._count(good, refused)
            if good:
                yield batch[:good]
            if refused:
                await self._runner.rewind(self._at, self._left)
                if not self._over() and (not self._forced or self._scored):
                    yield await self._masked(known=True)
            if refused or over:
                return

    async def _accepts(self, token: int) -> bool:
        """Whether the token may come next; the constraint has accepted it then."""
        await self._ask()
        if self._over():
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
