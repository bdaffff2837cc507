"""Prompts of several requests that are read as one batch: a short one alone leaves most of a GPU idle.

A batch has all that the caches lack of a prompt, or nothing of it. The kernels that would read it alone round alike. So
an answer does not depend on the prompts that its own is read with.
"""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.generate.prompt_parts import PromptPart, prompt_part
from py_engine.generate.prompt_slices import part_ms
from py_engine.generate.running_sequence import RunningSequence, ScheduledWork
from py_engine.plan.lists import PREFILL_END
from py_engine.plan.packing import PackedPrompt, packed_prompts, padded_prompts
from py_engine.plan.pages import pages_for
from py_engine.plan.plan import Plan
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

    def may_add(self, sequence: RunningSequence, units: Sequence[Sequence[RunningSequence]]) -> bool:
        """Whether a batch with the prompt of `sequence` may have more prompts than the `units` have now."""
        runner = self._runner
        if runner is None or not self.most_tokens() or not sequence.prompting:
            return False
        return _may_be_packed(sequence, runner.plan) and sum(unit[0].prompting for unit in units) < MOST_PROMPTS

    def submit(
        self, first: RunningSequence, prompts: Sequence[RunningSequence], *, alone: bool
    ) -> ScheduledWork | None:
        """Submit the rest of the prompt of `first` with those of others; sample the first token of each answer.

        None: no other prompt can be read with it, and nothing was submitted.
        """
        runner = self._runner
        if runner is None or not _may_be_packed(first, runner.plan):
            return None
        others = sorted((one for one in prompts if one is not first and _may_be_packed(one, runner.plan)), key=_age)
        unit = _fitting([first, *others], runner.plan, self.most_tokens(alone=alone))
        if len(unit) < 2 or not runner.prepared_packed([one.cache.number for one, _ in unit]):
            return None
        leader, parts = unit[0][0], [(one, prompt, _whole(one, runner)) for one, prompt in unit]
        found = [(one, prompt, part) for one, prompt, part in parts if part is not None]
        packed = [one for one, *_ in found]
        # without `first`, others might pass it again and again
        if len(packed) < 2 or first not in packed or packed[0] is not leader:
            return None
        tokens = _feed([(one, prompt) for one, prompt, _ in found], runner)
        for one, _, part in found:
            part.record(one.cache)
            one.position = len(one.answer.ids)
            one.left -= 1
        return ScheduledWork(packed, part_ms(runner, tokens), prompt=True)


def _may_be_packed(sequence: RunningSequence, plan: Plan) -> bool:
    """Whether a prompt can be in a batch with others. Not if its answer needs a mask, or a part of it is open."""
    whole = plan.packs_prefixes or not sequence.cache.tokens
    return whole and sequence.constrained is None and sequence.open_part is None


def _whole(sequence: RunningSequence, runner: Runner) -> PromptPart | None:
    """All that is left of a prompt as one part, with its pages taken; None if it needs other lists or inputs."""
    part = prompt_part(sequence.answer, sequence.cache, runner, len(sequence.answer.ids), packed=True)
    plain = part.last and tuple(part.lists) == PREFILL_END and part.exact
    return part if plain and part.options.media is None and not part.options.shift else None


def _fitting(prompts: Sequence[RunningSequence], plan: Plan, most: int) -> list[tuple[RunningSequence, PackedPrompt]]:
    """The first prompt and others that fit into a batch of `most` tokens and the positions of one context.

    The batch begins with the prompt that has most pages in common with others. In a batch without gaps, the padding
    between prompts takes one row of the results, which leaves a small batch one row less for prompts.
    """
    rows = min(MOST_PROMPTS, plan.max_small_batch - (not plan.packs_prefixes))
    leader = _with_most_in_common(prompts[:rows])
    for order in ([leader, *prompts], prompts):
        unit, tokens, pages = dict[RunningSequence, PackedPrompt](), 0, 0
        begin = len(order[0].cache.tokens)  # the batch's tokens follow these in that sequence's list
        for one in order:
            prompt = _packed_prompt(one, order[0], plan.page)
            if prompt is None or one in unit or len(unit) == rows:
                continue
            own = prompt.own_pages(plan.page)
            size = len(prompt.ids) if plan.packs_prefixes else own * plan.page
            fits = tokens + size <= most and begin + tokens + size <= plan.n_ctx
            if fits and pages + own <= pages_for(plan.n_ctx, plan.page):
                unit[one] = prompt
                tokens, pages = tokens + size, pages + own
        if order[0] in unit and prompts[0] in unit:
            return list(unit.items())
    return []


def _with_most_in_common(prompts: Sequence[RunningSequence]) -> RunningSequence:
    def pages(sequence: RunningSequence) -> int:
        return sum(sequence.cache.pages_in_common(one.cache) for one in prompts if one is not sequence)

    return max(prompts, key=pages)


def _packed_prompt(sequence: RunningSequence, leader: RunningSequence, page: int) -> PackedPrompt | None:
    """What a batch that begins with `leader` has of a prompt; None if pages between those it reads were released."""
    ids, begin = sequence.answer.ids, len(sequence.cache.tokens)
    if sequence is leader:
        return PackedPrompt(ids[begin:], begin)
    shared = sequence.cache.pages_in_common(leader.cache)
    if not sequence.cache.holds_from(shared) or (shared and not leader.cache.holds_from(shared)):
        return None
    return PackedPrompt(ids[begin:], begin, shared * page)


def _feed(unit: Sequence[tuple[RunningSequence, PackedPrompt]], runner: PackingRunner) -> int:
    """Submit prompts as one batch, in the block table of the first one's sequence; return the number of tokens."""
    (leader, prompt), *others = unit
    number, page, at = leader.cache.number, runner.plan.page, prompt.own_pages(runner.plan.page)
    for one, prompt in others:
        shared, own = prompt.shared // page, prompt.own_pages(page)
        if not leader.cache.holds_from(0):  # it has released pages before its windows, which others may need
            one.cache.list_pages(number, 0, 0, shared)
        one.cache.list_pages(number, at, shared, shared + own)
        runner.set_tokens(one.cache.number, prompt.begin, prompt.ids)
        at += own
    prompts = [prompt for _, prompt in unit]
    if runner.plan.packs_prefixes:
        batch = packed_prompts(prompts, page)
    else:
        batch = padded_prompts([prompt.ids for prompt in prompts], page)
    runner.feed_prompts(batch, [Row(one.cache.number, prompt.end - 1) for one, prompt in unit])
    return len(batch.ids)


def _age(sequence: RunningSequence) -> int:
    return sequence.cache.age
