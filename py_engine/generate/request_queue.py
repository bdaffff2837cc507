"""The queue before a model or before loading: exclusive and shared requests, first come, first served; abortable."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from py_engine.errors import WispError

T = TypeVar("T")


class Job:
    """A request that can be aborted."""

    def __init__(self) -> None:
        self.aborted = False
        self._callbacks: list[Callable[[], object]] = []

    def abort(self) -> None:
        """Mark the request as aborted and wake it if it waits."""
        if not self.aborted:
            self.aborted = True
            for callback in self._callbacks:
                callback()

    def on_abort(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the request is aborted."""
        self._callbacks.append(callback)

    async def wait_for(self, task: "asyncio.Future[Any]") -> bool:
        """Wait for a task or the abort; returns whether the task ended."""
        woken = asyncio.Event()
        self._callbacks.append(woken.set)
        if self.aborted:
            woken.set()
        waking = asyncio.ensure_future(woken.wait())
        await asyncio.wait([task, waking], return_when=asyncio.FIRST_COMPLETED)
        waking.cancel()
        return task.done()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which is cancelled if the request is aborted. WispError aborted."""
        task = asyncio.ensure_future(work)
        if not await self.wait_for(task):
            task.cancel()
            await asyncio.wait([task])
            raise aborted()
        return task.result()

    def check(self) -> None:
        """Raise WispError aborted if the request was aborted."""
        if self.aborted:
            raise aborted()


def aborted() -> WispError:
    """The error of an aborted request."""
    return WispError("The request was aborted.", "aborted")


class RequestQueue:
    """A queue that grants one exclusive request, or several shared ones, strictly in order.

    A later request never overtakes an earlier one, so shared requests cannot starve an exclusive one.
    """

    def __init__(self, parallel: Callable[[], int] = lambda: 1) -> None:
        """`parallel()`: how many shared requests may run at once; called for each request."""
        self._parallel = parallel
        self._alone = False
        self._sharing = 0
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @asynccontextmanager
    async def exclusive(self, job: Job) -> AsyncIterator[None]:
        """Wait for, then hold, exclusive access. WispError aborted if the job is aborted first."""
        async with self._held(job, alone=True):
            yield

    @asynccontextmanager
    async def shared(self, job: Job) -> AsyncIterator[None]:
        """Wait for, then hold, shared access. WispError aborted if the job is aborted first."""
        async with self._held(job, alone=False):
            yield

    @asynccontextmanager
    async def _held(self, job: Job, *, alone: bool) -> AsyncIterator[None]:
        job.check()
        if self._waiting or not self._free(alone):
            await self._wait(job, alone)  # the request that ended has granted it to this one
        else:
            self._take(alone)
        try:
            job.check()
            yield
        finally:
            self._end(alone)

    @property
    def running(self) -> int:
        """Requests that have access."""
        return self._sharing + self._alone

    @property
    def waiting(self) -> int:
        """Requests that wait for it."""
        return len(self._waiting)

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
        grant: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((grant, alone))

        def give_up() -> None:
            if not grant.done():
                grant.set_exception(aborted())

        job.on_abort(give_up)
        try:
            await grant
        except BaseException:
            if (grant, alone) in self._waiting:
                self._waiting.remove((grant, alone))
                self._next()  # requests that waited after it may run now
            elif grant.done() and not grant.cancelled() and grant.exception() is None:
                self._end(alone)  # granted while it was cancelled: pass the grant on
            raise

    def _next(self) -> None:
        while self._waiting:
            grant, alone = self._waiting[0]
            if not grant.done():
                if not self._free(alone):
                    return
                self._take(alone)
                grant.set_result(None)
            self._waiting.popleft()
