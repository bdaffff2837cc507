"""Addresses of chats: Back and Forward, a chat in another tab, a reload, and addresses that name no chat."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import answer_by, ask, keep_engine, new_chat, open_page, wait_ready
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server

ABSENT = "This browser has no chat of this address."
# Has all who read the chats wait until release() is called.
HOLD = """async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const store = db.transaction("chats", "readwrite").objectStore("chats");
    let held = true;
    globalThis.release = () => (held = false);
    await new Promise((resolve) => {
        const again = () => {
            resolve();
            if (held) store.count().onsuccess = again;
            else db.close();
        };
        again();
    });
}"""


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server, scripted: ScriptedServer) -> tuple[Page, list[str]]:
    """A page with a scripted model and two chats, the second one shown; and the page's errors."""
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    errors = watch(page)
    answer_by(page, scripted.url)
    for question in ("What is a kite?", "What is a lamp?"):
        new_chat(page)
        ask(page, question)
    return page, errors


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    page, errors = opened
    show(page, "lamp")
    yield page
    assert not errors


def show(page: Page, word: str) -> None:
    page.locator("#chat-list .chat-open", has_text=word).click()
    expect(page.locator("#thread .bubble")).to_contain_text(word)


def address_of(page: Page, word: str) -> str:
    href = page.locator("#chat-list .chat-open", has_text=word).get_attribute("href")
    assert href
    return href


def test_back_and_forward_go_through_the_chats(page: Page) -> None:
    bubble = page.locator("#thread .bubble")
    lamp = page.url
    assert lamp.endswith(address_of(page, "lamp"))
    show(page, "kite")
    assert page.url.endswith(address_of(page, "kite"))
    page.go_back()
    expect(bubble).to_contain_text("lamp")
    assert page.url == lamp
    page.go_forward()
    expect(bubble).to_contain_text("kite")
    new_chat(page)
    assert "#" not in page.url, "a chat without messages is not stored"
    page.go_back()
    expect(bubble).to_contain_text("kite")
    page.go_forward()
    expect(page.locator("#welcome")).to_be_visible()
    entries = page.evaluate("history.length")
    page.evaluate("history.go(-2)")
    expect(bubble).to_contain_text("lamp")
    assert page.url == lamp
    assert page.evaluate("history.length") == entries, "going back adds no entry"


def test_a_chat_gets_its_address_with_its_first_message(page: Page) -> None:
    new_chat(page)
    entries = page.evaluate("history.length")
    ask(page, "What is a sail?")
    assert page.url.endswith(address_of(page, "sail"))
    assert page.evaluate("history.length") == entries
    page.reload()
    expect(page.locator("#thread .bubble")).to_contain_text("sail")


def test_a_chat_is_opened_in_another_tab(page: Page) -> None:
    with page.context.expect_page() as opened:
        page.locator("#chat-list .chat-open", has_text="kite").click(modifiers=["ControlOrMeta"])
    expect(opened.value.locator("#thread .bubble")).to_contain_text("kite")
    opened.value.reload()
    expect(opened.value.locator("#thread .bubble")).to_contain_text("kite")
    expect(page.locator("#thread .bubble")).to_contain_text("lamp")
    opened.value.close()


def test_a_private_chat_has_no_address(page: Page) -> None:
    page.click("#private-chat")
    ask(page, "What is a secret?")
    assert "#" not in page.url
    page.go_back()
    expect(page.locator("#thread .bubble")).to_contain_text("lamp")
    page.go_forward()
    expect(page.locator("#welcome")).to_be_visible()


def test_an_address_of_no_chat_is_told(page: Page) -> None:
    notice = page.locator("#notices", has_text=ABSENT)
    page.evaluate("location.hash = '#chat=00000000-0000-4000-8000-000000000000'")
    expect(notice).to_be_visible()
    expect(page.locator("#welcome")).to_be_visible()
    page.go_back()
    expect(page.locator("#thread .bubble")).to_contain_text("lamp")
    other = page.context.new_page()
    other.goto(page.url.replace("#chat=", "#chat=0"))
    expect(other.locator("#notices", has_text=ABSENT)).to_be_visible()
    expect(other.locator("#welcome")).to_be_visible()
    other.close()


def test_an_address_that_is_opened_before_the_chats_are_read_is_followed(page: Page) -> None:
    kite, lamp = (address_of(page, word) for word in ("kite", "lamp"))
    page.evaluate(HOLD)
    other = page.context.new_page()
    other.goto(page.url.partition("#")[0] + kite)
    wait_ready(other)
    other.evaluate("(hash) => { location.hash = hash; }", lamp)
    other.wait_for_timeout(200)
    page.evaluate("release()")
    expect(other.locator("#thread .bubble")).to_contain_text("lamp")
    expect(other.locator("#notices", has_text=ABSENT)).to_have_count(0)
    other.close()
