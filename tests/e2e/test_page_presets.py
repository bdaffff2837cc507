"""What a chat is asked with: settings of all chats, of a model and of a chat, assistants, snippets. Private chats."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, close_settings, keep_engine, last_answer, new_chat, open_page, wait_ready
from tools.serve import Server

# Records the requests to the engine.
RECORD = """async () => {
    globalThis.requests = [];
    const engine = await (await import("/wisp.js")).Wisp.create();
    const create = engine.chat.completions.create;
    engine.chat.completions.create = (request, options) => (requests.push(request), create(request, options));
}"""
STORED = """async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const counts = [];
    for (const name of db.objectStoreNames) {
        const request = db.transaction(name).objectStore(name).count();
        counts.push(await new Promise((resolve) => (request.onsuccess = () => resolve(request.result))));
    }
    db.close();
    const engine = await (await import("/wisp.js")).Wisp.create();
    return [counts, await engine.promptCache.usage(), Object.keys(localStorage)];
}"""


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    """A page on the CPU, and its console errors."""
    context = new_profile(chromium(None), service_worker=False, permissions=["clipboard-read", "clipboard-write"])
    keep_engine(context, server.url)
    page = open_page(context, server.url, settings={"max_tokens": 4, "seed": 1})
    page.evaluate(RECORD)
    yield page, watch(page)
    context.close()


def last_request(page: Page) -> dict[str, Any]:
    request: dict[str, Any] = page.evaluate("requests.at(-1)")
    return request


def settings(page: Page, scope: str, label: str, value: str) -> None:
    """Change a setting of all chats, this model, or this chat."""
    page.get_by_role("button", name="Settings").click()
    page.get_by_text(scope, exact=True).click()
    page.get_by_label(label).fill(value)
    close_settings(page)


def test_a_chat_s_settings_win_over_the_model_s_and_those_over_all(talk: Page) -> None:
    page = talk
    settings(page, "This model", "Top-k", "7")
    settings(page, "This chat", "Seed", "99")
    ask(page, "Hi.")
    assert (last_request(page)["top_k"], last_request(page)["seed"], last_request(page)["max_tokens"]) == (7, 99, 4)
    settings(page, "This chat", "Top-k", "3")
    ask(page, "Hi.")
    assert last_request(page)["top_k"] == 3
    new_chat(page)
    ask(page, "Hi.")
    assert (last_request(page)["top_k"], last_request(page)["seed"]) == (7, 1)
    page.get_by_role("button", name="Settings").click()
    page.get_by_text("This model", exact=True).click()
    expect(page.locator("#settings-form .set-here")).to_have_count(1)
    page.get_by_role("button", name="Use the settings of all chats").click()
    expect(page.locator("#settings-form .set-here")).to_have_count(0)
    expect(page.get_by_label("Top-k")).to_have_value("40")
    page.get_by_role("button", name="Done").click()
    page.locator("#chat-rows .chat-open").nth(1).click()  # the first chat has its own
    expect(page.locator("#thread > .user")).to_have_count(2)
    ask(page, "Hi.")
    assert (last_request(page)["top_k"], last_request(page)["seed"]) == (3, 99)


def test_a_context_that_is_too_long_is_lowered_with_a_notice(talk: Page) -> None:
    page = talk
    settings(page, "All chats", "Context length", "65536")
    notice = page.locator("#notices .notice[data-key=context]")
    expect(notice).to_contain_text("2,048 tokens")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Context length").fill("")
    close_settings(page)
    expect(notice).to_have_count(0)


def test_an_assistant_is_written_chosen_edited_and_deleted(talk: Page) -> None:
    page = talk
    chooser, sheet = page.locator("#assistant-button"), page.locator("#presets-dialog")

    def choose(name: str) -> None:
        chooser.click()
        page.get_by_role("menuitem", name=name, exact=True).click()

    choose("Edit assistants and snippets")
    sheet.get_by_role("button", name="New assistant").click()
    sheet.get_by_label("Name").fill("Pirate")
    sheet.get_by_label("System prompt").fill("Talk like a pirate.")
    sheet.get_by_label("Temperature").fill("1.5")
    sheet.get_by_role("button", name="Save").click()
    page.keyboard.press("Escape")
    choose("Pirate")
    expect(chooser).to_have_text("Pirate")
    ask(page, "Hi.")
    request = last_request(page)
    assert request["messages"][0] == {"role": "system", "content": "Talk like a pirate."}
    assert (request["temperature"], request["max_tokens"]) == (1.5, 4)
    choose("Edit assistants and snippets")
    sheet.get_by_role("button", name="Edit Pirate").click()
    sheet.get_by_label("System prompt").fill("Talk like a captain.")
    sheet.get_by_role("button", name="Save").click()
    page.keyboard.press("Escape")
    ask(page, "Hi.")
    assert last_request(page)["messages"][0]["content"] == "Talk like a captain."
    new_chat(page)
    expect(chooser).to_have_text("No assistant")
    choose("Edit assistants and snippets")
    sheet.get_by_role("button", name="Delete Pirate").click()
    sheet.get_by_role("button", name="Undo").click()  # of a notice in the sheet: all else is inert
    sheet.get_by_role("button", name="Delete Pirate").click()
    page.keyboard.press("Escape")
    page.locator("#chat-rows .chat-open").first.click()
    expect(chooser).to_have_text("Pirate")  # the chat still has what it was begun with
    choose("No assistant")
    ask(page, "Hi.")
    assert last_request(page)["messages"][0]["role"] == "user"


def test_a_snippet_is_inserted_and_its_variables_are_filled(talk: Page) -> None:
    page = talk
    snippets = [
        {"id": "1", "name": "letter", "text": "Dear {{name}}, on {{date}} we met in {{place}}."},
        {"id": "2", "name": "paste", "text": "Sum up: {{clipboard}}"},
    ]
    page.evaluate("text => (localStorage['wisp.snippets'] = text)", json.dumps(snippets))
    page.evaluate("navigator.clipboard.writeText('the $& text')")
    page.reload()
    wait_ready(page)
    page.evaluate(RECORD)
    field, names = page.locator("#prompt"), page.locator("#snippet-list li strong")
    field.press_sequentially("Hello /")
    expect(names).to_have_text(["/letter", "/paste"])
    field.press_sequentially("p")
    expect(names).to_have_text(["/paste"])
    field.press("Enter")
    expect(field).to_have_value("Hello Sum up: the $& text")
    field.fill("")
    page.evaluate(
        """() => {
            const { clipboard } = navigator;
            clipboard.readText = () => new Promise((resolve) => {
                document.activeElement.blur(); // as where the browser asks the user
                globalThis.allow = () => (delete clipboard.readText, resolve("it"));
            });
        }"""
    )
    field.press_sequentially("/paste")
    field.press("Enter")
    page.evaluate("allow()")
    expect(field).to_have_value("Sum up: it")
    page.keyboard.type("!")
    expect(field).to_have_value("Sum up: it!")
    page.evaluate(
        """() => (navigator.clipboard.readText = () =>
            new Promise((resolve) => (globalThis.allow = () => resolve("it"))))"""
    )
    field.fill("")
    field.press_sequentially("/paste")
    field.press("Enter")
    field.press("Home")
    page.keyboard.type("No /paste: ")  # the same characters, before those that are replaced
    field.press("End")
    page.keyboard.type("?")
    page.evaluate("() => { allow(); delete navigator.clipboard.readText; }")
    expect(field).to_have_value("No /paste: Sum up: it?")
    page.keyboard.type("!")
    expect(field).to_have_value("No /paste: Sum up: it?!")
    field.fill("")
    field.press_sequentially("/")
    field.press("ArrowDown")
    field.press("ArrowUp")
    field.press("Enter")
    today = page.evaluate("new Date().toLocaleDateString()")
    expect(field).to_have_value(f"Dear {{{{name}}}}, on {today} we met in {{{{place}}}}.")
    page.keyboard.type("Ada")
    page.keyboard.press("Tab")
    page.keyboard.type("Rome")
    expect(field).to_have_value(f"Dear Ada, on {today} we met in Rome.")
    field.fill("see /usr")
    expect(page.locator("#snippet-list")).to_be_hidden()
    field.fill("")


def test_a_private_chat_leaves_nothing(engine_context: BrowserContext, server: Server) -> None:
    """In a profile of its own: what other chats have computed is stored while the page is idle, at any time."""
    page = open_page(engine_context, server.url, settings={"max_tokens": 4, "seed": 1})
    page.evaluate(RECORD)
    before = page.evaluate(STORED)
    page.get_by_role("button", name="Private chat").click()
    expect(page.locator("#private-mark")).to_be_visible()
    ask(page, "My secret is a blue zeppelin. " * 8)
    ask(page, "What is my secret?")
    assert last_request(page)["prompt_cache_retention"] == "in_memory"
    assert "zeppelin" in json.dumps(last_request(page)["messages"])
    expect(page.locator("#thread > .message")).to_have_count(4)
    expect(page).to_have_title("Private chat · Wisp")
    assert "zeppelin" not in page.locator("#sidebar").inner_text()
    page.wait_for_timeout(1500)  # chats are saved once a second
    assert page.evaluate(STORED) == before
    page.reload()
    expect(page.locator("#welcome")).to_be_visible()
    wait_ready(page)
    assert page.evaluate(STORED) == before
    expect(page.locator("#private-mark")).to_be_hidden()
    ask(page, "Hi.")
    assert last_answer(page).locator(".answer-error").count() == 0
