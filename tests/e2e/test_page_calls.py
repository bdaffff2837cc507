"""Calls of tools as a user sees them: what went wrong, where the focus is, and what a prompt that is too long says."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.chat_page import (
    ask,
    cards,
    last_answer,
    new_chat,
    send,
    switch_on,
    use_wisp_mini,
    wait_answer,
)
from tests.support.scripted_server import ScriptedServer


@pytest.fixture
def talk(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page with an empty chat; a test fails if the page logged an error."""
    page, errors = opened
    errors.clear()
    new_chat(page)
    yield page
    assert not [error for error in errors if "localStorage" not in error]  # of open_page()'s script in the sandbox


def test_a_failed_call_says_why_while_it_is_folded(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    code = "console.log('Counting.'); throw new Error('The till is closed.')"
    scripted.script = [[("javascript", {"code": code}), ("absent", {})], "Neither ran."]
    send(talk, "Go")
    cards(talk).first.get_by_role("button", name="Allow once").click()
    assert wait_answer(talk) == "Neither ran."
    expect(cards(talk).nth(0).locator(".call-why")).to_have_text("Error: The till is closed.")
    expect(cards(talk).nth(1).locator(".call-why")).to_have_text("There is no tool absent.")
    cards(talk).nth(1).locator("summary").click()
    expect(cards(talk).nth(1).locator(".call-why")).to_be_hidden()
    expect(cards(talk).nth(1).locator(".call-result")).to_have_text("There is no tool absent.")


def test_the_focus_stays_at_a_call_that_was_decided(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    scripted.script = [[("javascript", {"code": "return 1"}), ("javascript", {"code": "return 2"})], "Done."]
    send(talk, "Go")
    for i, name in enumerate(("Allow once", "Refuse")):
        cards(talk).nth(i).get_by_role("button", name=name).press("Enter")
        expect(cards(talk).nth(i).locator("summary")).to_be_focused()
    assert wait_answer(talk) == "Done."


def test_a_prompt_that_is_too_long_names_the_tools(talk: Page) -> None:
    use_wisp_mini(talk)
    switch_on(talk)
    ask(talk, "many words " * 1_500)
    expect(last_answer(talk).get_by_role("group", name="Error")).to_contain_text("the system prompt and the tools have")
