"""One request at a time, in the order they came; a waiting one can be aborted."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from py_engine.errors import WispError


class Job:
    """A request in progress, as far as aborting it goes."""

    def __init__(self) -> None:
        self.aborted = False
        self._callbacks: list[Callable[[], object]] = []

    def abort(self) -> None:
        """Marks the request as aborted and wakes it where it waits."""
        if not self.aborted:
            self.aborted = True
            for callback in self._callbacks:
                callback()

    def on_abort(self, callback: Callable[[], object]) -> None:
        """Calls back at the abort."""
        self._callbacks.append(callback)

    def check(self) -> None:
        """Raises if the request is aborted."""
        if self.aborted:
            raise aborted()


def aborted() -> WispError:
    """The error that an aborted request ends with."""
    return WispError("The request was aborted.", "aborted")


class Turns:
    """A queue for something that serves one request at a time."""

    def __init__(self) -> None:
        self._busy = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Waits for the turn and holds it; raises "aborted" if the job is aborted before it comes."""
        job.check()
        if self._busy:
            await self._wait(job)
        self._busy = True
        try:
            job.check()
            yield
        finally:
            self._next()

    async def _wait(self, job: Job) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)

        def give_up() -> None:
            if not turn.done():
                turn.set_exception(aborted())

        job.on_abort(give_up)
        try:
            await turn
        except BaseException:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self._next()  # the turn came in the moment of the cancellation: pass it on
            raise

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
