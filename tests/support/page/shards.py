"""Loads through the download and cache layer, and lists the cache's contents."""

import asyncio
import hashlib
from typing import Any

import js

from py_engine.errors import WispError
from py_engine.files import link, shards
from py_engine.files.gguf_header import read_header
from py_engine.files.model_cache import cached_models, forget
from py_engine.files.records import plan_records

RECORD_BYTES = 1 << 18


async def load(
    url: Any,
    stop_after: int | None = None,
    hashes: dict[str, str] | None = None,
    begin_until: int | None = None,
    pause_s: float = 0.0,
    wait: bool = True,
    expected: str | None = None,
) -> dict[str, Any]:
    """Load a file record by record; return its progress, SHA-256, statistics and notices, or the error.

    `stop_after`: end after that many records. `hashes`: SHA-256 of a record by its offset. `begin_until`: begin before
    the first record is read, and wait for so many downloaded bytes, then for `pause_s`. `wait`: until all is stored.
    `expected`: the SHA-256 that the caller expects of the file.
    """
    out: dict[str, Any] = {"stages": [], "records": 0}
    source: Any = None

    def progress(stage: str, loaded: int, total: int) -> None:
        out["stages"].append([stage, loaded, total])

    try:
        by_offset = {int(offset): digest for offset, digest in hashes.items()} if hashes else None
        source = await shards.open_source(url, progress, by_offset)
        source.expected = expected
        header = await read_header(source.read, source.size)
        plan = plan_records(header, source.size, RECORD_BYTES)
        if begin_until is not None:
            source.prefetch(plan)
            while source.stats["downloaded_bytes"] < begin_until:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.sleep(pause_s)
            out["early"] = source.stats["downloaded_bytes"]
        digest, position = hashlib.sha256(), 0
        async for record, buffer in source.records(plan):
            assert record.offset == position
            assert buffer.byteLength == record.length
            position = record.end
            digest.update(buffer.to_bytes())
            out["records"] += 1
            if out["records"] == stop_after:
                break
        out["sha256"] = digest.hexdigest() if position == source.size else None
    except WispError as error:
        out["error"] = error.as_dict()["error"]
    if wait and isinstance(source, shards.UrlSource):
        await source.stored()
    if source is not None:
        out["stats"], out["notices"] = source.stats, source.notices
    return out


async def cancelled_load(url: str) -> str:
    """Cancel a load after its first record; return how it ended."""
    task = asyncio.ensure_future(load(url))
    while not await js.wispShards.listRecords(url):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    return "finished"


async def load_file_of_this_computer(url: str) -> dict[str, Any]:
    """Load the same bytes as a File; also return the names of the sources of a two-file set."""
    file = js.File.new([await (await js.fetch(url)).arrayBuffer()], "mine.gguf")
    out = await load(file)
    out["sources"] = [(await shards.open_source(file, lambda *_: None)).name for _ in range(2)]
    return out


async def cached(urls: list[str]) -> list[dict[str, Any]]:
    """Those of the given models that are cached, the most recently used first."""
    return [model for model in await cached_models() if model["url"] in urls]


async def forget_all() -> None:
    """Empty the cache."""
    for model in await cached_models():
        await forget(model["url"])


async def interrupted(url: str, after: int, part: int) -> dict[str, Any]:
    """Cancel a download after so many bytes, then load the file: the bytes that each has downloaded, and the SHA-256.

    Range requests have `part` bytes, and the file is one record beside its header's.
    """
    sizes = link.SMALLEST, link.FIRST_PART, link.REQUEST_S
    link.SMALLEST = link.FIRST_PART = part
    link.REQUEST_S = 0.001
    try:
        source: Any = await shards.open_source(url, lambda *_: None)
        header = await read_header(source.read, source.size)
        filling = asyncio.ensure_future(source.fill(plan_records(header, source.size)))
        while source.stats["downloaded_bytes"] < after:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        filling.cancel()
        await asyncio.wait([filling])
        source.close()
        first = source.stats["downloaded_bytes"]
        rest: Any = await shards.open_source(url, lambda *_: None)
        digest = hashlib.sha256()
        header = await read_header(rest.read, rest.size, rest.header_bytes)
        async for _, buffer in rest.records(plan_records(header, rest.size)):
            digest.update(buffer.to_bytes())
        await rest.stored()
        rest.close()
        stored = (await js.wispShards.listParts(url)).to_py()
        return {
            "first": first, "second": rest.stats["downloaded_bytes"], "sha256": digest.hexdigest(), "parts": stored,
        }  # fmt: skip
    finally:
        link.SMALLEST, link.FIRST_PART, link.REQUEST_S = sizes
