"""The time of an event loop without waits: a test with timers takes no time, and a busy machine changes no outcome."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest


def run_ahead(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Have a loop's clock go ahead to the next timer whenever nothing else is left to run. Returns the clock (seconds).

    Not for tests whose work is done by other threads or processes: their time would pass without them.
    """
    now = loop.time()
    selector: Any = loop._selector  # type: ignore[attr-defined]
    select = selector.select

    def ahead(timeout: float | None = None) -> Any:
        nonlocal now
        if timeout is None:  # no timer: what comes next is from outside
            return select(None)
        events = select(0)
        if not events:
            now += timeout
        return events

    def clock() -> float:
        return now

    monkeypatch.setattr(selector, "select", ahead)
    monkeypatch.setattr(loop, "time", clock)
    return clock
