"""A failed test's report says whether the machine stood still."""

import time
from typing import Any

import pytest

from tests.support import standstill
from tests.support.standstill import LEAST_S, Ticks


def ticks(*times: float) -> Ticks:
    made = Ticks()
    for now in times:
        made.tick(1, now)
    return made


def test_a_processor_that_stood_still_during_a_test_is_named() -> None:
    found = ticks(0, 0.5, 30, 30.5)
    assert found.between(20, 30.5) == ["Processor 1 stood still for 30 s during this test."]
    assert found.between(30, 30.5) == []  # before it


def test_a_processor_that_does_not_run_yet_is_named() -> None:
    assert ticks(0).between(1, 9) == ["Processor 1 stood still for 9 s during this test."]


def test_a_busy_processor_is_not_named() -> None:
    assert ticks(0, LEAST_S, 2 * LEAST_S).between(0, 2 * LEAST_S + 1) == []


@pytest.mark.parametrize("failed", [True, False])
def test_the_report_of_a_failure_says_so(monkeypatch: pytest.MonkeyPatch, failed: bool) -> None:
    now = time.monotonic()
    monkeypatch.setattr(standstill, "_ticks", ticks(now - 60, now))
    call: Any = type("Call", (), {"duration": 90.0})
    report: Any = type("Report", (), {"failed": failed, "sections": []})()
    making = standstill.pytest_runtest_makereport(call)
    next(making)
    with pytest.raises(StopIteration):
        making.send(report)
    assert report.sections == [("machine", "Processor 1 stood still for 60 s during this test.")] * failed
