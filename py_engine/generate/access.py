"""Who may use one engine's buffers: answers side by side, or one whole sequence (evaluate, embeddings) alone."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from py_engine.errors import WispError
from py_engine.generate.request_queue import Job, RequestQueue

ANY = 1 << 30  # answers at once; the scheduler has their limit
CLOSING = 100  # turns of the event loop in which a generator that a loop has left is closed


class Access:
    """First come, first served. Answers read and write pages of their own; a whole sequence uses what they share."""

    def __init__(self) -> None:
        self._queue = RequestQueue(lambda: ANY)
        self._answers: Counter[asyncio.Task[Any] | None] = Counter()  # by the task that began them
        self._alone: asyncio.Task[Any] | None = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold access beside other answers. A task that has an answer gets another one at once."""
        task = asyncio.current_task()
        await self._check(lambda: self._alone is task)
        if task in self._answers:
            with self._queue.joined(), self._counted(task):  # the first may end before
                yield
            return
        async with self._queue.shared(Job()):
            with self._counted(task):
                yield

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold access alone."""
        task = asyncio.current_task()
        await self._check(lambda: self._alone is task or task in self._answers)
        async with self._queue.exclusive(Job()):
            self._alone = task
            try:
                yield
            finally:
                self._alone = None

    @contextmanager
    def _counted(self, task: asyncio.Task[Any] | None) -> Iterator[None]:
        self._answers[task] += 1
        try:
            yield
        finally:
            self._answers[task] -= 1
            if not self._answers[task]:
                del self._answers[task]

    async def _check(self, waits_for_itself: Callable[[], bool]) -> None:
        for _ in range(CLOSING):
            if not waits_for_itself():
                return
            await asyncio.sleep(0)
        raise WispError(
            "This task uses the engine already, and would wait for itself. End the loop over its answer or embeddings "
            "first, or ask from another task.",
            "invalid_value",
        )
