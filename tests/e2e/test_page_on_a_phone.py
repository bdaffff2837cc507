"""Chats on a phone: answers that failed, answers of nothing, and what moves the page."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import answer_by, keep_engine, last_answer, open_page, send, wait_answer
from tests.support.chat_store import chat, store_chats
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server

LONG = f"https://{'name' * 20}.example.org:38737"


@pytest.fixture(scope="module")
def phone(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    made = new_profile(chromium(None), service_worker=False, viewport={"width": 360, "height": 740})
    keep_engine(made, server.url)
    yield open_page(made, server.url)
    made.close()


def test_a_long_word_of_an_error_stays_within_its_box(phone: Page) -> None:
    failed = chat([("Hi", "")])
    failed["messages"][-1] |= {"finish": "error", "error": {"message": f"For Ollama: {LONG}", "code": "x"}}
    store_chats(phone, [failed])
    phone.reload()
    box = last_answer(phone).locator(".answer-error")
    expect(box).to_contain_text(LONG)
    wide, fits = box.evaluate("(box) => [box.scrollWidth, box.clientWidth]")
    assert wide <= fits


def test_an_answer_of_nothing_says_so(phone: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["", "Something."]
    answer_by(phone, scripted.url)
    send(phone, "Say nothing.")
    wait_answer(phone)
    expect(last_answer(phone).locator(".stats")).to_contain_text("empty answer")
    last_answer(phone).get_by_role("button", name="Answer again").click()
    expect(last_answer(phone).locator(".body")).to_have_text("Something.")
    expect(last_answer(phone).locator(".stats")).not_to_contain_text("empty answer")


def test_only_the_chat_scrolls_whatever_is_brought_into_view(phone: Page) -> None:
    store_chats(phone, [chat([(f"Question {n}", f"Answer {n}") for n in range(12)])])
    phone.reload()
    expect(last_answer(phone)).to_contain_text("Answer 11")
    moved = """() => {
        for (const heading of document.querySelectorAll("#thread h2")) heading.scrollIntoView({ block: "start" });
        document.querySelector("#thread").lastElementChild.scrollIntoView({ block: "start" });
        return [document.scrollingElement.scrollTop, document.body.scrollTop];
    }"""
    assert phone.evaluate(moved) == [0, 0]


def test_the_name_of_a_tool_stands_beside_its_marker(phone: Page) -> None:
    called = chat([("Hi", "Done.")])
    call = {"id": "1", "name": "a_name_of_a_tool_that_is_as_long_as_a_line", "arguments": "{}", "state": "done"}
    called["messages"][-1]["steps"] = [{"content": "", "calls": [call]}]
    store_chats(phone, [called])
    phone.reload()
    summary = last_answer(phone).locator(".tool-call summary")
    top, first = summary.evaluate(
        "(it) => [it.getBoundingClientRect().top, it.querySelector('code').getClientRects()[0].top]"
    )
    assert first - top < 20
