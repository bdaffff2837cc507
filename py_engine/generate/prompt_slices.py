"""Slices of prompts: chunked prefill whose chunks are also divided by layers.

The more tokens a part of a prompt has, the fewer milliseconds each takes: an H100 reads the first 512 of an 8B model in
52 ms, 2,048 in 172. So that no stream waits for all of that, a part's list is divided among several submits, with steps
of the streams between them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from py_engine.generate.checking import end_mask
from py_engine.generate.prompt_parts import prompt_part, tokens_of_part
from py_engine.generate.running_sequence import BegunPart, RunningSequence, ScheduledWork
from py_engine.plan.lists import MEDIA, PREFILL
from py_engine.runners import Runner

SLICE_MS = 36.0  # the time of a slice beside streams: they get no token meanwhile
ALONE_MS = 80.0  # of a slice without streams: so soon an abort takes effect
STEPS_SHARE = 0.3  # of a slice's time, which the steps after it may take; after slower steps, slices are longer
UNKNOWN_TOKEN_MS = 0.2  # the time that a prompt's token is assumed to take before one was timed


def submit_slice(sequence: RunningSequence, runner: Runner, *, alone: bool, steps_ms: float) -> ScheduledWork | None:
    """Submit the next slice of a prompt; the last one also samples the answer's first token. None: pages are lacking.

    `alone`: nothing else runs. `steps_ms`: the time of the steps that streams take after each slice; 0: there are none.
    """
    if sequence.begun is not None:
        sequence.begun.rest.popleft()()
    elif not _begin(sequence, runner, alone, steps_ms):
        return None
    begun = sequence.begun
    assert begun is not None
    submit = ScheduledWork([sequence], begun.ms, begun.part.last and not begun.rest, prompt=True)
    if not begun.rest:
        begun.part.record(sequence.cache)
        sequence.begun = None
    if submit.samples:
        sequence.position = len(sequence.answer.ids)
        sequence.left -= 1
        end_mask(runner, sequence)
    return submit


def _begin(sequence: RunningSequence, runner: Runner, alone: bool, steps_ms: float) -> bool:
    """Submit the first slice of a part. False: pages are lacking."""
    answer, cache, slices = sequence.answer, sequence.cache, 1
    whole = alone or runner.divides_prompts  # else streams wait for all of a part
    part = prompt_part(answer, cache, runner, tokens_of_part(runner) if whole else runner.prompt_tokens_in(SLICE_MS))
    if not part.ids:
        answer.lacks_pages = True
        return False
    ms = part_ms(runner, len(part.ids))
    if runner.divides_prompts and part.lists[0] in (PREFILL, MEDIA):
        slices = max(1, round(ms / (max(SLICE_MS, steps_ms / STEPS_SHARE) if steps_ms else ALONE_MS)))
    lists = (*part.lists, *answer.sampling.lists(sequence.masked)) if part.last else part.lists
    options = replace(part.options, slices=slices)
    rest = runner.feed(part.at, part.ids, lists, cache.number, read=True, options=options)
    # Before a part is recorded, it changes states, and writes pages of windows again.
    droppable = not any(group.states or group.window for group in runner.plan.page_groups)
    sequence.begun = BegunPart(part, ms / slices, deque(rest), droppable)
    return True


def part_ms(runner: Runner, tokens: int) -> float:
    """The time of a part of a prompt, as far as it is known."""
    return runner.prompt_ms(tokens) or tokens * UNKNOWN_TOKEN_MS
