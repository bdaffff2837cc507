"""Checks what the scheduler samples of constrained answers, which share steps with others.

Their tokens are sampled without a mask, some steps ahead, and checked when they are read. After a rejected token, those
that follow it are dropped, and the next step samples it again with the mask. sample.wgsl draws the same noise again at
the same position, so the tokens are those of a mask at every step.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.running_sequence import RunningSequence
from py_engine.plan.lists import PREFILL, SMALL_BATCH
from py_engine.plan.sampling import Batch
from py_engine.plan.shared import MAX_SMALL_BATCH, MAX_STEPS
from py_engine.runners import Runner

AHEAD_PARTS = 3  # submits that are ahead of a check
MIN_FORCED = 3  # tokens that are fed in a submit of their own, in place of being sampled one by one with masks


async def checked(runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer, batch: Batch) -> None:
    """Push what a constraint accepts of sampled tokens. A constraint that fails ends its own request only."""
    try:
        await _check(runner, sequence, constrained, batch)
    except Exception as error:
        if isinstance(error, WispError) and error.code == "device_lost":
            raise
        sequence.batches.put_nowait(error)
        sequence.cancelled = True


async def _check(runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer, batch: Batch) -> None:
    if constrained.ended:
        return
    accepted = await constrained.check(batch.ids)
    sequence.push(batch[:accepted])
    if accepted < len(batch.ids) and not constrained.ended:
        sequence.version += 1
        await _replace_rejected(runner, sequence, constrained)
    constrained.ended = constrained.ended or constrained.left <= 0
    if constrained.ended:
        sequence.left = 0


async def _replace_rejected(runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer) -> None:
    """Feed forced tokens, and prepare to sample the next one with the mask."""
    number = sequence.cache.number
    if constrained.forced >= MIN_FORCED and not constrained.scored:
        await _feed_forced(runner, sequence, constrained)
    if constrained.left > 0:
        await constrained.fetch_forced()
        if constrained.at_end():
            constrained.ended = True
            sequence.push(Batch([min(constrained.stop_ids)] if constrained.stop_ids else []))
        else:
            runner.mask(await constrained.mask(), number)
            sequence.masked = True
    sequence.position, sequence.left = constrained.at - 1, constrained.left


async def _feed_forced(runner: Runner, sequence: RunningSequence, constrained: ConstrainedAnswer) -> None:
    """Feed forced tokens, as many as there are pages for."""
    newest, first, number = constrained.newest, constrained.at - 1, sequence.cache.number
    most = min(constrained.forced, constrained.left, runner.plan.batch)
    granted = sequence.cache.reserve(constrained.at + most - 1) - first
    forced = await constrained.take_forced(min(most, granted))
    constrained.advance(forced)
    sequence.push(Batch(forced))
    if forced:  # the newest token has no keys and values yet; the next step computes those of the last one
        small = len(forced) <= MAX_SMALL_BATCH and runner.prepared([SMALL_BATCH], [number])
        runner.feed(first, [newest, *forced[:-1]], [SMALL_BATCH if small else PREFILL], number)
        runner.set_tokens(number, constrained.at - 1, forced[-1:])


def most_steps(sequence: RunningSequence) -> int:
    """Steps of one submit at most: few where the tokens are likely to be rejected."""
    constrained = sequence.constrained
    if constrained is None:
        return sequence.left
    return 1 if sequence.masked else min(sequence.left, max(1, constrained.lookahead(MAX_STEPS) // AHEAD_PARTS))


def rejects_often(sequence: RunningSequence) -> bool:
    """Whether the tokens in flight are likely to be rejected."""
    return sequence.constrained is not None and sequence.constrained.lookahead(MAX_STEPS) < MAX_STEPS // 4
