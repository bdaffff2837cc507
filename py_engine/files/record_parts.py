"""Stored parts of records that have not arrived as a whole: a later download of the record continues with them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine.files.records import Record


class RecordParts:
    """The parts of one file, [start, end) each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._parts: set[tuple[int, int]] = set()

    async def open(self) -> None:
        """Read which parts an earlier visit has stored."""
        self._parts = {(int(a), int(b)) for a, b in (await js.wispShards.listParts(self._url)).to_py()}

    async def fill(self, target: Any, record: Record, have: int) -> list[tuple[int, int]]:
        """Copy the stored parts of a record whose first `have` bytes are there; the [start, end) that are missing."""
        gaps, at = [], record.offset + have
        for start, end in self._of(record):
            if start < at or (part := await js.wispShards.readPart(self._url, start, end)) is None:
                continue
            target.copy(part, 0, start - record.offset, end - start)
            if at < start:
                gaps.append((at, start))
            at = end
        return [*gaps, (at, record.end)] if at < record.end else gaps

    async def keep(self, target: Any, at: int, start: int, end: int) -> None:
        """Store bytes [start, end) of the file, which are in a record at `at`."""
        with suppress(JsException):  # storage is full, or the worker that has the record ended
            await target.keep(self._url, at, start, end)
            self._parts.add((start, end))

    async def drop(self, record: Record) -> None:
        """Remove the parts of a record."""
        if parts := self._of(record):
            self._parts.difference_update(parts)
            with suppress(JsException):
                await js.wispShards.dropParts(self._url, record.offset, record.end)

    def _of(self, record: Record) -> list[tuple[int, int]]:
        return sorted(part for part in self._parts if record.offset <= part[0] and part[1] <= record.end)
