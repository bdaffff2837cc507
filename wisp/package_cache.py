"""What package indexes have answered, and their wheels, in the browser's Cache Storage: installs then work offline."""

from asyncio import Lock
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

NAME = "wisp-packages"  # in Cache Storage
PATCHING = Lock()  # held while micropip's layer is replaced: a second install would take ours for its own


@dataclass
class Fetches:
    """Fetches of micropip: the network first, then what it answered before."""

    # Addresses that neither the network nor the cache has, with what was raised.
    unreachable: dict[str, Exception] = field(default_factory=dict)

    async def bytes(self, url: str, options: dict[str, Any]) -> bytes:
        """A file's bytes."""
        return bytes(await (await self._fetch(url, options)).bytes())

    async def text(self, url: str, options: dict[str, Any]) -> tuple[str, dict[str, str]]:
        """A document and its headers."""
        response = await self._fetch(url, options)
        return await response.string(), response.headers

    async def _fetch(self, url: str, options: dict[str, Any]) -> Any:
        from pyodide.http import pyfetch

        try:
            response = await pyfetch(url, **options)
        except Exception as error:
            stored = await _stored(url)
            if stored is None:
                self.unreachable[url] = error
                raise
            return stored
        response.raise_for_status()
        await _store(url, response.js_response.clone())
        return response


@asynccontextmanager
async def cached_fetches(micropip: Any) -> AsyncIterator[Fetches]:
    """Have micropip fetch by `Fetches` meanwhile, for one install at a time."""
    fetches = Fetches()
    manager = getattr(micropip.install, "__self__", None)
    if manager is None:  # another micropip, such as a notebook's own: it fetches as it likes
        yield fetches
        return
    async with PATCHING:
        layer = manager.compat_layer
        manager.compat_layer = _cached(layer, fetches)
        try:
            yield fetches
        finally:
            manager.compat_layer = layer


def _cached(layer: Any, fetches: Fetches) -> Any:
    """The layer of micropip, with fetches of ours."""

    async def fetch_bytes(url: str, options: dict[str, Any]) -> bytes:
        if url.startswith("http"):
            return await fetches.bytes(url, options)
        return bytes(await layer.fetch_bytes(url, options))

    own = {"fetch_bytes": staticmethod(fetch_bytes), "fetch_string_and_headers": staticmethod(fetches.text)}
    return type("CachedLayer", (layer,), own)


async def _store(url: str, response: Any) -> None:
    try:
        await (await _cache()).put(url, response)
    except Exception:
        return  # no secure page, or no space: the install goes on without a copy


async def _stored(url: str) -> Any:
    """The response, as pyodide.http's, or None."""
    import js
    from pyodide.ffi import to_js
    from pyodide.http import FetchResponse

    try:
        options = to_js({"ignoreVary": True}, dict_converter=js.Object.fromEntries)
        found = await (await _cache()).match(url, options)
    except Exception:
        return None
    return FetchResponse(url, found) if found else None


async def _cache() -> Any:
    import js

    return await js.caches.open(NAME)
