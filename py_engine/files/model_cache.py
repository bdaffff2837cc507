"""The models in this browser's cache: lists them, removes them, evicts the least recently used for a new one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

NEXT = "#next"  # ends the key of a newer version on its way (updates.py); requests do not carry it
InUse = Callable[[], set[str]]  # URLs of models that are not evicted


async def cached_models() -> list[dict[str, Any]]:
    """[{url, size, bytes, complete, used, verified, pinned}] of the models that are cached, most recently used first.

    `size`: bytes of the file; `bytes`: bytes that are cached, maybe not all; `used`: Unix time in seconds, None if
    unknown; `verified`: whether the file's SHA-256 was compared with an expected one; `pinned`: whether it is
    never evicted.
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
                "pinned": bool(model.get("pinned")),
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
        if not url.endswith(NEXT):
            await js.wispShards.deleteModel(url + NEXT)


async def pin(url: str, pinned: bool) -> None:
    """Set whether a model is never evicted."""
    with suppress(JsException):
        await js.wispShards.putPinned(url, pinned)


async def evict_models(needed: int, in_use: set[str]) -> list[dict[str, Any]]:
    """Remove models, least recently used first, until they have freed `needed` bytes; return the removed ones.

    Never removes a pinned model or one of `in_use`. Removes nothing if that cannot free enough.
    """
    others = [
        model
        for model in reversed(await cached_models())
        if model["url"] not in in_use and model["bytes"] and not model["pinned"]
    ]
    if sum(model["bytes"] for model in others) < needed:
        return []
    removed, freed = [], 0
    for model in others:
        if freed >= needed:
            break
        await forget(model["url"])
        removed.append(model)
        freed += model["bytes"]
    return removed
