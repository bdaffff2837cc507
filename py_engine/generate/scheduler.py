"""Which sequence runs next: continuous batching (Yu et al. 2022, "Orca").

Requests join and leave between two submits; without drafts, nothing is drained for that. In turn, a submit is made of
    slices of prompts             those of new requests first, so that these soon share steps (prompt_order.py)
    steps of a batch              up to Plan.max_small_batch sequences; a sequence's tokens do not depend on the others
Sequences that share steps draft tokens by prompt lookup, by the model's MTP layer or by a draft model where that pays
and the batch has rows left. Answers under a constraint share steps while others run; alone they hold the device in time
slices (generation.py).
Some submits are on the device before the oldest is read, so the device never waits for the host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from py_engine.generate.answer import Answer
from py_engine.generate.batches import batches, needs_masks, with_pages
from py_engine.generate.checking import check, clear_stale_masks, end_mask, most_steps, rejects_often
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.draft_choice import choose_drafts
from py_engine.generate.draft_model import Drafter
from py_engine.generate.drafted_steps import UNKNOWN_MS, may_begin_in_flight, record_result, submit_drafts
from py_engine.generate.joining import Joining, Reuse
from py_engine.generate.masked_steps import MASKED_MS, decode_masked
from py_engine.generate.packed_prompts import Packer
from py_engine.generate.prompt_order import count_passed, next_prompt
from py_engine.generate.prompt_slices import PROMPTS_MS, SLICE_MS, part_ms, submit_slice
from py_engine.generate.running_sequence import RunningSequence, ScheduledWork
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.generate.speculation import Drafts
from py_engine.generate.time_slices import TimeSlices
from py_engine.generate.totals import Totals
from py_engine.plan.sampling import Batch
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.runners import Runner
from py_engine.tasks import begin, to_the_end

# The time of decode steps of up to SHORT_BATCH sequences in one submit: short, so that others may join and an abort
# takes effect. More sequences get a multiple, because the host takes longer for their results.
SUBMIT_MS = 8.0
BESIDE_PROMPT_MS = 4.0  # the same while a prompt is read, or soon after
DRAFT_PART_MS = 100.0  # of a part of a prompt that the draft model reads alone: an abort waits for its end
LONG_MS = 120.0  # a submit that takes longer may be alone on the device: the wait after it costs little
AHEAD_MS = 24.0  # work on the device before the oldest submit is awaited
AHEAD_ALONE_MS = 100.0  # the same for a prompt that nothing runs beside
AHEAD_JOINED_MS = 8.0  # the same soon after a request has joined: others often come with it, and would wait
AHEAD_CHECKED_MS = 4.0  # the same while a constraint often rejects tokens: the next steps wait until they are checked


class Scheduler:
    """The sequences that run on one device."""

    def __init__(
        self, runner: Runner, time_slices: TimeSlices, totals: Totals, speculation: bool = True,
        drafter: Drafter | None = None,
    ) -> None:  # fmt: skip
        self.runner, self._time_slices, self._speculation = runner, time_slices, speculation
        self._totals, self._drafter = totals, drafter
        self._sequences: list[RunningSequence] = []
        self._in_flight: deque[ScheduledWork] = deque()
        self._packer = Packer(runner)
        self._joining = Joining(runner, self._sequences, self._packer)
        self._prompt_ms = 0.0  # of slices of prompts that were submitted since the last steps of streams
        self._submits = 0  # submits so far
        self._first_submit = 0  # of the time slice
        self._drafting = Drafts.NONE  # of the submits in flight
        self._drafted: list[RunningSequence] = []  # the sequences that draft
        self._catching_up = False  # the draft model reads a part of the prompt
        self._task: asyncio.Task[None] | None = None
        self._serving = False

    async def run(
        self, answer: Answer, cache: SequenceCache, count: int, reuse: Reuse | None,
        constrained: ConstrainedAnswer | None = None,
    ) -> AsyncGenerator[Batch, None]:  # fmt: skip
        """Feed what the caches lack of an answer's ids, then yield up to `count` tokens, or until pages are lacking.

        `reuse()` is called when it is this prompt's turn, so that it finds what others have computed; None if it was
        called before. Yields an empty batch after each part of the prompt but the last. Closing the generator cancels
        the sequence. A `constrained` answer also returns when it should go on alone (ConstrainedAnswer.shares).
        """
        sequence = RunningSequence(answer, cache, count, constrained=constrained)
        if not await self._joining.join(sequence, reuse):
            return
        self.runner.end_masked()
        self._serve()
        try:
            while (batch := await sequence.batches.get()) is not None:
                if isinstance(batch, BaseException):
                    raise batch
                yield batch
        finally:
            sequence.cancelled = True
            self.runner.end_masked()
            try:
                await to_the_end(sequence.released.wait())  # else others would get pages that the device still uses
            finally:
                self._joining.end_prompt(sequence)

    def _serve(self) -> None:
        """Begin to serve the sequences, unless that goes on already."""
        if self._sequences and not self._serving:
            self._serving = True
            self._task = begin(self._run())

    async def _run(self) -> None:
        try:
            while self._sequences:
                async with self._time_slices.acquire(beside_part=True):
                    try:
                        await self._run_time_slice()
                    except BaseException as error:
                        await self._end_all(error)  # before another task has the device
                        if not isinstance(error, Exception):
                            raise
                if self._parts_blocked:
                    await asyncio.sleep(0)  # the task that waits for a part may be about to queue for the device again
        except BaseException as error:
            await self._end_all(error)
            raise
        finally:  # a sequence may have come while the runner stopped
            self._serving = False
            self._serve()

    async def _end_all(self, error: BaseException) -> None:
        """End all sequences with an error, once the device no longer works on them."""
        failed = list(self._sequences)
        self._sequences.clear()
        self._in_flight.clear()
        for sequence in failed:
            if sequence.open_part is not None:  # the states of some layers have seen the part
                sequence.cache.advance(None, exact=False)
                self._time_slices.close_part()
        try:
            await to_the_end(self.runner.stop())
        finally:
            for sequence in failed:
                sequence.batches.put_nowait(error)
                sequence.released.set()

    async def _run_time_slice(self) -> None:
        """Submit and read until no sequence is left, or until the device should be released.

        Nothing is in flight then; a part of a prompt may be open.
        """
        self._first_submit = self._submits
        self._drafting, self._drafted = Drafts.NONE, []  # who held the device before has set other States
        while self._sequences:
            await self._submit_ahead()
            if self._in_flight:
                await self._read()
            elif self._catching_up:
                self._catching_up = False
                await self.runner.finish()
            self._let_leave()
            self._release_finished()
            if not self._in_flight and (self._is_over() or self._parts_blocked):
                return

    @property
    def _parts_blocked(self) -> bool:
        """Whether no part of a prompt may begin: another task has an open one, or waits for the end of the one before.

        A scheduler whose device was lost may have one open until it notices.
        """
        opened = any(sequence.open_part is not None for sequence in self._sequences)
        return not opened and (self._time_slices.part_open or self._time_slices.part_awaited)

    def _is_over(self) -> bool:
        """Whether the time slice is over when what was submitted has run."""
        ahead = sum(submit.ms for submit in self._in_flight)
        return self._submits > self._first_submit and self._time_slices.expired(ahead / 1000)

    async def _read(self) -> None:
        """Read the oldest submit's results, and hand their tokens on."""
        results = await self.runner.result()
        submit = self._in_flight.popleft()
        rows = zip(submit.unit, submit.versions, submit.masked, results, strict=True)
        for sequence, version, masked, sampled in rows:
            batch = sampled if submit.samples else Batch([])
            sequence.submits -= 1
            if sequence.constrained is not None and submit.samples:
                if version == sequence.version and not sequence.cancelled:
                    await check(self.runner, sequence, batch, masked=masked, beside_part=self._time_slices.part_open)
                continue
            yielded = len(batch.ids)
            if submit.steps:
                self._totals.count_drafts(submit.steps, yielded, submit.n_model_draft)
                batch = batch[: sequence.left]
                sequence.left -= len(batch.ids)
                sequence.position += len(batch.ids)
                known = not self._in_flight and len(batch.ids) == yielded
                accepted = yielded == submit.steps * (1 + submit.n_model_draft)  # all drafts, so the last one, too
                sequence.cache.advance(sequence.position if known else None, exact=False, back=accepted)
            sequence.push(batch)
            if self._drafter is not None:
                record_result(self._drafter, submit, sequence, yielded)

    def _let_leave(self) -> None:
        """Give constrained answers back that should go on alone."""
        for sequence in self._sequences:
            if sequence.constrained is not None and not sequence.prompting and not sequence.constrained.shares():
                sequence.leaves = True

    def _release_finished(self) -> None:
        for sequence in [s for s in self._sequences if not s.runnable and not s.submits]:
            self._sequences.remove(sequence)
            if sequence.open_part is not None:  # dropped at an abort
                self._time_slices.close_part()
            sequence.batches.put_nowait(None)
            sequence.released.set()

    # -- what to submit

    async def _submit_ahead(self) -> None:
        """Submit until the device has enough work, or until a result must be read first."""
        while not self._is_over() and (units := self._units()):
            streams = any(not unit[0].prompting for unit in units)
            alone = not streams and not self._time_slices.wanted
            if self._enough_ahead(AHEAD_ALONE_MS if alone else self._ahead_ms(units)):
                return
            unit = self._next(units)
            if self._packer.may_add(unit[0], units) and (await self._joining.gather() or not unit[0].runnable):
                continue
            prompting, beside_prompt = unit[0].prompting, any(one.prompting for (one, *_) in units)
            if not prompting and needs_masks(unit):
                if not self._in_flight:
                    await self._decode_masked(unit, beside_prompt=beside_prompt)
                return
            drafting, n_model_draft = self._choose_drafts(unit)
            if not self._set_drafts(unit, drafting, n_model_draft):
                return
            if drafting:
                submit = self._submit_drafts(unit, n_model_draft)
                if submit is None:
                    return
            elif prompting:
                submit = self._submit_prompt(unit[0], units)
            else:
                submit = self._submit_steps(unit, beside_prompt=beside_prompt)
            if submit is None:
                continue  # pages are lacking: there are fewer units now
            self._add(submit)
            self._prompt_ms = self._prompt_ms + submit.ms if prompting and streams else 0.0
            if prompting:
                await self._joining.wait()

    def _add(self, submit: ScheduledWork) -> None:
        self._submits += 1
        for sequence in submit.unit:
            sequence.last_submit = self._submits
            sequence.submits += 1
        self._in_flight.append(submit)

    def _next(self, units: list[list[RunningSequence]]) -> list[RunningSequence]:
        """The unit whose turn it is: a new prompt, unless streams would wait longer than PROMPTS_MS."""
        prompts = [unit[0] for unit in units if unit[0].prompting]
        decoding = [unit for unit in units if not unit[0].prompting]
        first = min([[next_prompt(prompts)], *decoding] if prompts else decoding, key=_last_submit)
        if first[0].prompting and decoding and self._prompt_ms:
            left = len(first[0].answer.ids) - len(first[0].cache.tokens)
            longest = SLICE_MS if self.runner.divides_prompts else PROMPTS_MS
            if self._prompt_ms + min(longest, part_ms(self.runner, left)) > PROMPTS_MS:
                return min(decoding, key=_last_submit)
        return first

    def _ahead_ms(self, units: list[list[RunningSequence]]) -> float:
        """How much work should be on the device."""
        if any(rejects_often(sequence) for unit in units for sequence in unit):
            return AHEAD_CHECKED_MS
        return AHEAD_JOINED_MS if self._joining.joined_recently() else AHEAD_MS

    def _enough_ahead(self, ms: float) -> bool:
        """Whether the device has work for `ms`. One submit is too little: the device would wait for the next one."""
        ahead = self._in_flight
        if not ahead or not self.runner.queues:
            return bool(ahead)
        return sum(submit.ms for submit in ahead) >= ms and (len(ahead) > 1 or ahead[0].ms >= LONG_MS)

    def _units(self) -> list[list[RunningSequence]]:
        """What the next submit may be made of: prompts, and batches; while those are compiled, their sequences."""
        runnable = [sequence for sequence in self._sequences if sequence.runnable]
        opened = [sequence for sequence in runnable if sequence.open_part is not None]
        waiting = [] if self._time_slices.part_open or self._parts_blocked else runnable
        prompts = [[sequence] for sequence in opened or waiting if sequence.prompting]
        decoding = [sequence for sequence in runnable if not sequence.prompting]
        return [*prompts, *batches(decoding, self.runner)]

    def _submit_ms(self, rows: int) -> float:
        """The time that decode steps of so many sequences in one submit should take."""
        return BESIDE_PROMPT_MS if self._joining.joined_recently() else SUBMIT_MS * -(-rows // SHORT_BATCH)

    def _steps_beside_prompt(self, rows: int) -> int:
        """Decode steps of so many sequences between two slices: one if it takes long. Two would make slices longer."""
        step_ms, steps = self.runner.step_ms(rows), self.runner.steps_in(rows, BESIDE_PROMPT_MS)
        return min(steps, max(1, int(BESIDE_PROMPT_MS / step_ms))) if step_ms else steps

    def _submit_steps(self, unit: list[RunningSequence], *, beside_prompt: bool) -> ScheduledWork | None:
        """Submit decode steps of a unit. None: pages are lacking."""
        rows, runner = len(unit), self.runner
        steps = self._steps_beside_prompt(rows) if beside_prompt else runner.steps_in(rows, self._submit_ms(rows))
        steps = with_pages(unit, min(steps, *(most_steps(sequence) for sequence in unit)))
        if not steps:
            return None
        clear_stale_masks(runner, unit)
        runner.decode([sequence.row for sequence in unit], steps)
        self._totals.count(steps, rows)
        submit = ScheduledWork(unit, steps * (runner.step_ms(rows) or UNKNOWN_MS))
        for sequence in unit:
            end_mask(runner, sequence)
            sequence.position += steps
            sequence.left -= steps
            sequence.cache.advance(sequence.position, exact=False)
        return submit

    async def _decode_masked(self, unit: list[RunningSequence], *, beside_prompt: bool) -> None:
        """Decode steps of a unit, each with new masks. Nothing may be in flight."""
        self._drafting, self._drafted = Drafts.NONE, []
        steps = await decode_masked(self.runner, unit, BESIDE_PROMPT_MS if beside_prompt else MASKED_MS)
        self._totals.count(steps, len(unit))
        self._prompt_ms = 0.0
        self._submits += 1
        for sequence in unit:
            sequence.last_submit = self._submits

    def _submit_prompt(self, sequence: RunningSequence, units: list[list[RunningSequence]]) -> ScheduledWork | None:
        """Submit the next slice of a prompt. None: pages are lacking."""
        runner, streams = self.runner, [len(unit) for unit in units if not unit[0].prompting]
        step_ms = [self._steps_beside_prompt(rows) * (runner.step_ms(rows) or UNKNOWN_MS) for rows in streams]
        alone = not streams and not self._time_slices.wanted
        prompts = [unit[0] for unit in units if unit[0].prompting]
        submit = self._packer.submit(sequence, prompts, alone=alone)
        submit = submit or submit_slice(sequence, runner, alone=alone, steps_ms=sum(step_ms))
        if submit is None:
            return None
        count_passed(sequence, submit.ms, self._sequences)
        if sequence.open_part is not None:
            self._time_slices.open_part()
        else:
            self._totals.count(1, len(submit.unit))
            self._time_slices.close_part()
            self._joining.prompts_progressed()
        for one in submit.unit if submit.samples else ():
            self._joining.end_prompt(one)
            if self._speculation and one.constrained is None:
                one.ids = list(one.answer.ids)
        return submit

    # -- drafts

    def _choose_drafts(self, unit: list[RunningSequence]) -> tuple[Drafts, int]:
        """How the next steps of a unit draft, and tokens of a draft, as choose_drafts() returns them."""
        if not self._speculation or unit != self._sequences:
            return Drafts.NONE, 0
        drafting, n_model_draft = choose_drafts(unit, self.runner, self._drafter, self._drafting)
        begins = n_model_draft > 0 and (self._drafting, self._drafted) != (Drafts.MODEL, unit)
        if begins and len(unit) > 1 and (self._drafting or not self._caught_up(unit, SLICE_MS)):
            return Drafts.NONE, 0  # or all would wait until the draft model has read a prompt
        return drafting, n_model_draft

    def _set_drafts(self, unit: list[RunningSequence], drafting: Drafts, n_model_draft: int) -> bool:
        """Begin or end drafts. False: first, what is in flight must be read, or the draft model reads a part."""
        drafted = unit if drafting else []
        if (drafting, drafted) == (self._drafting, self._drafted):
            return True
        if self._in_flight and (not n_model_draft or self._drafting or not may_begin_in_flight(unit)):
            return False
        self._drafting, self._drafted = Drafts.NONE, []
        if n_model_draft and self._drafter is not None:
            self._catching_up = not self._caught_up(unit, DRAFT_PART_MS)
            if self._catching_up:
                self._submits += 1  # the time slice may end after this part
                return False
            self._drafter.start([sequence.row for sequence in unit])
        elif drafting:
            self.runner.start_drafts([sequence.row for sequence in unit])
        self._drafting, self._drafted = drafting, drafted
        return True

    def _caught_up(self, unit: list[RunningSequence], ms: float) -> bool:
        """Whether the draft model has read what is known of all sequences; else it reads a part of about `ms`."""
        drafter = self._drafter
        return drafter is None or all(drafter.catch_up(sequence, len(unit), ms) for sequence in unit)

    def _submit_drafts(self, unit: list[RunningSequence], n_model_draft: int) -> ScheduledWork | None:
        """Submit steps with drafts. None: no more positions have pages, or a context might end."""
        ms = self._submit_ms(len(unit))
        submit = submit_drafts(unit, self.runner, self._drafter, n_model_draft, self._in_flight, ms)
        if submit is not None:
            self._totals.count(submit.steps, len(unit))
        return submit


def _last_submit(unit: list[RunningSequence]) -> int:
    """The number of the latest submit of the sequence that waits longest."""
    return min(sequence.last_submit for sequence in unit)
