"""The interface of a model file's source, and the source for a local file. shards.py has the source for URLs."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from py_engine.errors import WispError
from py_engine.files.gguf_header import FIRST_READ
from py_engine.files.records import Record
from py_engine.files.verification import mismatch

OnProgress = Callable[[str, int, int], None]  # (stage, loaded bytes, total bytes)
READ_AHEAD = 4  # records read while one is in use: at most five are in memory


@dataclass(frozen=True)
class CachedRecords:
    """Records on a disk that Upload.stream() reads without passing them through Python.

    `open`: index -> a promise of upload.js's CachedRecord, or of undefined. `checked`: whether the records have
    checksums.
    """

    records: list[Record]
    open: Any
    checked: bool


class Source:
    """One .gguf file: `name`, `size` in bytes, `url` (None for a file on disk)."""

    name: str
    size: int
    url: str | None = None
    header_bytes: int = FIRST_READ  # to read first: the header, if its length is known

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.notices: list[str] = []  # messages for the user
        self.expected: str | None = None  # the SHA-256 that the caller expects of the file, in hex
        self._counts = dict.fromkeys(("records", "from_cache", "cached_bytes", "healed"), 0)

    @property
    def stats(self) -> dict[str, float]:
        """Counts so far: records, from_cache, cached_bytes, healed, downloaded_bytes, requests, read_ms, hash_ms.

        And `verified`: 1 if the file's SHA-256 was compared with an expected one.
        """
        return {**self._counts, "verified": 0, "downloaded_bytes": 0, "requests": 0, "read_ms": 0.0, "hash_ms": 0.0}

    @property
    def local(self) -> bool:
        """Whether all of the file is on this machine: nothing will be downloaded."""
        return True

    async def read(self, offset: int, length: int) -> bytes:
        """Read a small part of the file, such as its header. Shorter only at the file's end."""
        raise NotImplementedError

    def cached_records(self, plan: list[Record]) -> CachedRecords:
        """The records of the plan that Upload.stream() can read. records() yields those that it fails to read."""
        raise NotImplementedError

    def mark_uploaded(self, records: Collection[Record], read_ms: float) -> None:
        """Count records of cached_records() as uploaded. `read_ms`: time of reading, summed over parallel reads."""
        raise NotImplementedError

    def records(self, plan: list[Record], uploaded: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        """(record, ArrayBuffer) of every record of the plan that is not uploaded yet, in order.

        An ArrayBuffer is freed when the next one is requested. The garbage collector would free it too late: hundreds
        of megabytes would pile up.
        """
        raise NotImplementedError

    async def content(self) -> str | None:
        """A text that differs where the file's bytes do; None: not known. After the load of its records."""
        return None

    def prefetch(self, plan: list[Record]) -> None:
        """Start to download the first records, where that helps. records() reports the errors."""

    def close(self) -> None:
        """Cancel all downloads and reads."""


class FileSource(Source):
    """A File or Blob, read in place and never copied to the cache."""

    def __init__(self, file: Any, on_progress: OnProgress) -> None:
        super().__init__(on_progress)
        self._file = file
        self.name = str(getattr(file, "name", "model.gguf"))
        self.size = int(file.size)

    async def read(self, offset: int, length: int) -> bytes:
        found: bytes = (await self._slice(offset, min(offset + length, self.size))).to_bytes()
        return found

    def cached_records(self, plan: list[Record]) -> CachedRecords:
        return CachedRecords(plan, js.wispShards.fileParts(self._file, spans(plan)), False)

    def mark_uploaded(self, records: Collection[Record], read_ms: float) -> None:
        self._on_progress("cache", sum(record.length for record in records), self.size)

    async def records(self, plan: list[Record], uploaded: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        self._counts["records"] = len(plan)
        rest = [record for record in plan if record not in uploaded]
        async for record, buffer in read_ahead(rest, READ_AHEAD, lambda r: self._slice(r.offset, r.end)):
            yield record, buffer
            self._on_progress("cache", record.end, self.size)
        if self.expected is not None:
            await self._verify(self.expected)

    async def _verify(self, expected: str) -> None:
        found = str(await js.wispShards.sha256Of(to_js([self._file]), js.AbortController.new().signal))
        if found != expected:
            raise mismatch(self.name, found, expected, "the load request")

    async def content(self) -> str | None:
        modified = getattr(self._file, "lastModified", None)
        return f"{self.name} {self.size} {modified}" if modified else None  # reading all of a file would take too long

    async def _slice(self, start: int, end: int) -> Any:
        try:
            return await js.wispShards.slice(self._file, start, end)
        except JsException:
            raise WispError(
                f"{self.name} can no longer be read: the file was moved or changed, or its disk was removed. "
                "Open it again.",
                "network_error",
            ) from None


def spans(plan: list[Record]) -> Any:
    """(offset, length) of each record, for shards.js."""
    return to_js(memoryview(array("d", [number for r in plan for number in (r.offset, r.length)])))


async def read_ahead(
    plan: list[Record],
    limit: int,
    obtain: Callable[[Record], Coroutine[Any, Any, Any]],
    on_abort: Callable[[], None] = lambda: None,
) -> AsyncGenerator[tuple[Record, Any], None]:
    """(record, ArrayBuffer) in order, with up to `limit` more obtained in advance.

    A buffer is freed when the next one is requested. `on_abort` is called if the iteration ends before the last record.
    """
    window: deque[tuple[Record, asyncio.Task[Any]]] = deque()
    waiting = iter(plan)
    finished = False
    try:
        while True:
            while len(window) <= limit and (record := next(waiting, None)):
                window.append((record, asyncio.ensure_future(obtain(record))))
            if not window:
                break
            record, task = window.popleft()
            buffer = await task
            yield record, buffer
            js.wispShards.release(buffer)
            del buffer, task
        finished = True
    finally:
        if not finished:
            on_abort()
            for _, task in window:
                task.cancel()
            await asyncio.gather(*(task for _, task in window), return_exceptions=True)
