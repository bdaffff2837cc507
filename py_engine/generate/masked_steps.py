"""Steps that free answers and answers under a constraint share, where the masks change most tokens.

The runner samples some tokens of each sequence in turn, each with the masks after the ones before
(Runner.decode_masked). So no token is sampled that a constraint rejects, and no Python runs between two steps. Where
the masks change few tokens, they are sampled ahead and checked afterwards (checking.py). Both give the same tokens.
"""

from __future__ import annotations

from py_engine.generate.batches import with_pages
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.running_sequence import RunningSequence
from py_engine.plan.sampling import Batch
from py_engine.runners import MaskedRow, MaskedTokens, Runner, constraint_failed

MASKED_MS = 32.0  # of steps before their tokens are handed on
MASKED_STEPS = 32


async def decode_masked(runner: Runner, unit: list[RunningSequence], ms: float) -> int:
    """Decode steps of a batch for about `ms`; returns how many steps. 0: pages are lacking."""
    decode = runner.decode_masked
    assert decode is not None
    steps = with_pages(unit, min(MASKED_STEPS, *(sequence.left for sequence in unit)))
    if not steps:
        return 0
    for sequence in unit:  # until it is known how many steps have run
        sequence.cache.advance(None, exact=False)
    rows = [_row(sequence, sequence.constrained) for sequence in unit]
    found = await decode(rows, steps, ms)
    for sequence, tokens in zip(unit, found, strict=True):
        _accept(sequence, tokens)
    return max(len(tokens.batch.ids) for tokens in found)


def _row(sequence: RunningSequence, constrained: ConstrainedAnswer | None) -> MaskedRow:
    if constrained is None:
        return MaskedRow(sequence.row)
    return MaskedRow(sequence.row, constrained.source, constrained.take_known_forced(), constrained.fetch_more_forced)


def _accept(sequence: RunningSequence, tokens: MaskedTokens) -> None:
    """Push the tokens of a sequence. A constraint that fails ends its own request only."""
    n, constrained = len(tokens.batch.ids), sequence.constrained
    sequence.position += n
    sequence.left -= n
    # The steps may have computed the newest token, too. A recurrent model then lacks the states before it: back=False.
    sequence.cache.advance(sequence.position, exact=False, back=False)
    if n:
        sequence.push(tokens.batch)
    if constrained is None:
        return
    sequence.masked = False
    constrained.advance_masked(tokens)
    error = constrained.failure or (constraint_failed(tokens.error) if tokens.error else None)
    if error is not None:
        sequence.batches.put_nowait(error)
        sequence.cancelled = True
    elif constrained.ended:
        sequence.left = 0
        if tokens.ended and constrained.stop_ids.isdisjoint(tokens.batch.ids):
            sequence.push(Batch(sorted(constrained.stop_ids)[:1]))
