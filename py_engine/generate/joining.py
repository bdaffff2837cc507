"""How requests join the sequences of a device: prompt after prompt, and those that come together in one batch soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from py_engine.generate.checking import first_mask
from py_engine.generate.running_sequence import RunningSequence
from py_engine.runners import Runner

SOON_SECONDS = 0.05  # after a request has joined, in which others often come
WAIT_SECONDS = 0.005  # that steps wait for the next of several requests

Reuse = Callable[[], bool]  # sets what the caches hold of a sequence; False: pages are lacking


class Joining:
    """Puts new requests among a scheduler's `sequences`."""

    def __init__(self, runner: Runner, sequences: list[RunningSequence]) -> None:
        self._runner, self._sequences = runner, sequences
        self._prompts = asyncio.Lock()  # prompts are read one after the other
        self._coming = 0  # requests that are not yet among the sequences
        self._newest = 0.0  # when one joined, in seconds of time.perf_counter()

    async def join(self, sequence: RunningSequence, reuse: Reuse | None) -> bool:
        """Put a sequence among the others when the prompts before its own were submitted. False: pages are lacking."""
        self._coming += 1
        try:
            joined = await self._prepare(sequence, reuse)
        finally:
            self._coming -= 1
        if joined:
            self._sequences.append(sequence)
            self._newest = time.perf_counter()
        return joined

    async def _prepare(self, sequence: RunningSequence, reuse: Reuse | None) -> bool:
        answer, constrained, number = sequence.answer, sequence.constrained, sequence.cache.number
        sequence.prompted = reuse is None and not sequence.prompting  # then it waits for no other's prompt
        mask = await first_mask(sequence)
        if not sequence.prompted:
            await self._prompts.acquire()
        try:
            masks = constrained is not None
            await self._runner.configure(answer.sampling, answer.begins, answer.shifted, masks, number)
            if reuse is not None and not reuse():
                self.end_prompt(sequence)
                return False
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
        """Let the next prompt begin."""
        if not sequence.prompted:
            sequence.prompted = True
            self._prompts.release()

    def was_just_now(self) -> bool:
        """Whether a request has joined a short time ago."""
        return time.perf_counter() - self._newest < SOON_SECONDS

    async def wait(self) -> None:
        """Let the next of several requests that came together join, before steps without it are submitted."""
        begun, count = time.perf_counter(), len(self._sequences)
        while self._coming and len(self._sequences) == count and not any(s.prompting for s in self._sequences):
            if time.perf_counter() - begun > WAIT_SECONDS:
                return
            await asyncio.sleep(0)
