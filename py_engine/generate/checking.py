"""Checking the tokens of constrained answers that share steps with other answers.

The first token is sampled with the constraint's mask. Later ones are sampled without one, some steps ahead, and checked
when they are read. After a rejected token, those that follow it are dropped, and the next step samples it again with
the mask. sample.wgsl draws the same noise again at the same position, so the tokens are those of a mask at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.forced_tokens import FORCED_BESIDE_PART, feed_forced
from py_engine.generate.running_sequence import RunningSequence
from py_engine.plan.sampling import Batch
from py_engine.plan.shared_constants import MAX_STEPS
from py_engine.runners import Runner

AHEAD_PARTS = 3  # submits that are ahead of a check


@dataclass(frozen=True)
class NextTokens:
    """What follows a check: forced tokens after the one at `position`, then one that is sampled with a mask.

    Or the answer's end: `stop` is the id that ends it, if one does.
    """

    position: int
    newest: int  # the token there
    forced: list[int]
    mask: Any | None = None
    stop: Sequence[int] = ()


async def first_mask(sequence: RunningSequence) -> Any | None:
    """The mask of a constrained answer's first token, which its prompt's last part samples; None: all are allowed."""
    constrained = sequence.constrained
    if constrained is None or not sequence.prompting:
        return None
    await constrained.fetch_forced()
    return None if constrained.at_end() else await constrained.mask()  # at the end, whatever is sampled is rejected


async def check(
    runner: Runner, sequence: RunningSequence, batch: Batch, *, masked: bool, beside_part: bool = False
) -> None:
    """Push those of the sampled tokens that the constraint accepts, and submit what must come before the next ones.

    `masked`: they were sampled with the mask. `beside_part`: another prompt's part is open, so that no list for prompts
    may run. A constraint that fails ends its own request only.
    """
    constrained = sequence.constrained
    if constrained is None or constrained.ended:
        return
    try:
        most_forced = FORCED_BESIDE_PART if beside_part else runner.plan.batch - 1
        following = await _next_tokens(sequence, constrained, batch, masked, most_forced)
    except Exception as error:
        sequence.batches.put_nowait(error)
        sequence.cancelled = True
        return
    if following is not None:
        exact = beside_part or sequence.answer.exact
        _submit(runner, sequence, constrained, following, exact=exact)


async def _next_tokens(
    sequence: RunningSequence, constrained: ConstrainedAnswer, batch: Batch, masked: bool, most_forced: int
) -> NextTokens | None:
    """What to submit before the next step; None: what is on the device already is right."""
    accepted = await constrained.check(batch.ids)
    sequence.push(batch[:accepted])
    constrained.ended = constrained.ended or constrained.left <= 0
    if constrained.ended:
        sequence.left = 0
        return None
    if accepted == len(batch.ids):
        if not masked:
            return None
        await constrained.fetch_forced()  # often known after a token that the mask has changed
        if not constrained.forced or constrained.scored:
            return None
    position, newest = constrained.at - 1, constrained.newest
    forced = await _take_forced(sequence, constrained, most_forced)
    constrained.ended = constrained.left <= 0 or not constrained.stop_ids.isdisjoint(forced)
    if not constrained.ended:
        await constrained.fetch_forced()
        if not constrained.at_end():
            return NextTokens(position, newest, forced, await constrained.mask())
        constrained.ended = True
        return NextTokens(position, newest, forced, stop=sorted(constrained.stop_ids)[:1])
    return NextTokens(position, newest, forced)


async def _take_forced(sequence: RunningSequence, constrained: ConstrainedAnswer, most: int) -> list[int]:
    """Take up to `most` forced tokens, as many as there are pages for."""
    if constrained.scored or not constrained.forced:
        return []
    most = min(constrained.forced, constrained.left, most)
    end = constrained.at + min(most, constrained.left - 1)  # the answer's last token needs no page
    pages = sequence.cache.reserve(end)
    forced = await constrained.take_forced(most if pages >= end else pages - constrained.at)
    constrained.advance(forced)
    return forced


def _submit(
    runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer, following: NextTokens, *, exact: bool
) -> None:
    """Push and feed forced tokens, and set the mask of the next one."""
    if sequence.cancelled:  # nothing more may be computed of what is released now
        return
    number, forced = sequence.cache.number, following.forced
    # Before the feed: if the device is lost there, the constraint has advanced past them.
    sequence.push(Batch([*forced, *following.stop]))
    if forced:  # what is pushed is recorded as computed, but for the last token: the next step computes that
        fed = [following.newest, *(forced if following.stop else forced[:-1])]
        sequence.cache.advance(None, exact=False)  # until the next step
        feed_forced(runner, following.position, fed, number, exact=exact)
    if constrained.ended:
        sequence.left = 0
        return
    if forced:
        runner.set_tokens(number, constrained.at - 1, forced[-1:])
    runner.mask(following.mask, number)
    sequence.masked = True
    sequence.version += 1
    sequence.position, sequence.left = constrained.at - 1, constrained.left


def clear_stale_masks(runner: Runner, unit: Sequence[RunningSequence]) -> None:
    """Let tokens be sampled without the masks that masked_steps.py has left on the device."""
    for sequence in unit:
        if sequence.constrained is not None and not sequence.masked:
            runner.mask(None, sequence.cache.number)


def end_mask(runner: Runner, sequence: RunningSequence) -> None:
    """Let the tokens after the one with a mask be sampled without it."""
    if sequence.masked:
        runner.mask(None, sequence.cache.number)
        sequence.masked = False


def most_steps(sequence: RunningSequence) -> int:
    """Most steps of a sequence in one submit: fewer if its tokens are likely to be rejected."""
    constrained = sequence.constrained
    if constrained is None:
        return sequence.left
    return 1 if sequence.masked else min(sequence.left, max(1, constrained.lookahead(MAX_STEPS) // AHEAD_PARTS))


def rejects_often(sequence: RunningSequence) -> bool:
    """Whether the tokens on the device are likely to be rejected."""
    return sequence.constrained is not None and sequence.constrained.lookahead(MAX_STEPS) < MAX_STEPS // 4
