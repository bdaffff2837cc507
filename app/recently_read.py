"""Caches what pages have read from files: the next turns of a chat have the same files."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import js
from pyodide.ffi import JsException

Found = TypeVar("Found")


class RecentlyRead(Generic[Found]):
    """A cache of what was read from files: the `most` that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[tuple[str, str], Found] = {}  # the one used last at the end

    async def get(
        self, data: bytes, read: Callable[[Any], Awaitable[Any]], convert: Callable[[Any], Found], how: str = ""
    ) -> Found:
        """What `read`, given an AbortSignal, has a page read from a file. `how`: what else its result depends on.

        The page stops when this is cancelled. ValueError: the file cannot be read.
        """
        key = (hashlib.sha256(data).hexdigest(), how)
        found = self._found.pop(key, None)
        if found is None:
            controller = js.AbortController.new()
            try:
                found = convert(await read(controller.signal))
            except JsException as error:
                raise ValueError(str(error).splitlines()[0].removeprefix("Error: ")) from None
            finally:
                controller.abort()
        self._found[key] = found
        if len(self._found) > self._most:
            del self._found[next(iter(self._found))]
        return found
