"""Stores the records of one file in the background, makes space for them, and gives up where there is none.

Browsers report less free space than there is: nothing is refused or evicted before a write has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.addresses import shown_name
from py_engine.files.model_cache import InUse, evict_models

# At the end of a load, so few bytes are awaited until they are stored: a small model is cached when it is ready.
SMALL_REST, SMALL_REST_S = 64 << 20, 2.0


class Storing:
    """`possible`: whether records can be cached. `full`: whether storage was too small for all of them.

    `failure`: what the browser said if they cannot, in words; empty where it was not asked.
    """

    def __init__(self, url: str, name: str, notices: list[str], in_use: InUse, on_failure: Callable[[], None]) -> None:
        """`notices`: where messages for the user go; `on_failure()`: called when not all records can be stored."""
        self._url, self._name, self._notices = url, name, notices
        self._in_use, self._on_failure = in_use, on_failure
        self._watching: asyncio.Task[None] | None = None
        self.possible, self.full, self.failure = True, False, ""
        self.missing = 0  # bytes of the file that were not cached when the download began

    async def put(self, offset: int, entry: Any) -> None:
        """Cache a record. Returns when there is room for another one."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        await js.wispShards.putRecord(self._url, offset, entry)

    async def begin(self, note: Callable[[], Awaitable[Any]]) -> None:
        """Note the file, before its first record is cached or read."""
        while self.possible:
            try:
                await note()
                return
            except JsException as error:
                self._note(error)
            if await self._made_space():
                continue
            self.possible = False
            if self.full and self.missing:  # without storage, as in a private window, none is expected
                self._tell_failure()

    def give_up(self, error: JsException) -> None:
        """Cache nothing from now on."""
        self.possible = False
        self._note(error)

    def _note(self, error: JsException) -> None:
        self.full = error.name == "QuotaExceededError"
        self.failure = ": ".join(filter(None, (str(error.name), str(error.message))))

    def error(self) -> WispError:
        """Why not all of the file is stored: quota_exceeded or storage_failed."""
        if self.full:
            return WispError(
                f"This browser cannot store all of {self._name}. What has arrived stays. Free disk space or remove "
                "other models and resume, or load it without keeping it.",
                "quota_exceeded",
                SERVER_ERROR,
            )
        return WispError(
            f"The storage of this browser failed while it was to store {self._name} ({self.failure}). What has arrived "
            "stays. Resume, and restart the browser if that does not help. A private window, or a browser that blocks "
            "this site's data, stores nothing: load the model without keeping it there.",
            "storage_failed",
            SERVER_ERROR,
        )

    async def wait(self) -> None:
        """Wait until the records that have arrived are stored, or given up."""
        if self._watching is not None:
            await asyncio.wait([self._watching])

    async def wait_for_rest(self) -> None:
        """Wait a moment, if little is left to store."""
        if self._watching is not None and js.wispShards.unstoredBytes(self._url) <= SMALL_REST:
            await asyncio.wait([self._watching], timeout=SMALL_REST_S)

    async def _watch(self) -> None:
        """Wait until all records are stored. When storage is full, evict other models, or stop caching this one.

        It ends after the load, so that a load never waits for the disk.
        """
        while self.possible:
            try:
                await js.wispShards.stored(self._url)
                return
            except JsException as error:
                self._note(error)
            if await self._made_space():
                js.wispShards.retryStore(self._url)
                continue
            self.possible = False
            self._on_failure()
            js.wispShards.dropUnstored(self._url)
            self._tell_failure()

    async def _made_space(self) -> bool:
        """If storage is full, remove the prompt cache, else other models. Returns whether there is space now."""
        if not self.full:
            return False
        with suppress(JsException):
            if await js.wispShards.freePrefixes():
                return True
        removed = await evict_models(self.missing, {self._url, *self._in_use()})
        self._tell(removed)
        return bool(removed)

    def _tell_failure(self) -> None:
        self._notices.append(
            f"This browser gives this site too little storage for {self._name}. What could not be stored will be "
            "downloaded again next time. Free disk space, remove other models from the cache, or open the model as "
            "a file of this computer."
            if self.full
            else f"This browser could not store {self._name} ({self.failure}): it will be downloaded again next "
            "time. If that does not help, restart the browser."
        )

    def _tell(self, removed: list[dict[str, Any]]) -> None:
        for model in removed:
            name = shown_name(str(model["url"]))
            self._notices.append(
                f"{name} ({model['bytes'] / 1e6:.0f} MB), the least recently used model, was removed from "
                f"this browser's storage to make space for {self._name}."
            )
