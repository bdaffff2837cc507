"""Choose how sequences that share steps draft: by prompt lookup, by a draft model or an MTP layer, or not at all."""

from __future__ import annotations

from py_engine.generate.draft_model import Drafter
from py_engine.generate.running_sequence import RunningSequence
from py_engine.generate.speculation import Drafts, drafts_pay, lookup_gain
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import Runner


def choose_drafts(
    unit: list[RunningSequence], runner: Runner, drafter: Drafter | None, drafting: Drafts
) -> tuple[Drafts, int]:
    """How the next steps of a unit draft; tokens of a draft, if a draft model or an MTP layer makes it.

    `drafting`: how the steps before did.
    """
    count = len(unit)
    if count >= SHORT_BATCH or any(not _may_draft(sequence) for sequence in unit):
        return Drafts.NONE, 0
    by_lookup, on = 0.0, drafting == Drafts.LOOKUP
    if not runner.plan.recurrent:  # else the states after a draft's first tokens are lost, if it is rejected
        times = runner.step_ms(count), runner.step_ms(count, drafting=True)
        by_lookup = lookup_gain([sequence.predicted() for sequence in unit], *times)
    looks_up = drafts_pay(by_lookup, on=on)
    drafts = 0
    if drafter is not None and not any(sequence.answer.media for sequence in unit):
        if drafter.account.stale:
            return Drafts.NONE, 0
        drafts = drafter.choose([sequence.row for sequence in unit])
        looks_up = looks_up and drafts_pay(by_lookup, drafter.gain(count, drafts) if drafts else 1.0, on=on)
    if looks_up and runner.prepared(runner.step_lists([s.cache.number for s in unit], drafting=True)):
        return Drafts.LOOKUP, 0
    return (Drafts.MODEL if drafts else Drafts.NONE), drafts


def _may_draft(sequence: RunningSequence) -> bool:
    """Whether a sequence may draft. Drafts yield no log-probabilities, and may add SHORT_BATCH tokens a step."""
    free = sequence.constrained is None and sequence.answer.sampling.logprobs < 0
    return free and bool(sequence.ids) and sequence.draft_fits and sequence.left > SHORT_BATCH
