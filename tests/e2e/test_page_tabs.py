"""The page in two tabs: neither loses what the other stores, and each shows it."""

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import answer_by, ask, keep_engine, last_answer, new_chat, open_page, send, wait_answer
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedServer]:
    running = ScriptedServer()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server, scripted: ScriptedServer) -> tuple[list[Page], list[str]]:
    """Two tabs with the scripted model, and their errors."""
    keep_engine(context, server.url)
    first = open_page(context, server.url)
    errors = watch(first)
    answer_by(first, scripted.url)
    second = open_page(context, server.url)
    expect(second.locator("#model-name")).to_have_text("scripted")
    return [first, second], errors


@pytest.fixture
def tabs(opened: tuple[list[Page], list[str]], scripted: ScriptedServer) -> Iterator[list[Page]]:
    """Two tabs that show the same chat, which has one question."""
    (first, second), errors = opened
    new_chat(first)
    new_chat(second)
    scripted.script = ["One."]
    ask(first, "The beginning")
    second.locator("#chat-list .chat-open").first.click()
    expect(last_answer(second)).to_contain_text("One.")
    yield [first, second]
    assert not errors


def texts(page: Page) -> list[str]:
    """The questions and answers that a tab shows."""
    return page.locator("#thread > li").locator(".bubble, .body").all_inner_texts()


def test_a_chat_goes_on_in_both_tabs(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["Two."]
    ask(second, "In the second tab")
    expect(last_answer(first)).to_contain_text("Two.")
    scripted.script = ["Three."]
    ask(first, "In the first tab")
    expect(last_answer(second)).to_contain_text("Three.")
    both = ["The beginning", "One.", "In the second tab", "Two.", "In the first tab", "Three."]
    assert [message["content"] for message in scripted.asked[-1]["messages"]] == both[:-1]
    assert texts(first) == texts(second) == both
    second.reload()
    expect(last_answer(second)).to_contain_text("Three.")
    assert texts(second) == both


def test_a_reload_shows_the_chat_of_its_tab(tabs: list[Page]) -> None:
    first, second = tabs
    new_chat(second)
    ask(second, "A chat of the second tab")
    first.reload()
    expect(first.locator("#thread .bubble").first).to_have_text("The beginning")
    second.reload()
    expect(second.locator("#thread .bubble")).to_have_text("A chat of the second tab")


def test_an_answer_of_one_tab_grows_in_the_other(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    scripted.script = ["It grows."]
    scripted.rest = threading.Event()
    try:
        send(first, "Slowly, please")
        expect(last_answer(first)).to_contain_text("It grows.")
        expect(second.locator("#thread > .growing")).to_have_count(1)
        second.reload()  # it is not stopped there
        expect(second.locator("#thread > .growing")).to_have_count(1)
        expect(second.locator(".stats", has_text="stopped")).to_have_count(0)
    finally:
        scripted.rest.set()
        scripted.rest = None
    assert wait_answer(first) == "It grows."
    expect(second.locator("#thread > .growing")).to_have_count(0)
    assert wait_answer(second) == "It grows."


def test_an_answer_whose_tab_was_closed_is_stopped(tabs: list[Page], scripted: ScriptedServer, server: Server) -> None:
    _, second = tabs
    third = open_page(second.context, server.url)
    third.locator("#chat-list .chat-open").first.click()
    expect(last_answer(third)).to_contain_text("One.")
    scripted.script = ["It begins."]
    scripted.rest = threading.Event()
    try:
        send(third, "Slowly, please")
        expect(second.locator("#thread > .growing")).to_have_count(1)
        third.close()
        expect(last_answer(second).get_by_role("button", name="Answer again")).to_be_visible()
        expect(last_answer(second)).to_contain_text("stopped")
    finally:
        scripted.rest.set()
        scripted.rest = None


def test_the_lists_are_the_same_and_lose_a_deleted_chat(tabs: list[Page], scripted: ScriptedServer) -> None:
    first, second = tabs
    new_chat(second)
    ask(second, "A chat of the second tab")
    rows = first.locator("#chat-list .chat-open")
    expect(rows.first).to_have_text("A chat of the second tab")
    entry = second.locator("#chat-list li", has=second.locator(".chat-open")).nth(1)
    entry.hover()
    entry.get_by_role("button", name="Delete").click()
    expect(first.locator("#welcome")).to_be_visible()  # it showed the chat
    expect(first.get_by_text("This chat was deleted in another tab.")).to_be_visible()
    count = rows.count()
    second.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(count + 1)
    rows.nth(1).click()
    expect(last_answer(first)).to_contain_text("One.")


def test_a_chat_that_goes_on_before_the_deletion_is_heard_of_is_stored_whole(tabs: list[Page]) -> None:
    """A tab that the browser had suspended hears of it late."""
    first, second = tabs
    code = """async () => {
        const opening = indexedDB.open("wisp-page");
        const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
        const writing = db.transaction(["chats", "messages"], "readwrite");
        for (const name of writing.objectStoreNames) writing.objectStore(name).clear();
        await new Promise((resolve) => (writing.oncomplete = resolve));
        db.close();
    }"""
    second.evaluate(code)
    ask(first, "And on")
    second.reload()
    second.locator("#chat-list .chat-open").first.click()
    expect(last_answer(second)).to_be_visible()
    assert texts(second)[:3] == ["The beginning", "One.", "And on"]
