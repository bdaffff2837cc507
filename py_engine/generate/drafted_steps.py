"""Steps that verify drafts of the sequences of a batch, and what the drafts' account learns from their results."""

from __future__ import annotations

from collections.abc import Collection

from py_engine.generate.draft_model import Drafter
from py_engine.generate.running_sequence import RunningSequence, ScheduledWork
from py_engine.runners import Runner, tokens_per_draft

UNKNOWN_MS = 8.0  # the time that a step is assumed to take before one was timed


def submit_drafts(
    unit: list[RunningSequence], runner: Runner, drafter: Drafter | None, n_model_draft: int,
    in_flight: Collection[ScheduledWork], ms: float,
) -> ScheduledWork | None:  # fmt: skip
    """Submit steps of about `ms`. None: no more positions have pages, or a context might end.

    `n_model_draft`: tokens of each draft, if `drafter` makes it; 0: prompt lookup does.
    """
    count = len(unit)
    steps = runner.steps_in(count, ms, drafting=True, n_model_draft=n_model_draft)
    ahead = sum(submit.steps for submit in in_flight)
    if n_model_draft and drafter is not None:
        steps = drafter.steps(count, n_model_draft, ms, ahead)
    most = tokens_per_draft(count)
    ends = []
    for sequence in unit:
        wanted = sequence.position + most * (steps + ahead + 1)
        ends.append(min(sequence.cache.reserve(min(wanted, runner.plan.n_ctx)), runner.plan.n_ctx))
        fitting = (ends[-1] - sequence.position - 1) // most
        sequence.draft_fits = fitting > 0
        steps = min(steps, fitting - ahead)
    if steps < 1 or not runner.draft([sequence.row for sequence in unit], steps, ends, n_model_draft):
        return None
    for sequence in unit:
        sequence.cache.advance(None, exact=False)  # until a step without drafts
    step_ms = runner.step_ms(count, drafting=True, n_model_draft=n_model_draft) or UNKNOWN_MS
    waited = not in_flight
    return ScheduledWork(unit, steps * step_ms, steps=steps, n_model_draft=n_model_draft, waited=waited)


def may_begin_in_flight(unit: list[RunningSequence]) -> bool:
    """Whether drafts by a model can begin although submits are in flight, such as the end of a prompt.

    The positions after drafts are known once they are read. The draft model reads all tokens but the newest two.
    """
    return all(len(sequence.ids) >= sequence.position - 1 for sequence in unit)


def record_result(drafter: Drafter, submit: ScheduledWork, sequence: RunningSequence, yielded: int) -> None:
    """Record how many tokens a submit has yielded for one of its sequences, with drafts or without."""
    if sequence.cancelled or (submit.steps and sequence.left <= 0):
        return  # what was submitted past an answer's end says nothing about drafts
    count = len(submit.unit)
    if submit.n_model_draft:
        if submit.waited:
            drafter.account.waited(1 / count)
        drafter.record(sequence, count, submit.n_model_draft, submit.steps, yielded)
    elif not submit.prompt and not submit.steps:
        drafter.account.plain(yielded / count)
