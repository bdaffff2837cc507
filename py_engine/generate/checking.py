"""Checking the tokens of constrained answers that share steps with other answers.

The first token is sampled with the constraint's mask. Later ones are sampled without one, some steps ahead, and checked
when they are read. After a rejected token, those that follow it are dropped, and the next step samples it again with
the mask. sample.wgsl draws the same noise again at the same position, so the tokens are those of a mask at every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.forced_tokens import feed_forced
from py_engine.generate.running_sequence import RunningSequence
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_STEPS
from py_engine.runners import Runner

AHEAD_PARTS = 3  # submits that are ahead of a check


@dataclass(frozen=True)
class NextTokens:
    """What follows a check: forced tokens from position `first` + 1 on, then a token that is sampled with a mask."""

    first: int  # position of the token `newest`
    newest: int
    forced: list[int]
    mask: Any | None


async def prepare_first(runner: Runner, sequence: RunningSequence) -> None:
    """Set the mask of a constrained answer's first token, which the last part of its prompt samples."""
    constrained = sequence.constrained
    if constrained is None:
        return
    await constrained.fetch_forced()
    if not constrained.at_end():  # else whatever is sampled is rejected
        runner.mask(await constrained.mask(), sequence.cache.number)
        sequence.masked = True


async def check(runner: Runner, sequence: RunningSequence, batch: Batch, *, masked: bool) -> None:
    """Push those of the sampled tokens that the constraint accepts, and submit what must come before the next ones.

    `masked`: they were sampled with the mask. A constraint that fails ends its own request only.
    """
    constrained = sequence.constrained
    if constrained is None or constrained.ended:
        return
    try:
        following = await _following(sequence, constrained, batch, masked, runner.plan.batch)
    except Exception as error:
        sequence.batches.put_nowait(error)
        sequence.cancelled = True
        return
    if following is not None:
        _submit(runner, sequence, constrained, following)


async def _following(
    sequence: RunningSequence, constrained: ConstrainedAnswer, batch: Batch, masked: bool, most_forced: int
) -> NextTokens | None:
    """What to submit before the next step; None: what is on the device already is right."""
    accepted = await constrained.check(batch.ids)
    sequence.push(batch[:accepted])
    if not constrained.ended and constrained.left > 0:
        if accepted == len(batch.ids):
            if not masked:
                return None
            await constrained.fetch_forced()  # often known after a token that the mask has changed
            if not constrained.forced or constrained.scored:
                return None
        first, newest = constrained.at - 1, constrained.newest
        forced = await _take_forced(sequence, constrained, most_forced)
        sequence.push(Batch(forced))
        await constrained.fetch_forced()
        if constrained.left > 0 and not constrained.at_end():
            return NextTokens(first, newest, forced, await constrained.mask())
        if constrained.left > 0 and constrained.stop_ids:
            sequence.push(Batch([min(constrained.stop_ids)]))
    constrained.ended = True
    sequence.left = 0
    return None


async def _take_forced(sequence: RunningSequence, constrained: ConstrainedAnswer, most: int) -> list[int]:
    """Take up to `most` forced tokens, as many as there are pages for."""
    if constrained.scored or not constrained.forced:
        return []
    most = min(constrained.forced, constrained.left, most)
    granted = sequence.cache.reserve(constrained.at + most - 1) - (constrained.at - 1)
    forced = await constrained.take_forced(min(most, granted))
    constrained.advance(forced)
    return forced


def _submit(runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer, following: NextTokens) -> None:
    """Feed forced tokens, and set the mask of the next one."""
    number, forced = sequence.cache.number, following.forced
    if forced:  # the next step computes the last one's keys and values
        fed = [following.newest, *forced[:-1]]
        feed_forced(runner, following.first, fed, number, exact=sequence.answer.exact)
        runner.set_tokens(number, constrained.at - 1, forced[-1:])
    runner.mask(following.mask, number)
    sequence.masked = True
    sequence.version += 1
    sequence.position, sequence.left = constrained.at - 1, constrained.left


def most_steps(sequence: RunningSequence) -> int:
    """Most steps of a sequence in one submit: fewer if its tokens are likely to be rejected."""
    constrained = sequence.constrained
    if constrained is None:
        return sequence.left
    return 1 if sequence.masked else min(sequence.left, max(1, constrained.lookahead(MAX_STEPS) // AHEAD_PARTS))


def rejects_often(sequence: RunningSequence) -> bool:
    """Whether the tokens on the device are likely to be rejected."""
    return sequence.constrained is not None and sequence.constrained.lookahead(MAX_STEPS) < MAX_STEPS // 4
