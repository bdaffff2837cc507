"""An MCP server that fails in the middle of a chat: the call says how, the answer goes on, and the next call works."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import (
    answer_by,
    cards,
    keep_engine,
    last_answer,
    open_page,
    send,
    switch_on,
    wait_answer,
)
from tests.support.flaky_mcp import FlakyMcp
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import wait_for
from tools.serve import Server

FAULTS = {
    "gone": "is not running, or its CORS headers do not allow this page",
    "dies": "The connection was lost in the middle of the answer. What was asked for may have been done.",
    "nonsense": "Unexpected content type: text/html",
    "no JSON": "is not valid JSON",
    "no result": "Invalid result for tools/call",
    "breaks": "Bad gateway",
    "sign in": "needs a valid token",
}


@pytest.fixture(scope="module")
def flaky() -> Iterator[FlakyMcp]:
    running = FlakyMcp()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def opened(
    context: BrowserContext, server: Server, scripted: ScriptedServer, flaky: FlakyMcp
) -> tuple[Page, list[str]]:
    """The page with the scripted model, and the server among its tools."""
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    answer_by(page, scripted.url)
    page.click("#settings-button")
    page.click("#mcp-button")
    page.click("#mcp-add")
    page.fill("#mcp-form [name=name]", "flaky")
    page.fill("#mcp-form [name=url]", flaky.url)
    page.click("#mcp-form [type=submit]")
    expect(page.locator("#mcp-form")).to_be_hidden()
    page.click("#mcp-dialog [data-close]")
    page.click("#settings-dialog [data-close]")
    return page, watch(page)


@pytest.fixture
def chat(opened: tuple[Page, list[str]], scripted: ScriptedServer, flaky: FlakyMcp) -> Page:
    """A chat whose calls need no more permission."""
    page, _ = opened
    page.keyboard.press("Control+Shift+KeyO")
    flaky.fault, flaky.tools = "", ["first", "old"]
    switch_on(page, "flaky")
    scripted.script = [[("first", {})], "It is done."]
    send(page, "Go")
    cards(page).get_by_role("button", name="Allow in this chat").click()
    assert wait_answer(page) == "It is done."
    return page


def call(page: Page, scripted: ScriptedServer) -> str:
    """What a call tells the model. The answer goes on after it, whatever it is."""
    scripted.script = [[("first", {})], "The end."]
    send(page, "Again")
    assert wait_answer(page) == "The end."
    told = [message["content"] for message in scripted.asked[-1]["messages"] if message["role"] == "tool"][-1]
    return json.loads(told)["error"] if told.startswith("{") else told


@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fails_says_how_and_the_next_one_works(
    chat: Page, scripted: ScriptedServer, flaky: FlakyMcp, fault: str
) -> None:
    flaky.fault = fault
    assert FAULTS[fault] in call(chat, scripted)
    expect(cards(chat)).to_have_attribute("data-state", "failed")
    flaky.fault = ""
    assert call(chat, scripted) == "first is done"


def test_a_server_that_was_started_again_gets_a_new_session(
    chat: Page, scripted: ScriptedServer, flaky: FlakyMcp
) -> None:
    """It has other tools by then. The call is made once."""
    flaky.restart()
    flaky.tools = ["first", "old", "second"]
    flaky.asked.clear()
    assert call(chat, scripted) == "first is done"
    assert flaky.asked.count("initialize") == 1
    assert flaky.asked.count("tools/call") == 2, "the one that was refused, and the one that was made"
    call(chat, scripted)
    assert {tool["function"]["name"] for tool in scripted.asked[-1]["tools"]} >= {"first", "second"}


def test_tools_that_have_changed_unsaid_are_listed_again(chat: Page, scripted: ScriptedServer, flaky: FlakyMcp) -> None:
    flaky.tools = ["first", "new"]
    scripted.script = [[("old", {})], "The end."]
    send(chat, "Again")
    cards(chat).get_by_role("button", name="Allow once").click()
    wait_answer(chat)
    assert "Unknown tool: old" in scripted.asked[-1]["messages"][-1]["content"]
    call(chat, scripted)
    assert [tool["function"]["name"] for tool in scripted.asked[-1]["tools"]] == ["first", "new"]


def test_a_slow_call_can_be_stopped(chat: Page, scripted: ScriptedServer, flaky: FlakyMcp) -> None:
    flaky.fault = "slow"
    asked = len(flaky.asked)
    scripted.script = [[("first", {})], "The end."]
    send(chat, "Again")
    expect(cards(chat)).to_have_attribute("data-state", "running")
    wait_for(lambda: len(flaky.asked) > asked)
    chat.click("#stop")
    expect(last_answer(chat).locator(".stats")).to_contain_text("stopped")
    flaky.fault = ""
    flaky.rest.set()
    assert call(chat, scripted) == "first is done"
