"""The source for a URL, with a cache of hashed records in IndexedDB.

Records stay JS ArrayBuffers on their way from the network or the database to the GPU; only the header enters Python.
A record that arrives is used at once. It is stored in the background (background_store.js): a load does not wait for
the disk.
A record is hashed (SHA-256) when it arrives. Each time it is read from the cache, the GPU or the CPU compares its
stored checksum. Earlier versions stored records without one; these are hashed once more. Damaged or lost records are
downloaded again. A fully cached model loads without a request.
Of several engines that need the same file, one downloads it; the others wait, and read what it has stored.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import aclosing
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.addresses import host_of, name_of
from py_engine.files.download import FIRST_BYTES, WORKER_LOST, FileChanged, Keep, Remote
from py_engine.files.download_turn import DownloadTurn, header_of_another
from py_engine.files.model_cache import InUse, content_of, forget
from py_engine.files.prefetch import Prefetch, quiet
from py_engine.files.record_parts import RecordParts
from py_engine.files.records import Record
from py_engine.files.source import CachedRecords, FileSource, OnProgress, Source, read_ahead, spans
from py_engine.files.storing import Storing
from py_engine.files.verification import Verification

DOWNLOAD_AHEAD = 8  # records that are downloaded ahead of the one in use, or before the first upload
WORKERS_FROM = 64 << 20  # bytes of a file that is downloaded in pages' workers


class UrlSource(Source):
    """A file on a server, cached in IndexedDB. Created by `open_source`."""

    def __init__(self, url: str, on_progress: OnProgress, hashes: dict[int, str], in_use: InUse = set) -> None:
        super().__init__(on_progress)
        self.url = url
        self.name = name_of(url)
        self._hashes = hashes  # offset -> SHA-256, if it is known in advance
        self._cached: set[tuple[int, int]] = set()  # (offset, length) of the cached records
        self._parts = RecordParts(url)
        self._damaged: set[int] = set()  # offsets of cached records that were damaged
        self._prefix: Any = None  # an ArrayBuffer with the file's first bytes
        self._header: Any = None  # equals _prefix if that is a whole cached record, else None
        self._remote = Remote(url, self._on_bytes)
        self._loaded = 0
        self._times = {"read_ms": 0.0, "hash_ms": 0.0}  # of cached records, summed over parallel reads
        self._prefetch = Prefetch()
        self._prepared = False
        self._invalid = False  # the cached records must be removed
        self._verification = Verification(url, self.name)
        self._storing = Storing(url, self.name, self.notices, in_use, self._not_all_stored)
        self._turn = DownloadTurn(url, self._on_stored, self.stored)

    probe_bytes = FIRST_BYTES  # of the first request

    async def open(self) -> None:
        """Get the file's size from the cache, else from the server."""
        try:
            await header_of_another(str(self.url))
            model = await js.wispShards.getModel(self.url)
            if model is not None:
                await self._look()
        except JsException as error:  # no IndexedDB: work without a cache
            self._storing.give_up(error)
            model = None
        if model is not None:
            self._remote.size, self._remote.etag = int(model.size), str(model.etag)
            self._remote.ranged = bool(model.ranged)
            self.header_bytes = next((length for offset, length in self._cached if offset == 0), self.header_bytes)
            self._verification.sha256 = str(getattr(model, "sha256", None) or "")
        else:
            self._prefix = await self._remote.probe(self.probe_bytes)
        assert self._remote.size is not None
        self.size = self._remote.size
        if self._in_workers and not self._cached:
            js.wispShards.needWorkers()  # they start while the header is read

    async def _look(self) -> None:
        """Find the records and parts of records that are stored."""
        self._cached = {(int(a), int(n)) for a, n in (await js.wispShards.listRecords(self.url)).to_py()}
        await self._parts.open()

    @property
    def _in_workers(self) -> bool:
        """Whether pages' workers are to download it."""
        return self.size >= WORKERS_FROM

    @property
    def stats(self) -> dict[str, float]:
        remote = self._remote
        verified = int(bool(self._verification.sha256 or self._hashes))
        return {
            **self._counts,
            "verified": verified,
            "downloaded_bytes": remote.downloaded,
            "requests": remote.requests,
            **self._times,
        }

    @property
    def local(self) -> bool:
        return sum(length for _, length in self._cached) >= self.size

    # -- the header

    async def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        prefix: Any = self._prefix if self._prefix is not None else await self._cached_header()
        have = prefix.byteLength if prefix is not None else 0
        if end > have and (rest := await self._read_cached(max(offset, have), end)) is not None:
            return (prefix.slice(offset, have).to_bytes() if offset < have else b"") + rest
        if end > have:
            longer = js.wispShards.newRecord(end, False)
            if have:
                longer.copy(prefix, 0, 0, have)
            await self._fetch(longer, have, have, end)
            prefix = self._prefix = longer.buffer
        found: bytes = prefix.slice(offset, end).to_bytes()
        return found

    async def _cached_header(self) -> Any:
        """Read the whole cached record with the header, because the hash covers all of it. None if it is not cached."""
        for length in [n for start, n in self._cached if start == 0]:
            self._prefix = self._header = await self._from_cache(Record(0, 0, length))
            if self._prefix is not None:
                break
            self._cached.discard((0, length))
            self._damaged.add(0)
        return self._prefix

    async def _read_cached(self, start: int, end: int) -> bytes | None:
        """Read bytes [start, end) from the cache, unchecked; None unless all of them are cached.

        A load reads small tensors after the header this way, before it uploads weights.
        """
        found = b""
        while start < end:
            offset, length = next(((a, n) for a, n in self._cached if a <= start < a + n), (0, 0))
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

    def prefetch(self, plan: list[Record]) -> None:
        """Download the first DOWNLOAD_AHEAD records that are not cached. records() takes them from memory."""

        async def missing() -> list[Record]:
            await self._prepare(plan)
            return [r for r in plan if (r.offset, r.length) not in self._cached][:DOWNLOAD_AHEAD]

        if self._storing.possible and not self._prefetch.started:
            self._loaded = 0  # the first request's bytes are counted with their records
            self._prefetch.start(missing, self._obtain)

    async def _prepare(self, plan: list[Record]) -> None:
        """Wait for the turn to download, note it, and drop records that another version of Wisp cut differently."""
        planned = {(record.offset, record.length) for record in plan}
        if self._storing.possible and planned - self._cached and await self._turn.wait():
            await self._look()
        self._storing.missing = sum(length for _, length in planned - self._cached)
        remote = self._remote
        await self._storing.begin(lambda: js.wispShards.noteModel(self.url, remote.size, remote.etag, remote.ranged))
        if not self._storing.possible:
            self._turn.end()
        for offset, length in self._cached - planned:
            await js.wispShards.deleteRecord(self.url, offset, length)
        self._cached &= planned
        if self._in_workers and planned - self._cached:
            await js.wispShards.awaitWorkers()
        self._prepared = True

    def cached_records(self, plan: list[Record]) -> CachedRecords:
        found = [
            record
            for record in plan
            if (record.offset, record.length) in self._cached
            and record not in self._prefetch
            and not (record.offset == 0 and self._header)  # read and checked already
        ]
        hashes = to_js([self._hashes.get(record.offset) for record in found])
        return CachedRecords(found, js.wispShards.cachedRecords(self.url, spans(found), hashes), True)

    async def content(self) -> str | None:
        return await content_of(str(self.url), self.size)

    def mark_uploaded(self, records: Collection[Record], read_ms: float) -> None:
        self._times["read_ms"] += read_ms
        for record in records:
            self._count_cached(record)

    async def records(self, plan: list[Record], uploaded: Collection[Record] = ()) -> AsyncIterator[tuple[Record, Any]]:
        self._counts["records"] = len(plan)
        rest = [record for record in plan if record not in uploaded]
        if self._prefetch.started:
            await self._prefetch.stop_choosing()
        else:
            self._loaded, self._prepared = sum(record.length for record in uploaded), False
        if not self._prepared:
            await self._prepare(plan)
        arriving = self._remote.requests > 0 or any((r.offset, r.length) not in self._cached for r in plan)
        verifying = quiet(asyncio.ensure_future(self._verify(plan, ask_host=arriving)))
        try:
            async with aclosing(read_ahead(rest, DOWNLOAD_AHEAD, self._obtain, self.close)) as records:
                async for record, buffer in records:
                    yield record, buffer
            await verifying
            await self._storing.wait_for_rest()
        finally:
            verifying.cancel()
            self._prefix = self._header = None
            if self._invalid:
                await forget(str(self.url))  # again: records were stored after the first call
            self._turn.end()

    async def adopt(self, plan: list[Record], other: str) -> None:
        """Take the records whose hashes are known from another cached file that has them."""
        wanted = [[r.offset, r.length, self._hashes[r.offset]] for r in plan if r.offset in self._hashes]
        found = await js.wispShards.adoptRecords(other, self.url, to_js(wanted))
        self._cached |= {(int(offset), int(length)) for offset, length in found.to_py()}

    async def fill(self, plan: list[Record]) -> None:
        """Store every record of the plan that is not cached.

        WispError quota_exceeded, storage_failed: what is stored stays.
        """
        cached = [record for record in plan if (record.offset, record.length) in self._cached]
        records: Any = self.records(plan, cached)
        async with aclosing(records):
            async for _ in records:
                if not self._storing.possible:
                    break
        await self.stored()
        if not self._storing.possible:
            raise self._storing.error()

    async def _verify(self, plan: list[Record], *, ask_host: bool) -> None:
        """Compare the file's SHA-256 with the expected one, if there is one. WispError hash_mismatch."""
        if not self._storing.possible:
            return
        linked = self._remote.linked if ask_host and not self._hashes else None  # known hashes are compared anyway
        try:
            await self._verification.run(plan, self.expected, linked)
        except WispError:
            self._invalid = True
            await forget(str(self.url))
            raise

    async def _obtain(self, record: Record) -> Any:
        """A record's ArrayBuffer from the cache or the server, checked and cached."""
        if (buffer := await self._prefetch.take(record)) is not None:
            return buffer
        if (record.offset, record.length) in self._cached:
            header = self._header if record.offset == 0 else None
            if header is not None and header.byteLength == record.length:  # read and checked already
                buffer = header.slice(0)
            else:
                buffer = await self._from_cache(record)
            if buffer is not None:
                self._count_cached(record)
                return buffer
            self._damaged.add(record.offset)
        arrived = await self._download(record)
        if arrived.entry.sha256 != self._hashes.get(record.offset, arrived.entry.sha256):
            self._prefix = None
            await self._parts.drop(record)
            arrived = await self._download(record)  # the transfer may have damaged it
            if arrived.entry.sha256 != self._hashes[record.offset]:
                raise await self._changed()
        await self._store(record, arrived.entry)
        if record.offset in self._damaged:
            self._counts["healed"] += 1
        return arrived.buffer

    def _count_cached(self, record: Record) -> None:
        if not self._prefetch.has_begun(record):
            self._counts["from_cache"] += 1
            self._counts["cached_bytes"] += record.length
            self._loaded += record.length
            self._on_progress("cache", self._loaded, self.size)

    async def _from_cache(self, record: Record) -> Any:
        """A record's ArrayBuffer from the cache; None if it is missing or damaged."""
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
        """Download a record, except for bytes that are in `_prefix` already: {buffer, entry} (incoming.js)."""
        while True:
            target = js.wispShards.newRecord(record.length, self._in_workers, not self._remote.ranged)
            try:
                have = min(self._prefix.byteLength if self._prefix is not None else 0, record.end) - record.offset
                if have > 0:
                    target.copy(self._prefix, record.offset, 0, have)
                    self._on_bytes(have)
                    if have < record.length and self._storing.possible and self._remote.ranged:
                        await self._parts.keep(target, 0, record.offset, record.offset + have)
                await self._complete(target, record, max(have, 0))
                self._on_progress("hash", min(self._loaded, self.size), self.size)
                return await target.finish()
            except JsException as error:
                if error.name != WORKER_LOST:
                    raise
            finally:
                target.discard()

    async def _complete(self, target: Any, record: Record, have: int) -> None:
        """Get the rest of a record from stored parts and from the server."""
        gaps = await self._parts.fill(target, record, have)
        stored = record.length - have - sum(end - start for start, end in gaps)
        if stored:
            self._counts["cached_bytes"] += stored
            self._on_bytes(stored)
        keep = self._parts.keep if self._storing.possible else None
        for start, end in gaps:
            await self._fetch(target, start - record.offset, start, end, keep)

    async def _fetch(self, target: Any, at: int, start: int, end: int, keep: Keep | None = None) -> None:
        try:
            await self._remote.fetch(target, at, start, end, keep)
        except FileChanged:
            raise await self._changed() from None

    async def _store(self, record: Record, entry: Any) -> None:
        """Cache a record. Returns when there is room for another one."""
        if self._storing.possible:
            self._cached.add((record.offset, record.length))
            await self._storing.put(record.offset, entry)
            await self._parts.drop(record)

    async def stored(self) -> None:
        """Wait until the records that have arrived are stored, or given up."""
        await self._storing.wait()

    async def _changed(self) -> WispError:
        self._invalid = True
        await forget(str(self.url))
        return WispError(
            f"{self.name} changed on the server {host_of(str(self.url))} since the download began, or "
            "it arrives damaged. Load it again: it will be downloaded from the start.",
            "network_error",
            SERVER_ERROR,
        )

    def _not_all_stored(self) -> None:
        self._verification.stop()
        self._turn.end()

    def _on_bytes(self, n_bytes: int) -> None:
        self._loaded += n_bytes
        self._on_stored(self._loaded)

    def _on_stored(self, n_bytes: int) -> None:
        size = self._remote.size or 0
        self._on_progress("download", min(n_bytes, size), size)

    def close(self) -> None:
        self._verification.stop()
        self._prefetch.close()
        self._remote.close()
        self._turn.end()


async def open_source(
    model: Any, on_progress: OnProgress, hashes: dict[int, str] | None = None, in_use: InUse = set
) -> Source:
    """Open the source of a model given as an absolute URL or as a JS File or Blob.

    `hashes`: offset -> SHA-256 of records, if known; `in_use`: models that must not be evicted. Raises WispError
    http_error, network_error; invalid_value if the URL is none.
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
