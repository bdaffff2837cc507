"""The models in this browser's cache: lists them, removes them, evicts the least recently used for a new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

InUse = Callable[[], set[str]]  # URLs of models that are not evicted


async def cached_models() -> list[dict[str, Any]]:
    """[{url, size, bytes, complete, used}] of the models that are cached, fully or in part; most recently used first.

    `size`: bytes of the file; `bytes`: bytes that are cached; `used`: Unix time in seconds, None if unknown.
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
        models.append({"url": url, "size": size, "bytes": cached, "complete": cached >= size, "used": seconds})
    return sorted(models, key=lambda model: -(model["used"] or 0))


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
