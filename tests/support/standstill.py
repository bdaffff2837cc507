"""Says of a test that failed if a processor of the machine stood still meanwhile.

A virtual machine's host may take a processor away for a minute; the kernel's log then has "soft lockup". Whatever ran
there stands still, such as the page or the engine of a browser, and a test's waits end as if they hung.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator

import pytest

TICK_S = 0.5
LEAST_S = 5.0  # far above what a busy machine delays a tick by


class Ticks:
    """The times at which each processor stood still."""

    def __init__(self) -> None:
        self._last: dict[int, float] = {}
        self._gaps: list[tuple[int, float, float]] = []  # processor, begin, end

    def tick(self, processor: int, now: float) -> None:
        """Record that a processor runs."""
        last = self._last.get(processor, now)
        if now - last > LEAST_S:
            self._gaps.append((processor, last, now))
        self._last[processor] = now

    def between(self, begin: float, end: float) -> list[str]:
        """Say which processors stood still in that time, also those that do not run again yet."""
        open_gaps = [(processor, last, end) for processor, last in self._last.items() if end - last > LEAST_S]
        return [
            f"Processor {processor} stood still for {until - since:.0f} s during this test."
            for processor, since, until in sorted([*self._gaps, *open_gaps])
            if since < end and until > begin
        ]


_ticks = Ticks()


def _run(processor: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(threading.get_native_id(), {processor})
    while True:
        _ticks.tick(processor, time.monotonic())
        time.sleep(TICK_S)


def pytest_sessionstart() -> None:
    """Start a thread on each processor. Where threads cannot be pinned, one thread stands for all."""
    processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    for processor in processors:
        threading.Thread(target=_run, args=(processor,), daemon=True).start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the processors did to the report of a failure."""
    report = yield
    if report.failed:
        now = time.monotonic()
        if lines := _ticks.between(now - call.duration, now):
            report.sections.append(("machine", "\n".join(lines)))
    return report
