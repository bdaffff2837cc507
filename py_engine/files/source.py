"""Where a model's bytes come from: what any source offers, and a file on this computer (shards.py has the URLs)."""

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
from py_engine.files.records import Record

OnProgress = Callable[[str, int, int], None]  # (stage, loaded bytes, total bytes)
AHEAD = 4  # records under way while one is being used, so that five are alive at most


@dataclass(frozen=True)
class CachedRecords:
    """Records that can be read from a disk without being looked at on the way, for Upload.stream().

    `open`: number -> a promise of upload.js's CachedRecord, or of undefined; `checked`: whether a checksum precedes
    each record.
    """

    records: list[Record]
    open: Any
    checked: bool


class Source:
    """One .gguf file: `name`, `size` in bytes, `url` (None for a file on disk)."""

    name: str
    size: int
    url: str | None = None

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self.notices: list[str] = []  # what the person should know
        self._counts = dict.fromkeys(("records", "from_cache", "cached_bytes", "healed"), 0)

    @property
    def stats(self) -> dict[str, float]:
        """records, from_cache, cached_bytes, healed, downloaded_bytes, requests, read_ms, hash_ms: so far."""
        return {**self._counts, "downloaded_bytes": 0, "requests": 0, "read_ms": 0.0, "hash_ms": 0.0}

    async def read(self, offset: int, length: int) -> bytes:
        """A small piece of the file, such as its header; shorter only at the file's end."""
        raise NotImplementedError

    def kept(self, plan: list[Record]) -> CachedRecords:
        """Those of the plan that Upload.stream() can try to take; it tells which of them records() is to bring."""
        raise NotImplementedError

    def took(self, records: Collection[Record], ms: float) -> None:
        """Note that those of kept() were taken, and the milliseconds of reading, of several at a time."""
        raise NotImplementedError

    def records(self, plan: list[Record], taken: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        """(record, ArrayBuffer) for every record of the plan that is not taken yet, in its order.

        An ArrayBuffer is emptied when the next one is asked for: waiting for the garbage collector would let
        hundreds of megabytes pile up.
        """
        raise NotImplementedError

    def begin(self, plan: list[Record]) -> None:
        """Start fetching what records() will be asked for, where it can be kept until then. Errors come out there."""

    def close(self) -> None:
        """End what is under way."""


class FileSource(Source):
    """A File or Blob; read where it lies, never copied into the database."""

    def __init__(self, file: Any, on_progress: OnProgress) -> None:
        super().__init__(on_progress)
        self._file = file
        self.name = str(getattr(file, "name", "model.gguf"))
        self.size = int(file.size)

    async def read(self, offset: int, length: int) -> bytes:
        found: bytes = (await self._slice(offset, min(offset + length, self.size))).to_bytes()
        return found

    def kept(self, plan: list[Record]) -> CachedRecords:
        return CachedRecords(plan, js.wispShards.fileParts(self._file, spans(plan)), False)

    def took(self, records: Collection[Record], ms: float) -> None:
        self._on_progress("cache", sum(record.length for record in records), self.size)

    async def records(self, plan: list[Record], taken: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        self._counts["records"] = len(plan)
        rest = [record for record in plan if record not in taken]
        async for record, buffer in ahead(rest, AHEAD, lambda r: self._slice(r.offset, r.end)):
            yield record, buffer
            self._on_progress("cache", record.end, self.size)

    async def _slice(self, start: int, end: int) -> Any:
        try:
            return await js.wispShards.slice(self._file, start, end)
        except JsException:
            raise WispError(
                f"{self.name} cannot be read any more: it was moved, changed or its disk was removed. Open it again.",
                "network_error",
            ) from None


def spans(plan: list[Record]) -> Any:
    """(offset, length) of each record, for shards.js."""
    return to_js(memoryview(array("d", [number for r in plan for number in (r.offset, r.length)])))


async def ahead(
    plan: list[Record],
    most: int,
    obtain: Callable[[Record], Coroutine[Any, Any, Any]],
    on_end: Callable[[], None] = lambda: None,
) -> AsyncGenerator[tuple[Record, Any], None]:
    """(record, ArrayBuffer) in order, up to `most` of them obtained beforehand; a buffer is emptied when the next is
    asked for. `on_end` is told of an end before the last.
    """
    window: deque[tuple[Record, asyncio.Task[Any]]] = deque()
    waiting = iter(plan)
    finished = False
    try:
        while True:
            while len(window) <= most and (record := next(waiting, None)):
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
            on_end()
            for _, task in window:
                task.cancel()
            await asyncio.gather(*(task for _, task in window), return_exceptions=True)
