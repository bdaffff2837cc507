"""One fault of the campaign, under load. `python3 build.py faults` has all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Playwright

from tests.faults.campaign import Campaign, Result
from tests.faults.lab import Lab
from tests.faults.requests import differs
from tests.faults.table import FAULTS

pytestmark = [pytest.mark.lavapipe, pytest.mark.slow]
# tests/e2e has others: lost devices (test_lost_gpu.py), killed workers (test_killed_worker.py), and full storage
# (test_shards.py, test_page_downloads.py).
NAMES = ("out of memory for a request",)


@pytest.fixture(scope="module")
def lab(playwright_run: Playwright, dist: Path) -> Iterator[Lab]:
    """A browser, two tabs and servers of this module's own."""
    made = Lab(playwright_run, dist)
    yield made
    made.close()


@pytest.mark.timeout(900)
def test_no_promise_is_broken(lab: Lab) -> None:
    results = list[Result]()
    Campaign(lab, 5).run([fault for fault in FAULTS if fault.name in NAMES], 0, results.append)
    assert [(result.fault.name, result.wrong) for result in results if result.wrong] == []
    assert sorted(result.fault.name for result in results) == sorted(NAMES)


def test_a_wrong_answer_is_noticed() -> None:
    stream, embed = {"kind": "stream"}, {"kind": "embed"}
    assert not differs(stream, [["Once", "stop"]], [["Once", "stop"]])
    assert differs(stream, [["Once", "stop"]], [["Once upon", "stop"]])
    assert not differs({**stream, "most": 3}, [["On"]], [["Once", "stop"]])
    assert differs({**stream, "most": 3}, [["One"]], [["Once", "stop"]])
    assert not differs(embed, [[0.5, 0.25]], [[0.5, 0.25001]])
    assert differs(embed, [[0.5, 0.25]], [[0.5, 0.26]])
    assert differs(embed, [[0.5]], [[0.5], [0.25]])
