"""Fixtures that several tests of pages share."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext


@pytest.fixture(scope="module")
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A browser profile per module, on the CPU backend, which loads fastest."""
    made = chromium(None).new_context()
    yield made
    made.close()
