"""Tokens that a constraint forces: they are fed without being sampled."""

from __future__ import annotations

from py_engine.plan.lists import PREFILL, PREFILL_END, SMALL_BATCH_END, forced_tokens
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import Runner

MAX_IN_SMALL_BATCHES = 2 * SHORT_BATCH  # tokens; more are read faster like a prompt
FORCED_BESIDE_PART = 32  # most forced tokens that are fed at once while a part of a prompt is open


def feed_forced(
    runner: Runner, position: int, ids: list[int], number: int, *, exact: bool, logits: bool = False
) -> None:
    """Feed tokens of sequence `number` from `position` on; at most Plan.batch. `logits`: and compute the last one's.

    They round like decoded tokens, so the text does not depend on which tokens were fed. More than MAX_IN_SMALL_BATCHES
    are fed like a prompt if the answer need not be `exact` (Answer.exact).
    """
    if len(ids) > MAX_IN_SMALL_BATCHES and not exact and not runner.plan.encodes_prompts:
        runner.feed(position, ids, PREFILL_END if logits else (PREFILL,), number)
        return
    size = SHORT_BATCH if runner.prepared(SMALL_BATCH_END, [number]) else 1
    for at in range(0, len(ids), size):
        part = ids[at : at + size]
        runner.feed(position + at, part, forced_tokens(len(part), logits=logits and at + size >= len(ids)), number)
