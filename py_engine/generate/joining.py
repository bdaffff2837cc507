"""How requests join the sequences of a device. Those that arrive together soon share batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from py_engine.generate.checking import first_mask
from py_engine.generate.packed_prompts import Packer
from py_engine.generate.prompt_order import admit, tokens_left
from py_engine.generate.running_sequence import RunningSequence
from py_engine.runners import Runner

SOON_SECONDS = 0.05  # how long after a request others often arrive
WAIT_SECONDS = 0.005  # how long steps wait for the next of several requests

Reuse = Callable[[], bool]  # has a sequence hold what the caches know of its prompt; False: pages are lacking


class Joining:
    """Puts new requests among a scheduler's `sequences`."""

    def __init__(self, runner: Runner, sequences: list[RunningSequence], packer: Packer) -> None:
        self._runner, self._sequences, self._packer = runner, sequences, packer
        self._unread: list[RunningSequence] = []  # whose prompts were not submitted, as they came
        self._read = asyncio.Event()  # a part of a prompt was submitted, or a request admitted; replaced each time
        self._left: dict[RunningSequence, int] = {}  # tokens of unread prompts that the caches lack, as far as known
        self._stale = False  # requests may be admitted that were not before
        self._n_joining = 0  # requests that wait for others' prompts, or will join at once
        self._changed = asyncio.Event()  # that number, or the sequences
        self._joined_at = 0.0  # when the newest one joined, in seconds of time.perf_counter()

    async def join(self, sequence: RunningSequence, reuse: Reuse | None) -> bool:
        """Put a sequence among the others when it is its prompt's turn. False: pages are lacking."""
        sequence.prompted = reuse is None and not sequence.prompting  # then it waits for no other's prompt
        mask = await first_mask(sequence)
        self._n_joining += 1
        try:
            joined = await self._prepare(sequence, reuse, mask)
            if joined:
                self._sequences.append(sequence)
                self._joined_at = time.perf_counter()
        finally:
            self._n_joining -= 1
            self._changed.set()
        return joined

    async def _prepare(self, sequence: RunningSequence, reuse: Reuse | None, mask: Any) -> bool:
        """Wait for the prompt's turn, then set up the device and the caches for it. False: pages are lacking."""
        answer, constrained, number = sequence.answer, sequence.constrained, sequence.cache.number
        try:
            if not sequence.prompted:
                await self._wait_for_admission(sequence)
            masks = constrained is not None
            await self._runner.configure(answer.sampling, answer.begins, answer.shifted, masks, number)
            if reuse is not None and not reuse():
                self.end_prompt(sequence)
                return False
            self._look_again(sequence)  # what it has found in the caches counts for others
            await answer.media.encode(answer.ids, len(sequence.cache.tokens))
            if constrained is not None and sequence.prompting:
                self._runner.mask(mask, number)
                sequence.masked = True
        except BaseException:
            self.end_prompt(sequence)
            raise
        if constrained is not None and not sequence.prompting:
            sequence.position = constrained.at - 1
            self.end_prompt(sequence)
        return True

    def end_prompt(self, sequence: RunningSequence) -> None:
        """Let other prompts follow."""
        if not sequence.prompted:
            sequence.prompted = True
            self._unread.remove(sequence)
            self._look_again(sequence)

    def prompts_progressed(self) -> None:
        """Look again which requests may be admitted: a part of a prompt was submitted."""
        self._left.clear()
        self._look_again()

    def _look_again(self, changed: RunningSequence | None = None) -> None:
        """Look again which requests may be admitted. `changed`: one whose tokens left to read may have changed."""
        if changed is not None:
            self._left.pop(changed, None)
        self._stale = True
        self._wake()

    def _wake(self) -> None:
        self._read.set()
        self._read = asyncio.Event()

    async def _wait_for_admission(self, sequence: RunningSequence) -> None:
        self._unread.append(sequence)
        self._admit()
        while not sequence.admitted:
            await self._read.wait()
            if self._stale:  # the first of those that wait looks for all
                self._admit()

    def _admit(self) -> None:
        self._stale = False
        if admit(self._unread, self._packer.most_tokens(), self._tokens_left):
            self._wake()

    def _tokens_left(self, sequence: RunningSequence) -> int:
        if sequence not in self._left:
            self._left[sequence] = tokens_left(sequence)
        return self._left[sequence]

    def joined_recently(self) -> bool:
        """Whether a request has joined a short time ago."""
        return time.perf_counter() - self._joined_at < SOON_SECONDS

    async def wait(self) -> None:
        """Let the next of several requests that arrived together join, before steps without it are submitted."""
        if self._n_joining and not any(sequence.prompting for sequence in self._sequences):
            await self._wait_for_change(WAIT_SECONDS)

    async def gather(self) -> bool:
        """Let the admitted requests join, so that one batch may read their prompts. True if some have joined."""
        end, before, left = time.perf_counter() + WAIT_SECONDS, len(self._sequences), WAIT_SECONDS
        while self._admitted_join() and left > 0:
            await self._wait_for_change(left)  # at least once, however late a busy machine is
            left = end - time.perf_counter()
        return len(self._sequences) > before

    def _admitted_join(self) -> bool:
        """Whether an admitted request joins at once. Those with media or a constraint are not packed."""
        return any(
            one.admitted and one not in self._sequences and not one.answer.media and one.constrained is None
            for one in self._unread
        )

    async def _wait_for_change(self, seconds: float) -> None:
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        try:  # not wait_for(): Pyodide's event loop rejects a timeout that is over when it is set
            await asyncio.wait([changed], timeout=seconds)
        finally:
            changed.cancel()
