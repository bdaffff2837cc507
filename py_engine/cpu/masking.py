"""Tokens of sequences that are sampled in turn, each with the mask after the one before: gpu/masked.js, for the CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from py_engine.plan.adapted_lists import AdaptedSequences
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling, only_mask, step
from py_engine.runners import MaskedRow, MaskedTokens, Row


class MaskedDevice(Protocol):
    """What computes the steps."""

    plan: Plan

    def begin_masked(self, rows: Sequence[Row], lists: Sequence[str]) -> None:
        """Begin to run the lists that compute the logits after the rows' newest tokens."""

    def mask(self, allowed: Any | None, seq: int) -> None:
        """Runner.mask."""

    async def sample_masked_rows(self, rows: Sequence[Row], lists: Sequence[str]) -> list[tuple[int, bool]]:
        """Sample each row's next token with the lists; returns also whether a mask changed it."""


class Masking:
    """Runner.decode_masked and end_masked."""

    def __init__(self, device: MaskedDevice, samplings: Mapping[int, Sampling], adapted: AdaptedSequences) -> None:
        """`samplings`: of every sequence that was configured."""
        self._device, self._stops = device, False
        self._samplings, self._adapted = samplings, adapted

    def stop(self) -> None:
        """Have decode() end soon."""
        self._stops = True

    async def decode(self, rows: Sequence[MaskedRow], most: int, ms: float) -> list[MaskedTokens]:
        """Runner.decode_masked."""
        device, self._stops = self._device, False
        answers = [_MaskedAnswer(row, device.plan.n_vocab) for row in rows]
        sequences = [row.row.seq for row in rows]
        both = step([self._samplings[seq] for seq in sequences], masked=True)
        forward, sample = (self._adapted.lists(lists, sequences) for lists in both)
        end = time.perf_counter() + ms / 1000
        for i in range(most):
            at = [Row(row.row.seq, row.row.position + i) for row in rows]
            device.begin_masked(at, forward)
            masks = [await answer.mask() for answer in answers]
            if any(answer.stopped for answer in answers):
                break
            for row, allowed in zip(at, masks, strict=True):
                device.mask(allowed, row.seq)
            for answer, (token, changed) in zip(answers, await device.sample_masked_rows(at, sample), strict=True):
                answer.accept(token, changed)
            if self._stops or time.perf_counter() >= end or any(answer.error for answer in answers):
                break
        return [answer.tokens() for answer in answers]


class _MaskedAnswer:
    """The tokens of one sequence."""

    def __init__(self, row: MaskedRow, n_vocab: int) -> None:
        self._n_vocab, self._source, self._fetch_forced = n_vocab, row.source, row.fetch_forced
        self._forced = list(row.forced)
        self._ids, self._changed = list[int](), list[bool]()
        self.stopped = self._ended = False  # stopped: its next token cannot be sampled
        self.error, self._mask_s = "", 0.0

    async def mask(self) -> Any | None:
        """The mask of the next token; None: every token may come, or it has `stopped`."""
        if self._source is None:
            return None
        began = time.perf_counter()
        try:
            if not self._forced and not self._source.canSample():
                await self._fetch()
            if self.stopped:
                return None
            return only_mask(self._forced[0], self._n_vocab) if self._forced else await self._source.mask()
        except Exception as error:
            self.error, self.stopped = str(error), True
            return None
        finally:
            self._mask_s += time.perf_counter() - began

    async def _fetch(self) -> None:
        forced = await self._fetch_forced() if self._fetch_forced is not None else None
        self._forced = list(forced or [])
        self.stopped = self._ended = forced is None

    def accept(self, token: int, changed: bool) -> None:
        try:
            if self._source is not None and not self._source.accept(token):
                self.error = f"it rejects token {token}"
        except Exception as error:
            self.error = str(error)
        if self.error:
            return
        self._ids.append(token)
        if self._forced:
            self._forced.pop(0)
        else:
            self._changed.append(changed)

    def tokens(self) -> MaskedTokens:
        mask_ms = 1000 * self._mask_s
        return MaskedTokens(Batch(self._ids), self._changed, self._forced, self._ended, self.error, mask_ms)
