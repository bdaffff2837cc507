"""Nothing moves by itself while the page starts: neither when a load's progress or a notice comes, nor when it goes."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.chat_page import ask, new_chat, open_page, wait_ready
from tools.serve import Server

MOST = 0.005  # of the view, weighted by the distance; web.dev calls 0.1 good
# Movements within half a second of an input are the user's own.
WATCH = """globalThis.shifts = [];
new PerformanceObserver((list) => {
    for (const { value, hadRecentInput, sources } of list.getEntries())
        if (!hadRecentInput) shifts.push([value, sources.map(({ node }) => node?.id || node?.className)]);
}).observe({ type: "layout-shift", buffered: true });"""


@pytest.fixture
def page(engine_context: BrowserContext, server: Server) -> Iterator[Page]:
    made = open_page(engine_context, server.url)
    yield made
    made.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_moves_on_a_return_visit(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.add_init_script(WATCH)
    for prepare in (lambda: new_chat(page), lambda: ask(page, "What is the capital of France?")):
        prepare()
        page.reload()
        wait_ready(page)
        page.wait_for_timeout(300)
        shifts = moved(page)
        assert sum(value for value, _ in shifts) < MOST, shifts


def moved(page: Page) -> list[tuple[float, list[str]]]:
    """The movements since the page began to load: how far, and what."""
    return page.evaluate("shifts")
