"""An answer under a constraint, such as a grammar: what comes next, and which sampled tokens the constraint accepts.

constrained.py decodes it alone, scheduler.py beside others. It may pass from one to the other after any token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from py_engine.generate.answer import Answer
from py_engine.plan.sampling import only_mask
from py_engine.plan.shared_constants import MAX_STEPS
from py_engine.runners import MaskedTokens

MIN_LOOKAHEAD = 4  # tokens; to sample fewer ahead does not pay
BANS = -100.0  # a bias that bans a token
SLOW_MASK_MS = 5.0  # the average time of a mask above which other answers do not wait for it
SLOW_MS = 100.0  # the time of all masks before which the average says too little
TRIED = 24  # tokens of the first request, after which its `usual_run` is known


class ConstrainedAnswer:
    """The state of a constrained answer, whose next token is at position `at`; up to `left` tokens may follow.

    `usual_run`: tokens between two that the mask changed, on average of earlier requests; 0: not known.
    `others`: whether another request runs. `can_rewind`: decoded tokens can be taken back beside others.
    `masked_batches`: steps that each need a new mask can be shared (Runner.decode_masked).
    """

    def __init__(
        self, answer: Answer, n_vocab: int, left: int, usual_run: float, others: Callable[[], bool],
        *, can_rewind: bool = True, masked_batches: bool = False,
    ) -> None:  # fmt: skip
        assert answer.constraint is not None
        self.constraint, self.at, self.left, self.usual_run = answer.constraint, len(answer.ids), left, usual_run
        self._others = others
        self.process = getattr(answer.constraint, "process", None)  # of a logits processor
        # makes masks without Python; none where each token's log-probabilities are read
        self.source = getattr(answer.constraint, "source", None) if answer.sampling.logprobs < 0 else None
        # Masked batches sample forced tokens, but never one that is banned. Alone, forced tokens are fed.
        bans = any(bias <= BANS for _, bias in answer.sampling.logit_bias)
        self._can_rewind, self.in_masked_batches = can_rewind, masked_batches and self.source is not None and not bans
        self._mask_ms, self._masked = 0.0, 0  # of tokens that were sampled with masks
        self.stop_ids, self.exact = answer.stop_ids, answer.exact
        # every token needs a log-probability, so none may be fed unsampled
        self.scored = answer.sampling.logprobs >= 0
        self.newest = answer.ids[-1] if answer.ids else 0  # the token before `at`
        self.ended = False
        self.failure: Exception | None = None
        self._n_vocab = n_vocab
        self._forced: deque[int] = deque()  # the only tokens that may come next
        self._run = 0  # tokens since the mask last changed one
        self._sampled, self._tried = 0, 0 if usual_run else TRIED  # it shares steps until so many were sampled

    async def fetch_forced(self) -> None:
        """Ask the constraint for tokens that it forces, if none are known."""
        if not self._forced:
            self._forced.extend(await self.constraint.forced())

    def take_known_forced(self) -> list[int]:
        """Lend the known forced tokens; advance_masked() takes back what is left of them."""
        forced, self._forced = list(self._forced), deque()
        return forced

    async def fetch_more_forced(self) -> list[int] | None:
        """The next tokens that the constraint forces, while the known ones are lent.

        None: the answer has ended, or the constraint has failed: `failure` has the error.
        """
        try:
            forced = await self.constraint.forced()
            return forced or (None if self.constraint.finished() else [])
        except Exception as error:
            self.failure = error
            return None

    def advance_masked(self, tokens: MaskedTokens) -> None:
        """Go on after tokens of decode_masked(), which the constraint has advanced past."""
        self.advance(tokens.batch.ids)
        self._forced.extend(tokens.forced)
        self._mask_ms += tokens.mask_ms
        self._masked += len(tokens.batch.ids)
        if self._mask_ms > max(SLOW_MS, SLOW_MASK_MS * self._masked):
            self.in_masked_batches = False  # the others would wait for its masks
        for changed in tokens.changed:
            self.count_run(1, changed)
        ended = tokens.ended or self.left <= 0 or not self.stop_ids.isdisjoint(tokens.batch.ids)
        self.ended = self.ended or ended

    @property
    def forced(self) -> int:
        """Known tokens that come next, whatever is sampled."""
        return len(self._forced)

    def at_end(self) -> bool:
        """Whether the end may be emitted without sampling it."""
        return not self._forced and not self.scored and self.constraint.finished()

    def lookahead(self, most: int) -> int:
        """Tokens to sample ahead: as many as are usually accepted in a row."""
        return min(most, int(max(self._run, self.usual_run)))

    def samples_ahead(self, most: int) -> bool:
        """Whether to sample without the mask, where up to `most` tokens could be sampled ahead."""
        return self.process is None and self.lookahead(most) >= MIN_LOOKAHEAD

    def run_until_lookahead(self, most: int) -> int:
        """How many more tokens in a row no mask must change until samples_ahead(most) holds."""
        return max(1, MIN_LOOKAHEAD - self._run) if most >= MIN_LOOKAHEAD else self.left

    @property
    def needs_masks(self) -> bool:
        """Whether it shares steps that need a new mask each: nothing can be sampled ahead, or most is rejected."""
        return self.in_masked_batches and not (self._can_rewind and self.samples_ahead(MAX_STEPS))

    def shares(self) -> bool:
        """Whether to share steps with other answers: not if the host processes each token's logits.

        Nor if the mask changes most tokens and Python makes it: the other answers would wait for that, too. That is
        not known at first, so an answer begins by sharing.
        """
        ahead = self._can_rewind and (self._sampled < self._tried or self.samples_ahead(MAX_STEPS))
        return self.process is None and (ahead or self.in_masked_batches) and self._others()

    def count_run(self, tokens: int, rejected: bool) -> None:
        """Count tokens that were sampled, and whether the mask then changed one."""
        self._sampled += tokens
        self._run += tokens
        if rejected:
            self.usual_run = (self.usual_run + self._run) / 2 if self.usual_run else self._run
            self._run = 0

    def advance(self, ids: list[int]) -> None:
        """Go on after tokens that the constraint has advanced past."""
        if ids:
            self.newest = ids[-1]
        self.at += len(ids)
        self.left -= len(ids)

    async def take_forced(self, most: int) -> list[int]:
        """The next forced tokens, `most` at most, which the constraint has advanced past."""
        tokens = [self._forced.popleft() for _ in range(min(most, self.left, len(self._forced)))]
        for token in tokens:
            await self.constraint.accept(token)
        return tokens

    async def mask(self) -> Any | None:
        """The mask of the next token (Constraint.mask)."""
        return only_mask(self._forced[0], self._n_vocab) if self._forced else await self.constraint.mask()

    async def accept(self, token: int) -> None:
        """Advance past a token that was sampled with the mask."""
        if self._forced:
            self._forced.popleft()
        await self.constraint.accept(token)
        self.advance([token])

    async def accepts(self, token: int) -> bool:
        """Whether the constraint accepts the token. If so, the constraint has advanced past it."""
        await self.fetch_forced()
        if self.at_end():
            return False
        if self._forced:
            if token != self._forced[0]:
                return False
            await self.constraint.accept(self._forced.popleft())
            return True
        try_accept = getattr(self.constraint, "try_accept", None)
        if try_accept is not None:
            return bool(await try_accept(token))
        mask = await self.constraint.mask()
        if mask is not None and not (int(mask[token >> 5]) >> (token & 31)) & 1:
            return False
        await self.constraint.accept(token)
        return True

    async def check(self, ids: list[int]) -> int:
        """How many sampled tokens are accepted; the answer goes on after those. It has `ended` after a stop id."""
        accepted = 0
        while accepted < len(ids) and not self.ended and await self.accepts(ids[accepted]):
            self.ended = ids[accepted] in self.stop_ids
            accepted += 1
        self.advance(ids[:accepted])
        self.count_run(accepted, rejected=accepted < len(ids) and not self.ended)
        return accepted
