"""Who may use one engine's buffers: answers side by side, or one whole sequence (evaluate, embeddings) alone.

Nobody holds access while a caller's code runs: a caller may wait there for another task that waits for access. So what
is yielded while access is held runs in a task of its own.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TypeVar

from py_engine.generate.request_queue import Job, RequestQueue
from py_engine.tasks import in_background

ANY = 1 << 30  # answers at once; the scheduler has their limit
Item = TypeVar("Item")


class Access:
    """First come, first served. Answers read and write pages of their own; a whole sequence uses what they share."""

    def __init__(self) -> None:
        self._queue = RequestQueue(lambda: ANY)

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Hold access alone. The block must not wait for a caller."""
        return self._queue.exclusive(Job())

    def yield_beside_others(self, items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
        """Run an answer, beside other answers."""
        return in_background(_held(self._queue.shared(Job()), items))

    def yield_alone(self, items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
        """Run whole sequences, while nothing else runs."""
        return in_background(_held(self._queue.exclusive(Job()), items))


async def _held(access: AbstractAsyncContextManager[None], items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item]:
    async with access, aclosing(items) as found:
        async for item in found:
            yield item
