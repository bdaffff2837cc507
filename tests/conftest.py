"""Fixtures that tests share. Browsers and engine pages outlive a file's tests: starting one costs seconds."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.support import browser as browsers
from tests.support.waiting import HANG_S
from tools import dist as dist_maker
from tools.paths import DIST, ROOT
from tools.serve import Server

# A shell that starts the tests in the background has them ignore it, and the servers that they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A busy machine stands still for longer than any limit that would find a slow function.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
expect.set_options(timeout=1000 * HANG_S)
BROWSER_FIXTURES = {"playwright_run", "chromium"}
BROWSERS = pytest.StashKey[browsers.Browsers]()
KERNELS = "kernels"
LONG = ("faults", "fuzz")  # folders whose tests take up to a minute each: at the end, a worker would run one alone
CHECKERS = "test_style.py"  # they take up to a minute each: at the end, a worker would run several while others idle


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what drives a browser, and run its files late: once Playwright has started, no other event loop may run.

    The checkers come first, then the longest tests. Kernels' tests come last: their scopes (tests/support/workers.py)
    are the smallest, so that all workers end at about the same time.
    """
    late = set()
    for item in items:
        if BROWSER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.browser)
            late.add(item.path)

    def place(item: pytest.Item) -> tuple[bool, ...]:
        folder = item.path.parent.name
        return item.path.name != CHECKERS, item.path in late, folder == KERNELS, folder not in LONG

    items.sort(key=place)


@pytest.fixture(scope="session")
def dist(pytestconfig: pytest.Config) -> Path:
    """dist/, made from the checkout as it is now."""
    return DIST if hasattr(pytestconfig, "workerinput") else dist_maker.made()


@pytest.fixture(scope="session")
def server(dist: Path) -> Iterator[Server]:
    """The server of `build.py serve`, with support/pages under /tests/ and the checkout under /repo/ beside dist/."""
    running = Server(dist, 0, mounts={"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT}).start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="session")
def playwright_run() -> Iterator[Playwright]:
    """Playwright, started once."""
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="session")
def chromium(playwright_run: Playwright, pytestconfig: pytest.Config) -> Iterator[Callable[[str | None], Browser]]:
    """chromium(adapter) -> the run's browser on an adapter (tests/support/browser.py), or None: without WebGPU."""
    started = pytestconfig.stash[BROWSERS] = browsers.Browsers(playwright_run)
    yield started
    started.close()


@pytest.fixture(scope="module", autouse=True)
def _idle_browsers(pytestconfig: pytest.Config) -> Iterator[None]:
    """Close browsers after each file's tests, when its own fixtures have ended."""
    yield
    if started := pytestconfig.stash.get(BROWSERS, None):
        started.close(started.MOST)


@pytest.fixture
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A fresh profile on SwiftShader: empty caches, empty IndexedDB."""
    made = browsers.new_profile(chromium("swiftshader"))
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A blank page of a fresh profile."""
    return context.new_page()


@pytest.fixture(scope="session")
def engine_pages(chromium: Callable[[str | None], Browser], server: Server) -> Callable[[str | None], Page]:
    """engine_pages(adapter) -> the run's engine page on that adapter (tests/support/browser.py: run_python)."""
    opened: dict[Browser, Page] = {}

    def get(adapter: str | None = "swiftshader") -> Page:
        browser = chromium(adapter)
        if browser not in opened or opened[browser].is_closed():
            opened[browser] = browsers.open_engine_page(browser, server.url)
            if adapter not in (None, "cpu"):
                browsers.wait_for_adapter(opened[browser])
        return opened[browser]

    return get


@pytest.fixture(scope="module")
def engine_page(engine_pages: Callable[[str | None], Page]) -> Page:
    """The engine page on SwiftShader."""
    return engine_pages("swiftshader")


@pytest.fixture(scope="module", params=browsers.ADAPTERS)
def gpu_page(request: pytest.FixtureRequest, engine_pages: Callable[[str | None], Page]) -> Page:
    """The engine page, on each software GPU in turn."""
    return engine_pages(request.param)
