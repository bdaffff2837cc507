"""The models in this browser's cache: lists them, removes them, evicts the least recently used for a new one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

InUse = Callable[[], set[str]]  # URLs of models that are not evicted


async def cached_models() -> list[dict[str, Any]]:
    """[{url, size, bytes, complete, used, verified}] of the models that are cached, most recently used first.

    `size`: bytes of the file; `bytes`: bytes that are cached, maybe not all; `used`: Unix time in seconds, None if
    unknown; `verified`: whether the file's SHA-256 was compared with an expected one.
    """
    try:
        found = (await js.wispShards.listModels()).to_py()
    except JsException:  # no database: nothing is cached
        return []
    models = []
    for model in found:
        url, size, used = str(model["url"]), int(model["size"]), model.get("used")
        records = (await js.wispShards.listRecords(url)).to_py()
        cached = sum(int(length) for _, length in records)
        seconds = used / 1000 if used else None
        models.append(
            {
                "url": url,
                "size": size,
                "bytes": cached,
                "complete": cached >= size,
                "used": seconds,
                "verified": bool(model.get("sha256")),
            }
        )
    return sorted(models, key=lambda model: -(model["used"] or 0))


async def content_of(url: str, size: int) -> str | None:
    """A hash of a cached model's bytes; None while some of them are missing."""
    try:
        found = await js.wispShards.recordHashes(url)
    except JsException:
        return None
    hashes = sorted((int(offset), int(length), str(digest)) for offset, length, digest in found.to_py())
    whole = sum(length for _, length, _ in hashes) == size
    return hashlib.sha256(repr(hashes).encode()).hexdigest() if whole else None


async def forget(url: str) -> None:
    """Remove a model and all its records."""
    with suppress(JsException):
        await js.wispShards.deleteModel(url)


async def evict_models(needed: int, in_use: set[str], free: float | None = None) -> list[dict[str, Any]]:
    """Remove models, least recently used first, until `needed` bytes are free; return the removed ones.

    Never removes a model of `in_use`. Removes nothing if that cannot free enough. `free`: bytes that are free, where
    the caller knows better than the browser's estimate.
    """
    free = await js.wispShards.freeStorage() if free is None else free
    others = [model for model in reversed(await cached_models()) if model["url"] not in in_use and model["bytes"]]
    if free + sum(model["bytes"] for model in others) < needed:
        return []
    removed = []
    for model in others:
        if free >= needed:
            break
        await forget(model["url"])
        removed.append(model)
        free += model["bytes"]  # the browser's estimate lags
    return removed
