"""Slices of prompts: chunked prefill whose chunks are also divided by layers.

The more tokens a part of a prompt has, the fewer milliseconds each takes: an H100 reads the first 512 of an 8B model in
52 ms, 2,048 in 172. So that no stream waits for all of that, a part's list is divided among several submits, with steps
of the streams between them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from math import ceil

from py_engine.generate.checking import end_mask
from py_engine.generate.prompt_parts import prompt_part, tokens_of_part
from py_engine.generate.running_sequence import OpenPart, RunningSequence, ScheduledWork
from py_engine.plan.lists import MEDIA, PREFILL
from py_engine.runners import Runner

SLICE_MS = 30.0  # the time of a slice beside streams, which get no token meanwhile
PROMPTS_MS = 30.0  # of short prompts, or of a part that is not divided, beside streams
GROWTH = 1.1  # of a part's time over that of the one before it, whose context is shorter
ALONE_MS = 80.0  # the time of a slice without streams: an abort waits for its end
STEPS_SHARE = 0.3  # most time of the streams' steps, as a share of the slice before them; slow steps make slices longer
UNKNOWN_TOKEN_MS = 0.2  # the time that a prompt's token is assumed to take before one was timed
TOKENS_PER_STEP = 16  # tokens of a prompt that a device reads at least in the time of a decode step


def submit_slice(sequence: RunningSequence, runner: Runner, *, alone: bool, steps_ms: float) -> ScheduledWork | None:
    """Submit the next slice of a prompt; the last one also samples the answer's first token. None: pages are lacking.

    `alone`: nothing waits for its slices. `steps_ms`: the time of the steps that streams take after each slice.
    """
    if sequence.open_part is not None:
        sequence.open_part.rest.popleft()()
    elif not _open_part(sequence, runner, alone, steps_ms):
        return None
    opened = sequence.open_part
    assert opened is not None
    submit = ScheduledWork([sequence], opened.slice_ms, opened.part.last and not opened.rest, prompt=True)
    if not opened.rest:
        opened.part.record(sequence.cache)
        sequence.open_part = None
    if submit.samples:
        sequence.position = len(sequence.answer.ids)
        sequence.left -= 1
        end_mask(runner, sequence)
    return submit


def _open_part(sequence: RunningSequence, runner: Runner, alone: bool, steps_ms: float) -> bool:
    """Submit the first slice of a part. False: pages are lacking."""
    answer, cache, slices = sequence.answer, sequence.cache, 1
    whole = alone or runner.divides_prompts  # else streams wait for all of a part
    part = prompt_part(answer, cache, runner, tokens_of_part(runner) if whole else runner.prompt_tokens_in(PROMPTS_MS))
    if not part.ids:
        answer.lacks_pages = True
        return False
    ms = part_ms(runner, len(part.ids)) if alone else _longest_ms(runner, len(part.ids))
    if runner.divides_prompts and part.lists[0] in (PREFILL, MEDIA):
        slices = max(1, ceil(GROWTH * ms / (ALONE_MS if alone else max(SLICE_MS, steps_ms / STEPS_SHARE))))
    lists = (*part.lists, *answer.sampling.lists(sequence.masked)) if part.last else part.lists
    options = replace(part.options, slices=slices)
    rest = runner.feed(part.at, part.ids, lists, cache.number, read=True, options=options)
    sequence.lets_pass_ms = ms
    # A part that is not recorded can be dropped, unless it has changed states, or pages that a window uses again.
    droppable = not any(group.states or group.window for group in runner.plan.page_groups)
    sequence.open_part = OpenPart(part, ms / slices, deque(rest), droppable)
    return True


def part_ms(runner: Runner, tokens: int) -> float:
    """The time of a part of a prompt, as far as it is known."""
    return runner.prompt_ms(tokens) or tokens * UNKNOWN_TOKEN_MS


def _longest_ms(runner: Runner, tokens: int) -> float:
    """part_ms(), or more if no part of about that size was timed: with too few slices, streams would wait long."""
    known = part_ms(runner, tokens)
    if runner.prompt_timed(tokens):
        return known
    return max(known, tokens * max(UNKNOWN_TOKEN_MS, runner.step_ms(1) / TOKENS_PER_STEP))
