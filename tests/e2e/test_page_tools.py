"""Chats with tools: calls are shown and asked for, run in the sandbox, and told to the model, within a budget."""

import hashlib
import json
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import wait_until
from tests.support.chat_page import (
    cards,
    last_answer,
    new_chat,
    send,
    switch_on,
    wait_answer,
    wait_ready,
)
from tests.support.mcp_servers import mcp_server
from tests.support.scripted_server import ScriptedServer
from tools.wheel import wheel

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"/>'
# Python starts only where a test needs it: that takes most of a test's time. test_code_tool.py has what it does.
PLOT = f"save('plot.svg', '{SVG}'); return 6 * 7"


@pytest.fixture
def talk(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page with an empty chat; a test fails if the page logged an error."""
    page, errors = opened
    errors.clear()
    new_chat(page)
    yield page
    assert not [
        error for error in errors if "localStorage" not in error
    ]  # open_page()'s script runs in the sandbox, too


def results(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def test_a_call_is_shown_asked_for_and_told_to_the_model(talk: Page, scripted: ScriptedServer) -> None:
    scripted.asked.clear()
    scripted.script = [[("javascript", {"code": PLOT})], "It is **42**."]
    send(talk, "What is six times seven?")
    assert wait_answer(talk) == ""  # the model's calls do not run in a chat without tools
    assert "tools" not in scripted.asked[0]
    switch_on(talk)
    scripted.script = [[("javascript", {"code": PLOT})], "It is **42**."]
    send(talk, "What is six times seven?")
    card = cards(talk)
    expect(card.get_by_role("button", name="Allow once")).to_be_visible()
    expect(card).to_contain_text("return 6 * 7")
    assert len(scripted.asked) == 2  # nothing is told before the user has decided
    card.get_by_role("button", name="Allow once").click()
    assert wait_answer(talk) == "It is 42."
    expect(card).to_have_attribute("data-state", "done")
    expect(card.locator("img")).to_have_js_property("naturalWidth", 80)
    assert [tool["function"]["name"] for tool in scripted.asked[1]["tools"]] == ["python", "javascript"]
    asked = scripted.asked[2]
    assert results(asked) == ["42\nThe user was given: plot.svg"]
    call = asked["messages"][-2]["tool_calls"][0]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("call_2_0", {"code": PLOT})


def test_permissions_of_a_chat_and_refusals(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    scripted.asked.clear()
    scripted.script = [
        [("javascript", {"code": "return 1"}), ("javascript", {"code": "throw new Error('no')"})],
        [("javascript", {"code": "return 2"}), ("python", {"code": "3"})],
        [("nothing", {})],
        "Done.",
    ]
    send(talk, "Go")
    expect(cards(talk).nth(1).get_by_role("button", name="Allow once")).to_be_visible()
    cards(talk).nth(0).get_by_role("button", name="Allow in this chat").click()  # the other call that waits, too
    cards(talk).nth(3).get_by_role("button", name="Refuse").click()  # JavaScript may run; Python is another tool
    assert wait_answer(talk) == "Done."
    states = [cards(talk).nth(i).get_attribute("data-state") for i in range(5)]
    assert states == ["done", "failed", "done", "refused", "failed"]
    told = results(scripted.asked[-1])
    assert told[:3] == ["1", "Error: no", "2"]
    assert "did not allow" in told[3]
    assert "no tool nothing" in told[4]


def test_a_reload_runs_no_call_twice_unasked(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    scripted.asked.clear()
    endless = "await new Promise(() => {})"
    scripted.script = [[("javascript", {"code": "return Date.now()"}), ("javascript", {"code": endless})], "Both ran."]
    send(talk, "Go")
    cards(talk).nth(0).get_by_role("button", name="Allow in this chat").click()
    expect(cards(talk).nth(0)).to_have_attribute("data-state", "done")
    expect(cards(talk).nth(1)).to_have_attribute("data-state", "running")
    before = cards(talk).nth(0).locator(".call-result").text_content()
    talk.reload()
    wait_ready(talk)
    expect(cards(talk).nth(1)).to_contain_text("did not end")
    expect(cards(talk).nth(0).locator(".call-result")).to_have_text(before or "-")
    assert len(scripted.asked) == 1
    last_answer(talk).get_by_role("button", name="Continue the answer").click()
    expect(cards(talk).nth(1)).to_contain_text("may have run already")
    expect(cards(talk).nth(1).locator(".call-state")).to_have_text("waits")
    cards(talk).nth(1).get_by_role("button", name="Refuse").click()
    assert wait_answer(talk) == "Both ran."
    first, second = results(scripted.asked[-1])
    assert first == before
    assert "did not allow" in second


def test_a_reload_while_a_call_fetches_leaves_it_without_a_result(talk: Page, scripted: ScriptedServer) -> None:
    """The browser ends the fetches of a page that is left: that is no failure of the call."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        talk.evaluate(
            """(silent) => {
              const { fetch } = window;
              window.fetch = (address, ...more) =>
                fetch(`${address}`.includes("code-worker") ? silent : address, ...more);
            }""",
            address,
        )
        switch_on(talk)
        scripted.asked.clear()
        scripted.script = [[("javascript", {"code": "return 6 * 7"})], "It is 42."]
        send(talk, "Go")
        cards(talk).get_by_role("button", name="Allow once").click()
        connection, _ = silent.accept()
        expect(cards(talk)).to_have_attribute("data-state", "running")
        talk.reload()
        connection.close()
    wait_ready(talk)
    expect(cards(talk)).to_contain_text("did not end")
    last_answer(talk).get_by_role("button", name="Continue the answer").click()
    cards(talk).get_by_role("button", name="Allow once").click()
    assert wait_answer(talk) == "It is 42."
    assert results(scripted.asked[-1]) == ["42"]


