"""Tasks that begin at once, work that ends whatever happens, and generators that do not wait for their readers.

A task that the event loop begins costs a request one turn of the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


def quietly(task: asyncio.Task[Result]) -> asyncio.Task[Result]:
    """A task whose error may remain unread, as an abort leaves it."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def begin(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """A task that has run to its first wait when this returns. Before Python 3.12, the event loop begins it."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.ensure_future(work)


async def to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Await work that gives something back. Where this is cancelled meanwhile, that waits for the end of the work."""
    task = quietly(begin(work))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def in_background(items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
    """Yield the items of a generator that runs in a task of its own, also while nobody reads.

    So what it holds, such as the device, is released at its end. Else a reader that keeps the generator and awaits
    another task, which waits for the device, would wait for ever. Closing this ends the generator.
    """
    queue: asyncio.Queue[Item | None] = asyncio.Queue()

    async def run() -> None:
        try:
            async with aclosing(items):
                async for item in items:
                    queue.put_nowait(item)
        finally:
            queue.put_nowait(None)

    task = quietly(begin(run()))
    try:
        while (item := await queue.get()) is not None:
            yield item
        await task
    finally:
        task.cancel()
        await to_the_end(asyncio.wait([task]))
