"""The shortest path through all parts: the built page starts Python, loads Wisp Mini on the CPU and answers."""

from playwright.sync_api import BrowserContext

from tests.support.browser import watch
from tests.support.chat_page import ask, open_page
from tools.serve import Server


def test_the_page_answers(context: BrowserContext, server: Server) -> None:
    page = open_page(context, server.url)
    errors = watch(page)
    assert "Rome" in ask(page, "What is the capital of Italy?")
    assert not errors
