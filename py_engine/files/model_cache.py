"""The models that this browser keeps: which, how large, when last used; removing them, the longest unused first where a
new one has no room.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

InUse = Callable[[], set[str]]  # URLs of models that must stay


async def cached_models() -> list[dict[str, Any]]:
    """[{url, size, bytes, complete, used}] of the models that are kept, wholly or in part, the last used first.

    `size` is the file's; `bytes` are those kept; `used`: Unix time in seconds, None where it is not known.
    """
    try:
        found = (await js.wispShards.listModels()).to_py()
    except JsException:  # no database: nothing is kept
        return []
    models = []
    for model in found:
        url, size, used = str(model["url"]), int(model["size"]), model.get("used")
        records = (await js.wispShards.listRecords(url)).to_py()
        kept = sum(int(length) for _, length in records)
        seconds = used / 1000 if used else None
        models.append({"url": url, "size": size, "bytes": kept, "complete": kept >= size, "used": seconds})
    return sorted(models, key=lambda model: -(model["used"] or 0))


async def forget(url: str) -> None:
    """Remove a model and all its records."""
    with suppress(JsException):
        await js.wispShards.deleteModel(url)


async def reserve_sequences(needed: int, in_use: set[str]) -> list[dict[str, Any]]:
    """Remove models, the longest unused first, until `needed` bytes are free; none of `in_use`, and none at all where
    that would not do. Gives those that were removed.
    """
    free = await js.wispShards.freeStorage()
    others = [model for model in reversed(await cached_models()) if model["url"] not in in_use and model["bytes"]]
    if free + sum(model["bytes"] for model in others) < needed:
        return []
    removed = []
    for model in others:
        if free >= needed:
            break
        await forget(model["url"])
        removed.append(model)
        free = max(free + model["bytes"], await js.wispShards.freeStorage())  # a browser counts late
    return removed
