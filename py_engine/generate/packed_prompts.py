"""Prompts of several requests that are read as one batch: a short one alone leaves most of a GPU idle.

A prompt is packed only whole: the caches have nothing of it, and alone it would be read by the same kernels. So an
answer does not depend on the prompts that its own is read with.
"""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.generate.prompt_parts import PromptPart, prompt_part
from py_engine.generate.prompt_slices import part_ms
from py_engine.generate.running_sequence import RunningSequence, ScheduledWork
from py_engine.plan.lists import PREFILL_END
from py_engine.plan.packing import packed_prompts
from py_engine.plan.pages import pages_for
from py_engine.runners import PackingRunner, Row, Runner

ALONE_MS = 60.0  # the most that a batch of prompts takes: all of their answers wait for its end
BESIDE_MS = 45.0  # at most, beside streams, which get no token meanwhile
MOST_PROMPTS = 8  # of a batch: the device reads one batch while the host prepares the next one


class Packer:
    """Packs prompts for a runner, if it can read packed ones."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner if isinstance(runner, PackingRunner) else None

    def most_tokens(self, *, alone: bool = True) -> int:
        """Tokens that a batch may have; 0: none. `alone`: no stream waits for it."""
        runner = self._runner
        if runner is None or not runner.packs_prompts:
            return 0
        tokens = runner.prompt_tokens_in(ALONE_MS if alone else BESIDE_MS)
        return min(tokens, runner.plan.batch, runner.plan.n_ctx)

    def submit(
        self, first: RunningSequence, prompts: Sequence[RunningSequence], *, alone: bool
    ) -> ScheduledWork | None:
        """Submit the prompt of `first` with others; sample the first token of each answer.

        None: no other prompt can be read with it, and nothing was submitted.
        """
        runner = self._runner
        others = sorted((one for one in prompts if one is not first and _may_be_packed(one)), key=_age)
        if runner is None or not others or not _may_be_packed(first):
            return None
        unit = _fitting([first, *others], runner, self.most_tokens(alone=alone))
        if len(unit) < 2 or not runner.prepared_packed([one.cache.number for one in unit]):
            return None
        parts = [(one, part) for one in unit if (part := _whole(one, runner)) is not None]
        if len(parts) < 2 or parts[0][0] is not first:  # or others might pass it again and again
            return None
        tokens = _feed(parts, runner)
        for one, part in parts:
            part.record(one.cache)
            one.position = len(one.answer.ids)
            one.left -= 1
        return ScheduledWork([one for one, _ in parts], part_ms(runner, tokens), prompt=True)


def _may_be_packed(sequence: RunningSequence) -> bool:
    """Whether nothing of a prompt was read, and its answer needs no mask."""
    return sequence.constrained is None and sequence.open_part is None and not sequence.cache.tokens


def _whole(sequence: RunningSequence, runner: Runner) -> PromptPart | None:
    """All of a prompt as one part, with its pages taken; None if other lists or inputs read it."""
    part = prompt_part(sequence.answer, sequence.cache, runner, len(sequence.answer.ids))
    plain = part.last and tuple(part.lists) == PREFILL_END and part.exact
    return part if plain and part.options.media is None and not part.options.shift else None


def _fitting(prompts: Sequence[RunningSequence], runner: PackingRunner, most: int) -> list[RunningSequence]:
    """The prompts that fit into a batch of `most` tokens, in their order.

    The tokens between prompts have a row of the result, too: one row of a small batch is left for it.
    """
    unit, used = list[RunningSequence](), 0
    for one in prompts:
        size = runner.plan.page * pages_for(len(one.answer.ids), runner.plan.page)
        if used + size <= most and len(unit) < min(MOST_PROMPTS, runner.plan.max_small_batch - 1):
            unit.append(one)
            used += size
    return unit


def _feed(parts: Sequence[tuple[RunningSequence, PromptPart]], runner: PackingRunner) -> int:
    """Submit prompts as one batch, in the block table of the first one's sequence; return the number of tokens."""
    number, page, at = parts[0][0].cache.number, runner.plan.page, 0
    for one, part in parts:
        if at:
            one.cache.list_pages(number, at, len(part.ids))
            runner.set_tokens(one.cache.number, 0, part.ids)
        at += pages_for(len(part.ids), page)
    batch = packed_prompts([part.ids for _, part in parts], page)
    runner.feed_prompts(batch, [Row(one.cache.number, len(part.ids) - 1) for one, part in parts])
    return len(batch.ids)


def _age(sequence: RunningSequence) -> int:
    return sequence.cache.age
