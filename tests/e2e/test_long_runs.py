"""An engine that has run for long. In a browser, Python's clocks count from the start of its worker."""

from playwright.sync_api import Page

from tests.support.browser import run_python

HOURS_LATER = "() => { const now = performance.now.bind(performance); performance.now = () => now() + 3 * 3_600_000; }"
RENDER = """
from py_engine.text.chat_template import ChatTemplate
ChatTemplate("{{ 1 + 1 }}").render([])
"""


def test_templates_render_after_three_hours(engine_page: Page) -> None:
    """C's clock() has 32 bits: it fails after 36 minutes."""
    engine_page.evaluate(HOURS_LATER)
    try:
        assert run_python(engine_page, RENDER) == "2"
    finally:
        engine_page.evaluate("() => { delete performance.now; }")
