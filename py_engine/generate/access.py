"""Who may use one engine's buffers: answers side by side, or one whole sequence (evaluate, embeddings) alone.

A reader's code may wait for another task that waits for access. So that nobody holds access while it runs, a generator
that holds access runs in a task of its own. An answer's hooks do run while it holds access; what they ask of the same
engine is refused.
"""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from contextvars import ContextVar
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.generate.request_queue import Job, RequestQueue
from py_engine.tasks import in_background

UNLIMITED = 1 << 30  # answers that may have access at once; Sequences limits how many run
Item = TypeVar("Item")


class _Held:
    """Access that a task holds. `ended`: the task gave it back; tasks that it began may still run."""

    def __init__(self, owner: "Access") -> None:
        self.owner, self.ended = owner, False


_held_here: ContextVar[tuple[_Held, ...]] = ContextVar("held_here", default=())  # by this task, or by one that began it


class Access:
    """First come, first served. Answers read and write pages of their own; a whole sequence uses what they share."""

    def __init__(self) -> None:
        self._queue = RequestQueue(lambda: UNLIMITED)

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Hold access alone. The block must not wait for a caller."""
        self._refuse_hooks()
        return self._queue.exclusive(Job())

    def yield_beside_others(self, items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
        """Run an answer, beside other answers."""
        self._refuse_hooks()
        return in_background(self._holding(self._queue.shared(Job()), items))

    def yield_alone(self, items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
        """Run whole sequences, while nothing else runs."""
        self._refuse_hooks()
        return in_background(self._holding(self._queue.exclusive(Job()), items))

    async def _holding(
        self, access: AbstractAsyncContextManager[None], items: AsyncGenerator[Item, None]
    ) -> AsyncGenerator[Item]:
        async with access, aclosing(items) as found:
            held = _Held(self)
            _held_here.set((*_held_here.get(), held))  # in the background's task: readers do not see it
            try:
                async for item in found:
                    yield item
            finally:
                held.ended = True

    def _refuse_hooks(self) -> None:
        """Raise if this task, or one that began it, holds access: a hook would wait for its own answer."""
        if any(held.owner is self and not held.ended for held in _held_here.get()):
            raise WispError(
                "A hook of an answer asks the engine that runs the answer, and would wait for itself. Ask before the "
                "answer, or another engine.",
                "invalid_value",
            )
