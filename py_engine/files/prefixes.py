"""Stored prefixes of one model, in the browser's storage: a BlockStore."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from py_engine.files.stored_blocks import Put, StoredBlock

IN_USE = "NoModificationAllowedError"  # the file that should be written


class Prefixes:
    """The blocks of one layout: a model with its contents, its cache's type and the kernels that compute it."""

    def __init__(self, layout: str) -> None:
        self._layout = layout

    async def blocks(self) -> dict[str, StoredBlock]:
        """Key -> entry of what is stored; nothing where the browser has no storage."""
        try:
            found = (await js.wispShards.listPrefixes(self._layout)).to_py()
        except JsException:
            return {}
        return {
            str(key): StoredBlock(int(e["depth"]), int(e["prompted"]), int(e["groups"]), str(e["hash"]))
            for key, e in found
        }

    def changed(self) -> bool:
        """Whether another worker has changed what is stored since the last call."""
        return bool(js.wispShards.prefixesChanged(self._layout))

    def removals(self) -> int:
        """How often a user has removed blocks of all models."""
        return int(js.wispShards.prefixRemovals())

    async def read(self, blocks: Sequence[tuple[str, StoredBlock]]) -> AsyncGenerator[Any, None]:
        """Yield the bytes of blocks, an ArrayBuffer that the next one overwrites.

        It ends where a block is missing or damaged.
        """
        hashes = to_js([[key, block.hash] for key, block in blocks])
        reader = js.wispShards.PrefixReader.new(self._layout, hashes)
        try:
            for _ in blocks:
                data = await reader.next()
                if data is None:
                    return
                yield data
        finally:
            reader.close()

    async def put(self, key: str, block: StoredBlock, data: Any) -> Put:
        """Store a block's bytes, unless another worker reads it now."""
        about = {"depth": block.depth, "prompted": block.prompted, "groups": block.groups}
        data = data if not isinstance(data, bytes) else to_js(memoryview(data)).buffer
        try:
            await js.wispShards.putPrefix(self._layout, key, to_js(about, dict_converter=js.Object.fromEntries), data)
        except JsException as error:
            return Put.IN_USE if str(error.name) == IN_USE else Put.FULL
        return Put.STORED

    async def touch(self, keys: list[str]) -> None:
        """Note that blocks were used now."""
        with suppress(JsException):
            await js.wispShards.touchPrefixes(self._layout, to_js(keys))

    async def tidy(self) -> None:
        """Remove the least recently used blocks of all models beyond the limit."""
        with suppress(JsException):
            await js.wispShards.tidyPrefixes()


async def prefix_usage() -> dict[str, int]:
    """What is stored for all models, and the limit in bytes: {blocks, bytes, limit}."""
    try:
        found: dict[str, int] = (await js.wispShards.prefixUsage()).to_py()
    except JsException:  # no storage
        return {"blocks": 0, "bytes": 0, "limit": 0}
    return found


async def limit_prefixes(limit: int) -> None:
    """Set how many bytes may be stored for all models, for later visits too, and remove what exceeds them."""
    with suppress(JsException):
        await js.wispShards.limitPrefixes(limit)


async def clear_prefixes() -> None:
    """Remove all that is stored."""
    with suppress(JsException):
        await js.wispShards.clearPrefixes()
