"""<wisp-chat> on a page that is not Wisp's, under a policy without inline styles."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile
from tests.support.slow_engine import slowed
from tools.serve import Server

ADD = """async (attributes) => {
  await import("/wisp-chat.js");
  const chat = document.createElement("wisp-chat");
  for (const [name, value] of Object.entries(attributes)) chat.setAttribute(name, value);
  globalThis.answers = [];
  chat.addEventListener("answer", ({ detail }) => answers.push(detail.content));
  document.body.replaceChildren(chat);
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    yield page
    context.close()


def ask(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def test_chats(page: Page) -> None:
    page.evaluate(ADD, {"model": "wisp-mini-q4_0", "system": "Answer in one word.", "context-length": "512"})
    log, button = page.get_by_role("log", name="Chat"), page.get_by_role("button")
    ask(page, "What is the opposite of hot?")
    expect(button).to_have_text("Stop")
    expect(button).to_have_text("Send")
    expect(log).to_have_text("What is the opposite of hot?Cold")
    ask(page, "<b>And of dry?</b>")
    expect(log.locator("b")).to_have_count(0)
    expect(button).to_have_text("Send")
    assert page.evaluate("answers[0]") == "Cold"
    messages = page.evaluate("document.querySelector('wisp-chat').messages")
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert messages[3]["content"] == page.evaluate("answers[1]")
    height = log.evaluate("(log) => getComputedStyle(log.getRootNode().host).display")
    assert height == "grid"  # the style applies


def test_stops_and_shows_errors(page: Page) -> None:
    page.evaluate(ADD, {"model": "wisp-mini-q4_0", "stop-label": "Halt", "context-length": "512"})
    button, answers = page.get_by_role("button"), page.locator("wisp-chat [part~=assistant]")
    ask(page, "Hi")
    expect(answers).not_to_be_empty()
    expect(button).to_have_text("Send")
    with slowed(page):
        ask(page, "Tell me a long story.")
        expect(answers.nth(1)).not_to_be_empty()
        expect(button).to_have_text("Halt")
        button.click()
        expect(button).to_have_text("Send")
    assert len(page.evaluate("document.querySelector('wisp-chat').messages")) == 4
    page.evaluate(ADD, {"model": "/nothing.gguf"})
    ask(page, "Hello")
    expect(page.locator("wisp-chat [part~=error]")).to_contain_text("404")
    expect(button).to_have_text("Send")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("Hello")  # to send again
    assert page.evaluate("document.querySelector('wisp-chat').messages") == []
