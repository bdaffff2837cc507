"""The first records of a download, which begin to arrive before records() asks for them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from py_engine.files.records import Record


class Prefetch:
    """Tasks that obtain records. A failure is raised where the record, or the rest of them, is taken."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._obtaining: dict[int, asyncio.Task[Any]] = {}  # offset -> download of a record, until it is taken
        self._begun: set[int] = set()  # offsets of records that were prefetched

    @property
    def started(self) -> bool:
        """Whether start() was called."""
        return self._task is not None

    def start(
        self, choose: Callable[[], Awaitable[Iterable[Record]]], obtain: Callable[[Record], Awaitable[Any]]
    ) -> None:
        """Obtain the records that `choose` finds."""

        async def run() -> None:
            for record in await choose():
                self._begun.add(record.offset)
                self._obtaining[record.offset] = quiet(asyncio.ensure_future(obtain(record)))

        self._task = quiet(asyncio.ensure_future(run()))

    async def stop_choosing(self) -> None:
        """Begin no more records; those that have begun go on. Raises what `choose` raised."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()):
            raise error

    def __contains__(self, record: Record) -> bool:
        """Whether a record is prefetched and not taken yet."""
        return record.offset in self._obtaining

    def has_begun(self, record: Record) -> bool:
        """Whether a record was ever prefetched."""
        return record.offset in self._begun

    async def take(self, record: Record) -> Any:
        """The ArrayBuffer of a record that was prefetched, once; None if it was not, or in its own task."""
        task = self._obtaining.get(record.offset)
        if task is None or task is asyncio.current_task():
            return None
        buffer = await task
        del self._obtaining[record.offset]
        return buffer

    def close(self) -> None:
        """Stop all downloads."""
        for task in (self._task, *self._obtaining.values()):
            if task is not None:
                task.cancel()


def quiet(task: asyncio.Task[Any]) -> asyncio.Task[Any]:
    """Let asyncio not log the task's error: a later await raises it."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task
