"""Which sequences decode together: batches, and for how many steps they have pages."""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.generate.running_sequence import RunningSequence
from py_engine.runners import Runner


def needs_masks(unit: Sequence[RunningSequence]) -> bool:
    """Whether each step of a batch needs new masks: masked_steps.py decodes it."""
    return any(sequence.constrained is not None and sequence.constrained.needs_masks for sequence in unit)


def batches(decoding: list[RunningSequence], runner: Runner) -> list[list[RunningSequence]]:
    """The batches that decode; while the kernels of one are compiled, its sequences one by one."""
    groups, most = [decoding], runner.plan.max_small_batch
    if needs_masks(decoding):
        masked = [sequence for sequence in decoding if _takes_masks(sequence)]
        groups = [masked, [sequence for sequence in decoding if sequence not in masked]]
    found: list[list[RunningSequence]] = []
    for batch in (group[at : at + most] for group in groups for at in range(0, len(group), most)):
        lists = runner.step_lists([sequence.cache.number for sequence in batch], masked=needs_masks(batch))
        prepared = runner.prepared(lists, soon=True)
        found += [batch] if prepared else [[sequence] for sequence in batch]
    return found


def _takes_masks(sequence: RunningSequence) -> bool:
    """Whether a sequence can share steps that need new masks: not if its log-probabilities or masks need Python."""
    constrained = sequence.constrained
    return sequence.answer.sampling.logprobs < 0 and (constrained is None or constrained.in_masked_batches)


def with_pages(unit: list[RunningSequence], steps: int) -> int:
    """For how many steps all sequences of a batch have pages; 0 if one has none: it lacks pages from now on."""
    for sequence in unit:  # a step writes the newest token's keys and values
        granted = sequence.cache.reserve(sequence.position + steps) - sequence.position
        if granted < 1:
            sequence.answer.lacks_pages = True
            return 0
        steps = min(steps, granted)
    return steps
