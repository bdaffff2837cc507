"""What runs on a model, request by request, as llama.cpp's server shows it: a slot holds one answer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.openai.requests import Request


@dataclass
class Task:
    """One answer."""

    request: Request
    number: int  # of all answers of this model
    prompt_tokens: int
    limit: int  # tokens of the answer
    progress: Callable[[], tuple[int, bool]]  # its tokens so far, and whether its text has a line break
    runs: bool = True


class Slots:
    """The answers that run, and the last one of each slot that is free."""

    def __init__(self) -> None:
        self.tasks: dict[int, Task] = {}
        self._count = 0

    @contextmanager
    def taken(
        self, request: Request, prompt_tokens: int, limit: int, progress: Callable[[], tuple[int, bool]]
    ) -> Iterator[None]:
        """Hold the first free slot for an answer."""
        slot = next(i for i in range(len(self.tasks) + 1) if i not in self.tasks or not self.tasks[i].runs)
        task = self.tasks[slot] = Task(request, self._count, prompt_tokens, limit, progress)
        self._count += 1
        try:
            yield
        finally:
            last = progress()  # the answer's own objects are let go
            task.runs, task.progress = False, lambda: last