def test_a_call_that_fails_while_the_page_is_away_goes_on_when_it_is_back(talk: Page, scripted: ScriptedServer) -> None:
    """The back/forward cache brings a page back as it was: its answer is not left waiting."""
    talk.evaluate(
        """() => {
          const { fetch } = window;
          globalThis.asWritten = () => void (window.fetch = fetch);
          window.fetch = (address, ...more) => `${address}`.includes("code-worker")
            ? new Promise((_, reject) => (globalThis.fails = () => reject(new Error("The connection ended."))))
            : fetch(address, ...more);
        }"""
    )
    try:
        switch_on(talk)
        scripted.asked.clear()
        scripted.script = [[("javascript", {"code": "return 6 * 7"})], "It failed."]
        send(talk, "Go")
        cards(talk).get_by_role("button", name="Allow once").click()
        wait_until(talk, "globalThis.fails")
        talk.evaluate(
            """async () => {
              dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true }));
              fails();
              await new Promise((resolve) => setTimeout(resolve, 50));
            }"""
        )
        expect(cards(talk)).to_have_attribute("data-state", "running")
        talk.evaluate("() => void dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
        assert wait_answer(talk) == "It failed."
        expect(cards(talk)).to_have_attribute("data-state", "failed")
        assert "cannot be loaded" in results(scripted.asked[-1])[0]
    finally:
        talk.evaluate("asWritten()")


def test_an_answer_that_came_at_once_has_no_speed(talk: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["Yes."]
    send(talk, "Is it?")
    wait_answer(talk)
    expect(last_answer(talk).locator(".stats")).to_contain_text("first token in")
    assert "tokens/s" not in last_answer(talk).locator(".stats").inner_text()


def test_screen_readers_are_told_of_a_long_answer_to_its_end(talk: Page, scripted: ScriptedServer) -> None:
    """It is shown in pieces, and announced after the last."""
    scripted.script = ["A paragraph with *marks* and `code`.\n\n" * 2_000 + "The very end."]
    send(talk, "An essay?")
    wait_until(talk, "document.querySelector('#live').textContent.startsWith('Answer: A paragraph')")
    assert talk.locator("#live").evaluate("(live) => live.textContent.trim()").endswith("The very end.")


def test_stop_ends_a_call_and_the_answer(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    scripted.asked.clear()
    scripted.script = [[("javascript", {"code": "for (;;);"})], "Never."]
    talk.evaluate("document.querySelectorAll('iframe').forEach((frame) => frame.classList.add('earlier'))")
    send(talk, "Go")
    cards(talk).get_by_role("button", name="Allow once").click()
    expect(cards(talk)).to_have_attribute("data-state", "running")
    frames = talk.locator("body > iframe:not(.earlier)")  # Python's of an earlier answer may be there
    expect(frames).to_have_count(1)
    talk.click("#stop")
    expect(last_answer(talk).locator(".stats")).to_contain_text("stopped")
    expect(frames).to_have_count(0)
    assert len(scripted.asked) == 1


def test_an_answer_ends_with_its_budget_of_turns(talk: Page, scripted: ScriptedServer) -> None:
    switch_on(talk)
    scripted.asked.clear()
    scripted.script = [[("javascript", {"code": "return 1"})]]
    send(talk, "Go")
    cards(talk).first.get_by_role("button", name="Allow in this chat").click()
    assert wait_answer(talk) == "No more calls."
    assert [request.get("tool_choice") for request in scripted.asked] == [None] * 7 + ["none"]
    expect(last_answer(talk).locator(".stats")).to_contain_text("all turns used")
    expect(cards(talk)).to_have_count(7)


def test_a_chat_calls_the_tools_of_an_mcp_server(talk: Page, scripted: ScriptedServer) -> None:
    with mcp_server("--cors") as url:
        talk.click("#settings-button")
        talk.click("#mcp-button")
        talk.click("#mcp-add")
        talk.fill("#mcp-form [name=name]", "till")
        talk.fill("#mcp-form [name=url]", url)
        talk.click("#mcp-form [type=submit]")
        expect(talk.locator("#mcp-form")).to_be_hidden()
        talk.click("#mcp-dialog [data-close]")
        talk.click("#settings-dialog [data-close]")
        talk.click("#tools-button")
        talk.get_by_role("menuitem", name="till").click()
        scripted.asked.clear()
        scripted.script = [[("price", {"article": "pears", "count": 2})], "Six euros."]
        send(talk, "What do two pears cost?")
        expect(cards(talk)).to_contain_text("May price of “till” run")
        cards(talk).get_by_role("button", name="Allow once").click()
        assert wait_answer(talk) == "Six euros."
        talk.click("#settings-button")
        talk.click("#mcp-button")
        talk.get_by_role("button", name="Remove till").click()  # before its server ends
        talk.click("#mcp-dialog [data-close]")
        talk.click("#settings-dialog [data-close]")
        expect(talk.locator("#tools-button")).to_have_attribute("aria-pressed", "false")
    assert results(scripted.asked[-1]) == ["2 pears: 6 euros"]
    assert "python" not in [tool["function"]["name"] for tool in scripted.asked[0]["tools"]]


GREET = ("python", {"code": "import greetings; greetings.TEXT", "packages": ["greetings"]})
STORES = "(await caches.keys()).filter((name) => name.startsWith('wisp-sandbox-packages'))"


@pytest.fixture
def pypi(talk: Page) -> Iterator[list[str]]:
    """A PyPI with one package: the addresses that were asked for. Packages are off again in the end."""
    made = wheel("greetings", "1.0", {"greetings.py": b"TEXT = 'Hello'"}, {})
    file = "greetings-1.0-py3-none-any.whl"
    page = f'<a href="https://files.pythonhosted.org/{file}#sha256={hashlib.sha256(made).hexdigest()}">{file}</a>'
    cors = {"access-control-allow-origin": "*"}
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        is_wheel = route.request.url.endswith(".whl")
        route.fulfill(body=made if is_wheel else page, content_type=None if is_wheel else "text/html", headers=cors)

    servers = re.compile("https://(pypi.org|files.pythonhosted.org)/")
    talk.route(servers, answer)
    yield asked
    talk.unroute(servers)
    talk.evaluate("localStorage.removeItem('wisp.tools.packages')")
    talk.evaluate(f"async () => Promise.all(({STORES}).map((name) => caches.delete(name)))")


def test_packages_of_pypi_are_asked_for(talk: Page, scripted: ScriptedServer, pypi: list[str]) -> None:
    """Off by default; the question names the packages and the servers, even where the tool itself may always run."""
    switch_on(talk)
    scripted.asked.clear()
    scripted.script = [[GREET], "No."]
    send(talk, "Greet")
    cards(talk).get_by_role("button", name="Allow in this chat").click()
    assert wait_answer(talk) == "No."
    assert "not in this sandbox" in results(scripted.asked[-1])[0]
    talk.click("#tools-button")
    talk.get_by_role("menuitem", name="Python packages from PyPI, asked before they are fetched").click()
    for choice, said in (("Refuse", "did not allow"), ("Allow once", "'Hello'")):
        scripted.script = [[GREET], "Done."]
        send(talk, "Greet")
        expect(cards(talk)).to_contain_text("Fetch greetings and what they need from pypi.org, files.pythonhosted.org?")
        assert pypi == []
        cards(talk).get_by_role("button", name=choice).click()
        assert wait_answer(talk) == "Done."
        assert said in results(scripted.asked[-1])[-1]
    assert pypi == [
        "https://pypi.org/simple/greetings/",
        "https://files.pythonhosted.org/greetings-1.0-py3-none-any.whl",
    ]
    assert talk.evaluate(f"async () => ({STORES}).length") == 1  # test_code_packages.py has how it is used
    talk.click("#tools-button")
    talk.get_by_role("menuitem", name="Python packages from PyPI: switching off deletes them").click()
    wait_until(talk, f"!({STORES}).length")


def test_a_private_chat_stores_no_packages(talk: Page, scripted: ScriptedServer, pypi: list[str]) -> None:
    talk.evaluate("localStorage['wisp.tools.packages'] = 'ask'")
    talk.click("#private-chat")
    switch_on(talk)
    scripted.script = [[GREET], "Done."]
    send(talk, "Greet")
    for question in ("May Python of", "Fetch greetings"):
        expect(cards(talk)).to_contain_text(question)
        cards(talk).get_by_role("button", name="Allow once").click()
    assert wait_answer(talk) == "Done."
    assert "'Hello'" in results(scripted.asked[-1])[-1]
    assert len(pypi) == 2
    stored = f"async () => Promise.all(({STORES}).map(async (name) => (await (await caches.open(name)).keys()).length))"
    assert sum(talk.evaluate(stored)) == 0
    new_chat(talk)


def test_a_file_of_the_user_is_there_for_python(talk: Page, scripted: ScriptedServer) -> None:
    talk.click("#attach")
    expect(talk.get_by_role("menuitem", name="Files for tools")).to_have_count(0)  # no tool would read them
    talk.keyboard.press("Escape")
    switch_on(talk)
    talk.click("#attach")
    with talk.expect_file_chooser() as chooser:
        talk.get_by_role("menuitem", name="Files for tools").click()
    chooser.value.set_files({"name": "sales.csv", "mimeType": "text/csv", "buffer": b"2\n40\n"})
    expect(talk.locator("#attachments")).to_contain_text("sales.csv")
    scripted.asked.clear()
    scripted.script = [[("python", {"code": "sum(int(line) for line in open('sales.csv'))"})], "It is 42."]
    send(talk, "Sum these.")
    cards(talk).get_by_role("button", name="Allow once").click()
    assert wait_answer(talk) == "It is 42."
    assert scripted.asked[0]["messages"][-1]["content"] == "Sum these.\n[Attached file: sales.csv]"
    assert results(scripted.asked[-1]) == ["42"]
    expect(talk.locator("#thread .user").get_by_role("link", name="sales.csv")).to_be_visible()
