"""Where a model's bytes come from: a URL behind a cache of hashed records in IndexedDB.

Records are JS ArrayBuffers from the network or the database to the GPU; only the header's bytes enter Python.
A record has its SHA-256 when it arrives. In the cache it is checked each time it is read, on the GPU or here, against
the checksum kept with it (one that an earlier version kept has none: against its SHA-256, once); one that is damaged or
lost is fetched again. A model that is wholly in the cache is loaded without a single request.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote, urlsplit

import js
from pyodide.ffi import JsException, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.download import FileChanged, Remote
from py_engine.files.model_cache import InUse, forget, reserve_sequences
from py_engine.files.records import Record
from py_engine.files.source import AHEAD, CachedRecords, FileSource, OnProgress, Source, ahead, spans

AHEAD_EARLY = 2  # records under way while none is used yet


class UrlSource(Source):
    """A file on a server, kept in IndexedDB. Made by `open_source`."""

    def __init__(self, url: str, on_progress: OnProgress, hashes: dict[int, str], in_use: InUse = set) -> None:
        super().__init__(on_progress)
        self._in_use = in_use
        self.url = url
        self.name = unquote(urlsplit(url).path).rsplit("/", 1)[-1] or url
        self._hashes = hashes  # offset -> SHA-256, where it is known beforehand
        self._kept: set[tuple[int, int]] = set()  # (offset, length) of the records in the database
        self._damaged: set[int] = set()  # offsets of records that were in the database and not right
        self._prefix: Any = None  # an ArrayBuffer with the file's first bytes
        self._header: Any = None  # the same, where it is a record of the database
        self._remote = Remote(url, self._on_bytes)
        self._loaded = 0
        self._times = {"read_ms": 0.0, "hash_ms": 0.0}  # of the database's records, several at a time
        self._early: dict[int, asyncio.Task[Any]] = {}  # offset -> a record under way before it is asked for
        self._fetched: set[int] = set()  # offsets of those that were fetched in this way
        self._fetching: asyncio.Task[None] | None = None
        self._prepared = False
        self._spoilt = False  # what the database holds must go
        self._stores = True  # whether there is a database at all

    async def open(self) -> None:
        """Learn the size: from the cache, else from the server."""
        try:
            model = await js.wispShards.getModel(self.url)
            if model is not None:
                self._kept = {(int(a), int(n)) for a, n in (await js.wispShards.listRecords(self.url)).to_py()}
        except JsException:  # no IndexedDB here: work without a cache
            self._stores, model = False, None
        if model is not None:
            self._remote.size, self._remote.etag = int(model.size), str(model.etag)
            self._remote.ranged = bool(model.ranged)
            js.wispShards.touchModel(self.url)
        else:
            self._prefix = await self._remote.probe()
            await self._remember()
        assert self._remote.size is not None
        self.size = self._remote.size

    @property
    def stats(self) -> dict[str, float]:
        remote = self._remote
        return {**self._counts, "downloaded_bytes": remote.downloaded, "requests": remote.requests, **self._times}

    async def _remember(self) -> None:
        if self._stores:
            try:
                await js.wispShards.putModel(self.url, self._remote.size, self._remote.etag, self._remote.ranged)
            except JsException as error:
                raise self._no_room(error) from None

    # -- the header

    async def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        prefix: Any = self._prefix if self._prefix is not None else await self._kept_header()
        have = prefix.byteLength if prefix is not None else 0
        if end > have and (rest := await self._parts(max(offset, have), end)) is not None:
            return (prefix.slice(offset, have).to_bytes() if offset < have else b"") + rest
        if end > have:
            longer = js.wispShards.allocate(end)
            if have:
                js.wispShards.copy(prefix, 0, longer, 0, have)
            await self._fetch(longer, have, have, end)
            prefix = self._prefix = longer
        found: bytes = prefix.slice(offset, end).to_bytes()
        return found

    async def _kept_header(self) -> Any:
        """The record that holds the header, if the database has it; read whole, so that its hash can be checked."""
        for length in [n for start, n in self._kept if start == 0]:
            self._prefix = self._header = await self._from_cache(Record(0, 0, length))
            if self._prefix is not None:
                break
            self._kept.discard((0, length))
            self._damaged.add(0)
        return self._prefix

    async def _parts(self, start: int, end: int) -> bytes | None:
        """Bytes [start, end) out of the database, unchecked: what the header's reader reads beyond the header.

        None unless all of them are there.
        """
        found = b""
        while start < end:
            offset, length = next(((a, n) for a, n in self._kept if a <= start < a + n), (0, 0))
            stop = min(end, offset + length)
            part = (
                await js.wispShards.getPart(self.url, offset, length, start - offset, stop - offset) if length else None
            )
            if part is None or part.byteLength != stop - start:
                return None
            found += part.to_bytes()
            start = stop
        return found

    # -- the records

    def begin(self, plan: list[Record]) -> None:
        if self._stores and self._remote.ranged and self._fetching is None:
            self._fetching = asyncio.ensure_future(self._fetch_early(plan))
            self._fetching.add_done_callback(_noted)

    async def _fetch_early(self, plan: list[Record]) -> None:
        """Bring records into the database, until there is an error or records() takes over."""
        await self._prepare(plan)
        for record in [r for r in plan if (r.offset, r.length) not in self._kept]:
            while len(self._early) > AHEAD_EARLY:
                await asyncio.wait(self._early.values(), return_when=asyncio.FIRST_COMPLETED)
                for offset, task in [entry for entry in self._early.items() if entry[1].done()]:
                    js.wispShards.release(task.result())
                    del self._early[offset]
            self._fetched.add(record.offset)
            self._early[record.offset] = asyncio.ensure_future(self._obtain(record))
            self._early[record.offset].add_done_callback(_noted)

    async def _prepare(self, plan: list[Record]) -> None:
        """Look whether there is room, and drop what was cut otherwise by another version."""
        wanted = {(record.offset, record.length) for record in plan}
        await self._check_room(sum(length for _, length in wanted - self._kept))
        for offset, length in self._kept - wanted:
            await js.wispShards.deleteRecord(self.url, offset, length)
        self._kept &= wanted
        self._prepared = True

    def kept(self, plan: list[Record]) -> CachedRecords:
        found = [
            record
            for record in plan
            if (record.offset, record.length) in self._kept
            and record.offset not in self._early
            and not (record.offset == 0 and self._header)  # read, and found to be right, before
        ]
        hashes = to_js([self._hashes.get(record.offset) for record in found])
        return CachedRecords(found, js.wispShards.keptRecords(self.url, spans(found), hashes), True)

    def took(self, records: Collection[Record], ms: float) -> None:
        self._times["read_ms"] += ms
        for record in records:
            self._from_disk(record)

    async def records(self, plan: list[Record], taken: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        self._counts["records"] = len(plan)
        rest = [record for record in plan if record not in taken]
        if self._fetching is None:
            self._loaded, self._prepared = sum(record.length for record in taken), False
        else:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
            if not self._fetching.cancelled() and (error := self._fetching.exception()):
                raise error
        if not self._prepared:
            await self._prepare(plan)
        try:
            async with aclosing(ahead(rest, AHEAD if self._remote.ranged else 0, self._obtain, self.close)) as records:
                async for record, buffer in records:
                    yield record, buffer
        finally:
            self._prefix = self._header = None
            if self._spoilt:
                await forget(str(self.url))  # once more: other records were on their way into the database

    async def _obtain(self, record: Record) -> Any:
        """A record's ArrayBuffer, from the cache or the server; right by its hash, and kept."""
        task = self._early.get(record.offset)
        if task is not None and task is not asyncio.current_task():
            buffer = await task
            del self._early[record.offset]
            return buffer
        if (record.offset, record.length) in self._kept:
            header = self._header if record.offset == 0 else None
            if header is not None and header.byteLength == record.length:  # read, and found to be right, before
                buffer = header.slice(0)
            else:
                buffer = await self._from_cache(record)
            if buffer is not None:
                self._from_disk(record)
                return buffer
            self._damaged.add(record.offset)
        buffer = await self._download(record)
        self._on_progress("hash", self._loaded, self.size)
        digest = await js.wispShards.sha256(buffer)
        if digest != self._hashes.get(record.offset, digest):  # once more: the way here may have damaged it
            self._prefix = None
            buffer = await self._download(record)
            digest = await js.wispShards.sha256(buffer)
            if digest != self._hashes[record.offset]:
                raise await self._changed()
        await self._keep(record, buffer, digest)
        if record.offset in self._damaged:
            self._counts["healed"] += 1
        return buffer

    def _from_disk(self, record: Record) -> None:
        if record.offset not in self._fetched:
            self._counts["from_cache"] += 1
            self._counts["cached_bytes"] += record.length
            self._loaded += record.length
            self._on_progress("cache", self._loaded, self.size)

    async def _from_cache(self, record: Record) -> Any:
        """A record's ArrayBuffer from the database; None when it is missing or not what its hash says."""
        try:
            entry = await js.wispShards.getRecord(self.url, record.offset, record.length)
        except JsException:
            entry = None
        if entry is not None:
            self._times["read_ms"] += entry.read
            self._times["hash_ms"] += entry.hash
            if entry.digest == self._hashes.get(record.offset, str(entry.sha256)):
                return entry.buffer
            self._hashes.setdefault(record.offset, str(entry.sha256))
        return None

    async def _download(self, record: Record) -> Any:
        """A record from the server; what the header's reader fetched already is not fetched again."""
        buffer = js.wispShards.allocate(record.length)
        have = min(self._prefix.byteLength if self._prefix is not None else 0, record.end) - record.offset
        if have > 0:
            js.wispShards.copy(self._prefix, record.offset, buffer, 0, have)
            self._on_bytes(have)
        have = max(have, 0)
        await self._fetch(buffer, have, record.offset + have, record.end)
        return buffer

    async def _fetch(self, buffer: Any, at: int, start: int, end: int) -> None:
        try:
            await self._remote.fetch(buffer, at, start, end)
        except FileChanged:
            raise await self._changed() from None

    async def _keep(self, record: Record, buffer: Any, digest: str) -> None:
        if not self._stores:
            return
        try:
            await self._put(record, buffer, digest)
        except JsException as error:
            self._spoilt = True
            raise self._no_room(error) from None
        self._kept.add((record.offset, record.length))

    async def _put(self, record: Record, buffer: Any, digest: str) -> None:
        try:
            await js.wispShards.putRecord(self.url, record.offset, buffer, digest)
        except JsException as error:
            if error.name != "QuotaExceededError":
                raise
            removed = await reserve_sequences(self.size, {str(self.url), *self._in_use()})
            if not removed:
                raise
            self._tell(removed)
            await js.wispShards.putRecord(self.url, record.offset, buffer, digest)

    def _tell(self, removed: list[dict[str, Any]]) -> None:
        for model in removed:
            name = unquote(urlsplit(model["url"]).path).rsplit("/", 1)[-1]
            self.notices.append(
                f"{name} ({model['bytes'] / 1e6:.0f} MB), which was not used for the longest time, was removed from "
                f"this browser's storage to make room for {self.name}."
            )

    async def _check_room(self, needed: int) -> None:
        """Refuse a download that the database cannot hold before it starts."""
        if not self._stores or not needed or needed <= await js.wispShards.freeStorage():
            return
        removed = await reserve_sequences(needed, {str(self.url), *self._in_use()})
        self._tell(removed)
        if not removed:
            free = await js.wispShards.freeStorage()
            if not self._kept:
                await forget(str(self.url))
            raise self._quota_exceeded(f"it needs {needed / 1e6:.0f} MB more and {max(free, 0) / 1e6:.0f} MB are left")

    def _no_room(self, error: JsException) -> WispError:
        if error.name == "QuotaExceededError":
            return self._quota_exceeded("its storage for this site is full")
        return WispError(f"The browser could not store the model: {error}", "internal_error", SERVER_ERROR)

    def _quota_exceeded(self, why: str) -> WispError:
        return WispError(
            f"The browser cannot keep {self.name}: {why}. Free disk space or remove other models from the cache, or "
            "download the file yourself and open it from this computer, which stores nothing.",
            "quota_exceeded",
        )

    async def _changed(self) -> WispError:
        self._spoilt = True
        await forget(str(self.url))
        return WispError(
            f"{self.name} changed on the server {urlsplit(str(self.url)).netloc} since its first part was fetched, or "
            "it arrives damaged. Load it again: it will be fetched from the start.",
            "network_error",
            SERVER_ERROR,
        )

    def _on_bytes(self, n_bytes: int) -> None:
        self._loaded += n_bytes
        size = self._remote.size or 0
        self._on_progress("download", min(self._loaded, size), size)

    def close(self) -> None:
        for task in (self._fetching, *self._early.values()):
            if task is not None:
                task.cancel()
        self._remote.close()


def _noted(task: asyncio.Task[Any]) -> None:
    """Whoever asks for the records hears of its error; where nobody does any more, it is no news."""
    if not task.cancelled():
        task.exception()


async def open_source(
    model: Any, on_progress: OnProgress, hashes: dict[int, str] | None = None, in_use: InUse = set
) -> Source:
    """The source of a model given as a URL (absolute) or as a JS File or Blob.

    `hashes`: offset -> SHA-256 of records known beforehand; `in_use`: models that do not make room for it. Raises
    WispError http_error, network_error, quota_exceeded.
    """
    if not isinstance(model, str):
        return FileSource(model, on_progress)
    source = UrlSource(model, on_progress, dict(hashes or {}), in_use)
    try:
        await source.open()
    except BaseException:
        source.close()
        raise
    return source


async def open_sources(models: Any, on_progress: OnProgress) -> list[Source]:
    """One source per part of a split model, in order. `models`: one model or a list of them, as for open_source."""
    parts = list(models) if isinstance(models, list | tuple) or js.Array.isArray(models) else [models]
    return [await open_source(part, on_progress) for part in parts]
