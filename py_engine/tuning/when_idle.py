"""Measures kernels once the model has been idle for a while: its next load uses them.

So a model that is downloaded answers as soon as it has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

QUIET_S = 15.0  # without a request before the measurement begins
LOOK_S = 0.25  # between two looks whether there is one


class MeasureWhenIdle:
    """One measurement. A request ends it; it begins again later."""

    def __init__(self, idle: Callable[[], bool], measure: Callable[[], Awaitable[object]]) -> None:
        self._idle, self._measure = idle, measure
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Give up."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._quiet()
            measuring = asyncio.ensure_future(self._measure())
            try:
                while not measuring.done() and self._idle():
                    await asyncio.wait([measuring], timeout=LOOK_S)
                if measuring.done():
                    return
            finally:
                measuring.cancel()
                await asyncio.gather(measuring, return_exceptions=True)

    async def _quiet(self) -> None:
        """Wait until there was no request for QUIET_S."""
        looks = 0
        while looks < QUIET_S / LOOK_S:
            await asyncio.sleep(LOOK_S)
            looks = looks + 1 if self._idle() else 0
