"""The browsers of the other tests: each software GPU has the features that the tests assume."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.browser import run_python, wait_for_adapter


@pytest.mark.parametrize(("adapter", "f16"), [("swiftshader", False), ("lavapipe", True)])
def test_adapter_has_f16_or_not(engine_pages: Callable[[str | None], Page], adapter: str, f16: bool) -> None:
    found = wait_for_adapter(engine_pages(adapter))
    assert ("shader-f16" in found["features"]) == f16
    assert "subgroups" in found["features"]


def test_browser_without_webgpu(engine_pages: Callable[[str | None], Page]) -> None:
    assert engine_pages(None).evaluate("async () => !(await navigator.gpu?.requestAdapter())")


def test_python_runs_in_the_page(engine_page: Page) -> None:
    code = """
import asyncio, numpy, regex, jinja2, gguf.quants
await asyncio.sleep(0)
{"sum": float(numpy.arange(n).sum()), "text": jinja2.Template("{{ a }}!").render(a=1)}
"""
    assert run_python(engine_page, code, {"n": 5}) == {"sum": 10.0, "text": "1!"}
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_python(engine_page, "1 / 0")


def test_the_page_is_cross_origin_isolated(engine_page: Page) -> None:
    assert engine_page.evaluate("crossOriginIsolated")
