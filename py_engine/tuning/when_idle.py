"""Measures kernels once a model has been idle for a while. Its next load uses the result.

The first load of a downloaded model therefore does not wait for a measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

QUIET_S = 15.0  # seconds without a request before a measurement begins
CHECK_S = 0.25  # seconds between two checks for requests


class MeasureWhenIdle:
    """Runs `measure` to its end once. A request cancels it, and it begins again after the next quiet time."""

    def __init__(self, idle: Callable[[], bool], measure: Callable[[], Awaitable[object]]) -> None:
        self._idle, self._measure = idle, measure
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        """Cancel the measurement, or the wait for it."""
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._wait_until_quiet()
            measuring = asyncio.ensure_future(self._measure())
            try:
                while not measuring.done() and self._idle():
                    await asyncio.wait([measuring], timeout=CHECK_S)
                if measuring.done():
                    return
            finally:
                measuring.cancel()
                await asyncio.gather(measuring, return_exceptions=True)

    async def _wait_until_quiet(self) -> None:
        """Wait until no request has run for QUIET_S."""
        quiet_checks = 0
        while quiet_checks < QUIET_S / CHECK_S:
            await asyncio.sleep(CHECK_S)
            quiet_checks = quiet_checks + 1 if self._idle() else 0
