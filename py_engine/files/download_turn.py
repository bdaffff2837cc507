"""Whose turn it is to download a file: one engine does at a time (download_lock.js), others wait for what it stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import js
from pyodide.ffi import JsException

FREE_MS = 50  # in which the browser gives a lock that no one holds
LOOK_MS = 250  # between two looks at what another engine has stored


class DownloadTurn:
    """Of one file: wait for it before the first byte of a record, end it when all that has arrived is stored."""

    def __init__(self, url: str, on_bytes: Callable[[int], None], stored: Callable[[], Awaitable[None]]) -> None:
        """`on_bytes(loaded)` is called with the bytes in the storage while another engine downloads the file.

        `stored()` returns when all that has arrived is stored.
        """
        self._url, self._on_bytes, self._stored = url, on_bytes, stored
        self._lock: Any = None
        self._waited = False
        self._ending: asyncio.Task[None] | None = None

    async def wait(self) -> bool:
        """Wait until it is this engine's turn; returns whether another engine had it before, and may have stored more.

        If this is cancelled, the place in the queue stays until end(), and the next call waits on.
        """
        if self._lock is None:
            self._lock, self._waited = js.wispShards.DownloadLock.new(self._url), False
        shown = -1
        while not await self._lock.within(LOOK_MS if self._waited else FREE_MS):
            self._waited = True
            stored = await stored_bytes(self._url)
            if stored != shown:
                self._on_bytes(shown := stored)
        return self._waited

    def end(self) -> None:
        """Let the next engine have its turn when all is stored: it would download the rest again."""
        lock, self._lock = self._lock, None
        if lock is None:
            return

        async def release() -> None:
            try:
                await self._stored()
            finally:
                lock.release()

        self._ending = asyncio.ensure_future(release())


async def header_of_another(url: str) -> None:
    """Wait while another engine downloads a file and has not stored its first record, which has the header."""
    while await js.wispShards.isDownloading(url) and not await _has_header(url):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_MS / 1000)


async def stored_bytes(url: str) -> int:
    """Bytes of a file in the storage, in records and parts of records."""
    try:
        records = (await js.wispShards.listRecords(url)).to_py()
        parts = (await js.wispShards.listParts(url)).to_py()
        return sum(int(length) for _, length in records) + sum(int(end - start) for start, end in parts)
    except JsException:
        return 0


async def _has_header(url: str) -> bool:
    try:
        return any(int(offset) == 0 for offset, _ in (await js.wispShards.listRecords(url)).to_py())
    except JsException:  # no storage: nothing to wait for
        return True
