"""Compiles lists that requests can do without for a while: drafts, small batches, batches of several requests.

A device that has not run a list's kernels yet proves them, which takes numpy longer than a short answer takes in all.
So those lists wait until the device is idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

IDLE_S = 0.3  # without work of a request
CHECK_S = 0.1
LATEST_S = 3.0  # after which lists do not wait for idleness: a long answer gains from them


class Preparation:
    """The lists that are compiled, or are to be. `unproven`: whether any of their kernels must be proven."""

    def __init__(self, compile_lists: Callable[[set[str]], Awaitable[None]], unproven: Callable[[set[str]], bool]):
        self._compile, self._unproven = compile_lists, unproven
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._used = 0.0  # when a request last used the device

    def used(self) -> None:
        """Note that a request uses the device."""
        self._used = time.perf_counter()

    def begin(self, lists: set[str], *, soon: bool) -> None:
        """Compile lists in the background. `soon`: do not wait until the device is idle."""
        lists = lists - self._running - (set() if soon else self._waiting)
        if not lists:
            return
        if soon or not self._unproven(lists):
            self._running |= lists
            self._start(self._run(lists))
        else:
            self._waiting |= lists
            self._start(self._run_when_idle(lists))

    def close(self) -> None:
        """Begin nothing more."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_when_idle(self, lists: set[str]) -> None:
        for _ in range(round(LATEST_S / CHECK_S)):
            if time.perf_counter() - self._used >= IDLE_S:
                break
            await asyncio.sleep(CHECK_S)
        self._waiting -= lists
        lists = lists - self._running
        self._running |= lists
        await self._run(lists)

    async def _run(self, lists: set[str]) -> None:
        try:
            await self._compile(lists)
        finally:
            self._running -= lists
