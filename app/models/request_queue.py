"""Whose turn it is: requests alone or sharing, in the order they came; a waiting one can be aborted."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

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

    async def sees_end_of(self, task: "asyncio.Future[Any]") -> bool:
        """Waits for a task as long as the request is not aborted; whether it ended."""
        woken = asyncio.Event()
        self._callbacks.append(woken.set)
        if self.aborted:
            woken.set()
        waking = asyncio.ensure_future(woken.wait())
        await asyncio.wait([task, waking], return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        return task.done()

    def check(self) -> None:
        """Raises if the request is aborted."""
        if self.aborted:
            raise aborted()


def aborted() -> WispError:
    """The error that an aborted request ends with."""
    return WispError("The request was aborted.", "aborted")


class Turns:
    """A queue for something that serves one request alone, or several that can share it, strictly in their order: one
    that came later does not overtake, so that a request that wants to be alone is not kept waiting by ones that share.
    """

    def __init__(self, parallel: Callable[[], int] = lambda: 1) -> None:
        """`parallel`: how many may share it, asked each time."""
        self._parallel = parallel
        self._alone = False
        self._sharing = 0
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @asynccontextmanager
    async def turn(self, job: Job) -> AsyncIterator[None]:
        """Waits for the turn and holds it alone; raises "aborted" if the job is aborted before it comes."""
        async with self._held(job, alone=True):
            yield

    @asynccontextmanager
    async def share(self, job: Job) -> AsyncIterator[None]:
        """The same, beside others that share."""
        async with self._held(job, alone=False):
            yield

    @asynccontextmanager
    async def _held(self, job: Job, *, alone: bool) -> AsyncIterator[None]:
        job.check()
        if self._waiting or not self._free(alone):
            await self._wait(job, alone)  # whoever ends has counted us in
        else:
            self._take(alone)
        try:
            job.check()
            yield
        finally:
            self._end(alone)

    def _free(self, alone: bool) -> bool:
        return not self._alone and (self._sharing == 0 if alone else self._sharing < max(1, self._parallel()))

    def _take(self, alone: bool) -> None:
        if alone:
            self._alone = True
        else:
            self._sharing += 1

    def _end(self, alone: bool) -> None:
        if alone:
            self._alone = False
        else:
            self._sharing -= 1
        self._next()

    async def _wait(self, job: Job, alone: bool) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, alone))

        def give_up() -> None:
            if not turn.done():
                turn.set_exception(aborted())

        job.on_abort(give_up)
        try:
            await turn
        except BaseException:
            if (turn, alone) in self._waiting:
                self._waiting.remove((turn, alone))
                self._next()  # whoever waited behind may go now
            elif turn.done() and not turn.cancelled() and turn.exception() is None:
                self._end(alone)  # the turn came in the moment of the cancellation: pass it on
            raise

    def _next(self) -> None:
        while self._waiting:
            turn, alone = self._waiting[0]
            if not turn.done():
                if not self._free(alone):
                    return
                self._take(alone)
                turn.set_result(None)
            self._waiting.popleft()
