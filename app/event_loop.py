"""The worker's event loop: Pyodide's, but all callbacks that are due run in one task of the browser.

Pyodide's own loop makes a task of the browser and a proxy for each callback. That takes some 0.1 ms of each step of a
coroutine, and a request takes several steps until its first token.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

import js
from pyodide.ffi import create_proxy
from pyodide.webloop import WebLoop

Result = TypeVar("Result")


class EventLoop(WebLoop):
    """Runs callbacks in the order of their calls. It is the running loop from its construction on."""

    def __init__(self) -> None:
        super().__init__()
        self._install_asyncgen_hooks()
        self._due: deque[asyncio.Handle] = deque()
        self._running = False  # whether _run_due() is on the stack
        channel = js.MessageChannel.new()
        channel.port1.onmessage = create_proxy(self._run_due)
        self._wake = channel.port2.postMessage

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Run a callback in the browser's next task."""
        handle = asyncio.Handle(callback, args, self, context=context)
        if not self._due and not self._running:
            self._wake(None)
        self._due.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback after some seconds; at once if its time is over.

        Pyodide's loop refuses that. A timeout of asyncio may end between its check of the clock and this call.
        """
        return super().call_later(max(0.0, delay), callback, *args, context=context)

    def _run_due(self, _: Any) -> None:
        """Run what is due now. What becomes due meanwhile waits: other tasks of the browser can run before it."""
        self._running = True
        try:
            for _ in range(len(self._due)):
                handle = self._due.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            self._running = False
            if self._due:
                self._wake(None)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Result], **options: Any) -> "asyncio.Task[Result]":
        return asyncio.Task(coro, loop=self, **options)
