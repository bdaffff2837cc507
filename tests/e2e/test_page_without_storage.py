"""A browser that lets the page store nothing, as where its user blocks all cookies."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Playwright, expect

from tests.support.browser import open_stored
from tests.support.chat_page import ask, wait_ready
from tools.serve import Server

BLOCKED = {"profile": {"default_content_setting_values": {"cookies": 2}}}


@pytest.fixture
def page(playwright_run: Playwright, server: Server, tmp_path: Path) -> Iterator[Page]:
    folder = tmp_path / "Default"
    folder.mkdir()
    (folder / "Preferences").write_text(json.dumps(BLOCKED), encoding="utf-8")
    context = open_stored(playwright_run, tmp_path)
    page = context.new_page()
    page.goto(server.url)
    yield page
    context.close()


def test_the_page_answers_and_says_that_it_stores_nothing(page: Page) -> None:
    """Local storage, IndexedDB, the service worker and Web Locks are denied."""
    with pytest.raises(Exception, match="denied"):
        page.evaluate("navigator.locks.request('x', () => {})")
    wait_ready(page)
    page.click("#settings-button")
    page.select_option("#language", "de")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    page.select_option("#language", "en")
    page.fill("[name=temperature]", "0")
    page.keyboard.press("Escape")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(page.locator("#notices")).to_contain_text("could not store the chat")
    assert page.evaluate("localStorage.getItem('wisp.language')") == "en"
    assert page.evaluate("localStorage.getItem('nothing')") is None
