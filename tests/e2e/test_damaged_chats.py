"""Chats that the browser lost parts of: the page says so, and shows the rest."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Playwright, expect

from tests.support.browser import open_stored
from tests.support.chat_page import NO_ENGINE, draw_all
from tests.support.chat_store import chat, store_chats
from tools.serve import Server

REPLACE = """async () => {
    const opening = indexedDB.open("wisp-page", 99);
    (await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)))).close();
}"""


@pytest.fixture
def page(playwright_run: Playwright, server: Server, tmp_path: Path) -> Iterator[Page]:
    """A page whose storage is in a folder."""
    context = open_stored(playwright_run, tmp_path)
    page = context.pages[0]
    page.add_init_script(NO_ENGINE)
    page.goto(server.url)
    expect(page.locator("#welcome")).to_be_visible()
    yield page
    context.close()


def test_what_is_damaged_says_so_and_the_rest_is_shown(page: Page, tmp_path: Path) -> None:
    long = secrets.token_hex(200_000)  # stored as a file of its own, which then is lost
    damaged = chat([("Who?", "Ada."), (long, "Ah."), ("Where?", "London."), ("When?", "In 1843")], title="Damaged")
    damaged["messages"][4]["content"] = 5
    damaged["messages"][7]["steps"] = 5
    store_chats(page, [chat([("Hi", "Hello")], id="good", title="Good"), damaged])
    for folder in tmp_path.glob("Default/IndexedDB/*.blob"):
        shutil.rmtree(folder)
    page.reload()
    draw_all(page)
    messages = page.locator("#thread > .message")
    expect(messages).to_have_count(8)
    for number in (2, 4):
        expect(messages.nth(number)).to_contain_text("This message is damaged and cannot be shown.")
    for number, text in ((0, "Who?"), (1, "Ada."), (3, "Ah."), (5, "London."), (7, "In 1843")):
        expect(messages.nth(number)).to_contain_text(text)
    page.fill("#chat-search", "London")
    expect(page.locator("#chat-found")).to_have_text("1 chat")
    page.fill("#chat-search", "")
    page.get_by_role("link", name="Good", exact=True).click()
    expect(page.locator("#thread")).to_contain_text("Hello")


def test_a_chat_that_cannot_be_read_says_so(page: Page) -> None:
    store_chats(page, [chat([("Who?", "Ada.")], id="other", title="Other"), chat([("Hi", "Hello")], title="Good")])
    page.reload()
    expect(page.locator("#thread")).to_contain_text("Hello")
    page.evaluate(REPLACE)
    page.get_by_role("link", name="Other", exact=True).click()
    expect(page.locator("#notices .error")).to_contain_text("This chat cannot be read. The others are not affected.")
    expect(page.locator("#thread")).to_contain_text("Hello")
