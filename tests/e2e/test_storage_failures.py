"""Storage that is full, fails, is denied, or is closed by the browser: each is named, and nothing else is lost."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Page, Route, expect

from tests.faults.lab import assets
from tests.support.browser import new_profile
from tests.support.chat_page import ask, last_answer, new_chat, open_page, wait_answer, wait_ready
from tests.support.chat_store import chat
from tests.support.documents_page import INDEX, drop, listed
from tests.support.faulty_server import FaultyServer, File
from tests.support.full_storage import FAILING, FULL_UNTIL_FREED
from tests.support.gguf_bytes import MINI
from tests.support.openai_client import bundle
from tests.support.waiting import wait_for
from tools.paths import DIST, ROOT
from tools.serve import Server


@pytest.fixture(scope="module")
def page(engine_context: BrowserContext, server: Server) -> Page:
    """The page, whose engine lives on between its reloads."""
    return open_page(engine_context, server.url)


def origin(server: Server) -> str:
    return server.url.rstrip("/")


def close_databases(page: Page, server: Server) -> None:
    """The browser closes the site's databases, as it does when a user removes the site's data."""
    session = page.context.new_cdp_session(page)
    session.send("Storage.clearDataForOrigin", {"origin": origin(server), "storageTypes": "indexeddb"})
    page.wait_for_timeout(300)
    session.detach()


def stored(page: Page) -> str:
    """The shown chat, as it is after a reload."""
    page.reload()
    wait_ready(page)
    return " ".join(page.locator("#thread .message").all_inner_texts())


def test_a_chat_is_stored_as_a_whole_after_its_database_was_closed(page: Page, server: Server) -> None:
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    close_databases(page, server)
    assert "Paris" in ask(page, "What is the capital of France?")
    assert page.locator("#notices .error").all_inner_texts() == []
    page.wait_for_timeout(1500)
    texts = stored(page)
    assert "Italy" in texts
    assert "Paris" in texts


def test_what_a_failed_write_lacked_is_stored_with_the_next_one(page: Page) -> None:
    new_chat(page)
    page.evaluate(FAILING, ["messages"])
    ask(page, "What is the capital of Italy?")
    notice = page.locator("#notices .error")
    expect(notice).to_contain_text("This browser could not store the chat.")
    expect(notice).to_contain_text("failed (UnknownError: Internal error writing to disk.)")
    page.evaluate("mend()")
    ask(page, "What is the capital of France?")
    expect(notice).to_have_count(0)
    texts = stored(page)
    assert "Rome" in texts
    assert "Paris" in texts


def test_what_a_failed_write_lacked_is_stored_when_the_page_closes(page: Page) -> None:
    new_chat(page)
    page.evaluate(FAILING, ["messages"])
    ask(page, "What is the capital of Spain?")
    expect(page.locator("#notices .error")).to_contain_text("could not store the chat")
    page.evaluate("mend()")
    assert "Madrid" in stored(page)


def test_branches_whose_write_failed_are_stored_when_the_page_closes(page: Page) -> None:
    new_chat(page)
    page.evaluate(FAILING, ["messages"])
    first = ask(page, "What is the capital of Spain?")
    last_answer(page).get_by_role("button", name="Answer again").click()
    assert wait_answer(page) == first
    previous = last_answer(page).get_by_role("button", name="Previous version of the answer")
    expect(previous).to_be_enabled()
    page.evaluate("mend()")
    page.reload()
    wait_ready(page)
    previous.click()
    expect(previous).to_be_disabled()
    expect(last_answer(page)).to_contain_text("Madrid")


def test_a_chat_whose_write_failed_stays_while_others_are_shown(page: Page) -> None:
    new_chat(page)
    page.evaluate(FAILING, ["messages"])
    ask(page, "What is the capital of Spain?")
    expect(page.locator("#notices .error")).to_contain_text("could not store the chat")
    new_chat(page)
    chat = page.locator("#chat-list .chat-open").first
    expect(chat).to_have_text("What is the capital of Spain?")
    chat.click()
    expect(last_answer(page)).to_contain_text("Madrid")
    with page.expect_download() as download:  # it can be saved as a file meanwhile
        page.click("#chats-more")
        page.get_by_role("menuitem", name="Save all as JSON").click()
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["chats"]
    assert "Madrid" in saved[0]["messages"][-1]["content"]
    assert len({chat["info"]["id"] for chat in saved}) == len(saved)
    new_chat(page)
    page.evaluate("mend()")
    ask(page, "What is the capital of Italy?")  # a write that succeeds: the other chat is tried again
    expect(page.locator("#notices .error")).to_have_count(0)
    page.reload()
    wait_ready(page)
    page.locator("#chat-list .chat-open", has_text="Spain").first.click()
    expect(last_answer(page)).to_contain_text("Madrid")


def test_several_chats_whose_write_failed_are_stored_when_the_page_closes(page: Page) -> None:
    page.evaluate(FAILING, ["messages"])
    lands = {"Spain": "Madrid", "Italy": "Rome"}
    for land in lands:
        new_chat(page)
        ask(page, f"What is the capital of {land}, please?")
    new_chat(page)
    page.evaluate("mend()")
    page.reload()
    wait_ready(page)
    for land, capital in lands.items():
        page.locator("#chat-list .chat-open", has_text=f"{land}, please").click()
        expect(last_answer(page)).to_contain_text(capital)


def test_documents_are_stored_after_their_database_was_closed(page: Page, server: Server) -> None:
    page.click("#documents-button")
    drop(page, {"before.md": b"Before."})
    expect(listed(page)).to_have_count(1)
    close_databases(page, server)
    drop(page, {"after.md": b"After."})
    expect(listed(page)).to_contain_text(["after.md"])  # what the user has removed stays removed
    assert [document["name"] for document in page.evaluate(INDEX)["documents"]] == ["after.md"]
    page.evaluate(FAILING, ["passages"])
    drop(page, {"failed.md": b"Failed."})
    expect(page.locator("#document-errors")).to_contain_text("failed.md was not read.")
    expect(page.locator("#document-errors")).to_contain_text("Internal error writing to disk")
    page.evaluate("mend()")
    assert [document["name"] for document in page.evaluate(INDEX)["documents"]] == ["after.md"]
    page.get_by_role("button", name="Remove after.md").click()
    expect(listed(page)).to_have_count(0)
    page.keyboard.press("Escape")


def test_a_write_says_why_it_failed(page: Page) -> None:
    """A full storage has a code of its own: whoever frees space elsewhere does so for nothing."""
    found = page.evaluate(
        """async (module) => {
          const { write } = await import(module);
          const failed = async () => write("test", "x").then(() => "", ({ code, message }) => [code, message]);
          const { put } = IDBObjectStore.prototype;
          const { open } = IDBFactory.prototype;
          const throwing = (name) => () => { throw new DOMException("", name); };
          const found = [];
          for (const name of ["QuotaExceededError", "InvalidStateError"]) {
            IDBObjectStore.prototype.put = throwing(name);
            found.push(await failed());
          }
          IDBObjectStore.prototype.put = put;
          IDBFactory.prototype.open = throwing("SecurityError");
          found.push(await failed());
          IDBFactory.prototype.open = open;
          return [...found, await failed()];
        }""",
        bundle("mcp-servers", ROOT / "tests" / "support" / "pages" / "mcp_servers.js"),
    )
    (full, space), (failed, why), (denied, private), written = found
    assert (full, failed, denied, written) == ("quota_exceeded", "storage_failed", "storage_failed", "")
    assert "Free disk space" in space
    assert "InvalidStateError" in why
    assert "private window" in private


ENGINE = """async (model) => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create({ shared: false });
    const failed = (work) => work.then(() => null, ({ code, message }) => [code, message]);
    const set = await failed(engine.upstreams.set({ name: "office", baseURL: "http://127.0.0.1:1/v1", models: ["m"] }));
    await engine.downloads.add({ model });
    let download;
    do {
        await new Promise((resolve) => setTimeout(resolve, 50));
        download = (await engine.downloads.list())[0];
    } while (!["failed", "done"].includes(download.state));
    return { set, state: download.state, download: [download.error?.code, download.error?.message] };
}"""


@pytest.fixture
def blank(chromium: Callable[[str | None], Browser]) -> Iterator[Page]:
    context = new_profile(chromium(None), service_worker=False)
    yield context.new_page()
    context.close()


def run(page: Page, server: Server, host: FaultyServer) -> dict[str, Any]:
    host.files["stored.gguf"] = File(data=MINI.read_bytes())
    page.goto(f"{server.url}tests/blank.html")
    found: dict[str, Any] = page.evaluate(ENGINE, host.url("stored.gguf"))
    return found


def test_the_engine_tells_a_full_storage(blank: Page, server: Server, bad_server: FaultyServer) -> None:
    session = blank.context.new_cdp_session(blank)
    session.send("Storage.overrideQuotaForOrigin", {"origin": origin(server), "quotaSize": 1})
    found = run(blank, server, bad_server)
    assert found["set"][0] == found["download"][0] == "quota_exceeded"
    assert "Free disk space" in found["set"][1]


def test_the_engine_tells_a_storage_that_fails(blank: Page, bad_server: FaultyServer, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(DIST, site, ignore=shutil.ignore_patterns("*.br", "*.gz"))
    script = site / assets(site)["worker"]
    script.write_text(f"({FAILING})(['texts', 'records']);\n{script.read_text(encoding='utf-8')}", encoding="utf-8")
    server = Server(site, 0, mounts={"tests/": ROOT / "tests" / "support" / "pages"}).start()
    found = run(blank, server, bad_server)
    server.shutdown()
    server.server_close()
    assert found["set"][0] == found["download"][0] == "storage_failed"
    for _, message in (found["set"], found["download"]):
        assert "Internal error writing to disk" in message
        assert "disk space" not in message


PROMPT_CACHE = """async () => {
    const { Wisp } = await import("/wisp.js");
    return (await (await Wisp.create()).promptCache.usage()).bytes;
}"""


@pytest.mark.parametrize("names", [["messages"], ["documents"]])
def test_the_prompt_cache_makes_space_for_chats_and_documents(page: Page, names: list[str]) -> None:
    """It can be computed again: nothing is refused while it takes space."""
    page.reload()  # without the notices and the full storage of a test before
    wait_ready(page)
    new_chat(page)
    # A question of its own: what the engine has stored once, it does not store again.
    ask(page, f"In {names[0]}, which of these words is a colour? " + "apple river stone cloud " * 20)
    wait_for(lambda: page.evaluate(PROMPT_CACHE))
    page.evaluate(FULL_UNTIL_FREED, names)
    new_chat(page)
    ask(page, "What is the capital of Italy?")
    page.click("#documents-button")
    drop(page, {"kept.md": b"A cup."})
    expect(listed(page)).to_have_count(1)
    page.keyboard.press("Escape")
    assert page.locator("#notices .error").all_inner_texts() == []
    assert "Rome" in stored(page)
    page.click("#documents-button")
    page.get_by_role("button", name="Remove kept.md").click()
    expect(listed(page)).to_have_count(0)
    page.keyboard.press("Escape")


def test_the_prompt_cache_makes_space_for_an_import(page: Page) -> None:
    page.reload()
    wait_ready(page)
    new_chat(page)
    ask(page, "Which of these words is an animal? " + "apple river horse cloud " * 20)
    wait_for(lambda: page.evaluate(PROMPT_CACHE))
    full = f"({FULL_UNTIL_FREED})(['messages']);"

    def changed(route: Route) -> None:
        response = route.fetch()
        # The second worker starts when the space is free: it cannot hear of that.
        body = "" if page.evaluate("globalThis.isFreed ?? false") else full
        route.fulfill(response=response, body=body + response.text())

    page.evaluate("() => void (new BroadcastChannel('wisp-prefixes').onmessage = () => (globalThis.isFreed = true))")
    page.route(re.compile("chat-import"), changed)
    file = {"format": "wisp-chats", "version": 1, "chats": [chat([("What is it?", "It was imported.")], id="imported")]}
    content = json.dumps(file).encode()
    page.set_input_files("#import-input", FilePayload(name="one.json", mimeType="application/json", buffer=content))
    expect(page.locator("#notices")).to_contain_text("1 chat imported.")
    assert page.evaluate("isFreed")
    page.unroute(re.compile("chat-import"))
