"""One page per software GPU, with a device for each file, and a bench for each kernel variant that the GPU supports."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page

from tests.support.browser import new_profile
from tests.support.kernels.bench import RUNNER, Bench, bench_of
from tests.support.kernels.variants import CACHED, IN_F32
from tools.paths import ROOT
from tools.serve import Server


@pytest.fixture(scope="session")
def runner_pages(chromium: Callable[[str | None], Browser], server: Server) -> Callable[[str], Page]:
    """runner_pages(adapter) -> the run's page with runner.js on that adapter: opening one takes half a second."""
    opened: dict[Browser, Page] = {}

    def get(adapter: str) -> Page:
        browser = chromium(adapter)
        if browser not in opened or opened[browser].is_closed():
            page = opened[browser] = new_profile(browser, service_worker=False).new_page()
            page.goto(f"{server.url}tests/blank.html")
            page.evaluate(f"import('/repo/{RUNNER.relative_to(ROOT)}')")
        return opened[browser]

    return get


@pytest.fixture(scope="module")  # a device keeps its pipelines: those of all files would take gigabytes
def kernel_pages(runner_pages: Callable[[str], Page]) -> Iterator[Callable[[str], tuple[Page, dict[str, Any]]]]:
    """kernel_pages(adapter) -> (page with runner.js and a device of this file's own, the device's capabilities)."""
    opened: dict[str, tuple[Page, dict[str, Any]]] = {}

    def get(adapter: str) -> tuple[Page, dict[str, Any]]:
        if adapter not in opened:
            page = runner_pages(adapter)
            opened[adapter] = page, page.evaluate("kernels.open()")
        return opened[adapter]

    yield get
    for page, _ in opened.values():
        try:
            page.evaluate("kernels.close()")
        except Error:  # it has crashed
            page.context.close()


@pytest.fixture
def bench(request: pytest.FixtureRequest, kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """The bench of a variant, which tests name by tests/support/kernels/variants.py."""
    return bench_of(request.param, kernel_pages)


@pytest.fixture(params=IN_F32)
def bench_in_f32(request: pytest.FixtureRequest, kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """A bench for each variant without f16."""
    return bench_of(request.param, kernel_pages)


@pytest.fixture
def plain_bench(kernel_pages: Callable[[str], tuple[Page, dict[str, Any]]]) -> Bench:
    """A bench without f16 and subgroups."""
    return bench_of(CACHED, kernel_pages)
