"""A page that closes while its writes wait: the browser drops its last transactions, and nothing may be lost."""

import json
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import wait_until
from tests.support.chat_page import (
    answer_by,
    ask,
    cards,
    keep_engine,
    last_answer,
    new_chat,
    open_page,
    send,
    wait_ready,
)
from tests.support.chat_store import chat, store_chats
from tests.support.full_storage import FAILING, held
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server

# Full for chats, also after a reload, while localStorage has "full".
FULL = """{
    const { put } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.put = function (...args) {
        if (!localStorage.full || !["chats", "messages"].includes(this.name)) return put.apply(this, args);
        throw new DOMException("", "QuotaExceededError");
    };
}"""
LEFT = "Object.keys(localStorage).filter((key) => key.startsWith('wisp.closing.'))"
NOTHING_LEFT = f"!{LEFT}.length"  # the keeper, in another process, hears of it later than the page


@pytest.fixture(scope="module")
def keeper(context: BrowserContext, server: Server) -> Page:
    """A tab that is no chat page. It keeps the engine, and its transactions make writes wait."""
    return keep_engine(context, server.url)


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server, scripted: ScriptedServer, keeper: Page) -> Page:
    """A chat page with the scripted model."""
    page = open_page(context, server.url)
    answer_by(page, scripted.url)
    return page


@pytest.fixture
def page(opened: Page, keeper: Page) -> Iterator[Page]:
    """The chat page with an empty chat."""
    new_chat(opened)
    yield opened
    wait_until(keeper, NOTHING_LEFT)


def reload(page: Page) -> None:
    """Reload the page and wait for its model."""
    page.reload()
    wait_ready(page)


def texts(page: Page) -> list[str]:
    """The questions and answers that the page shows."""
    # an answer that has just been rendered may end with a line break
    return [text.strip() for text in page.locator("#thread > li").locator(".bubble, .body").all_inner_texts()]


def titles(page: Page) -> list[str]:
    """The chats of the list."""
    return page.locator("#chat-list .chat-open").all_inner_texts()


def rename(page: Page, title: str, name: str) -> None:
    """Rename a chat of the list."""
    row = page.locator("#chat-rows > .chat", has_text=title)
    row.hover()
    row.get_by_role("button", name=f"Rename “{title}”").click()
    page.keyboard.type(name)
    page.keyboard.press("Enter")


def delete(page: Page, title: str) -> None:
    """Delete a chat of the list."""
    row = page.locator("#chat-rows > .chat", has_text=title)
    row.hover()
    row.get_by_role("button", name=f"Delete “{title}”").click()


def test_a_whole_chat_whose_writes_waited_is_there(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["One.", "Two."]
    with held(keeper):
        ask(page, "The first question")
        ask(page, "The second one")
        page.reload()
    wait_ready(page)
    expect(last_answer(page)).to_contain_text("Two.")
    assert texts(page) == ["The first question", "One.", "The second one", "Two."]
    reload(page)
    assert texts(page) == ["The first question", "One.", "The second one", "Two."]


def test_an_answer_in_progress_is_there_as_far_as_it_was(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script, scripted.rest = ["The beginning"], threading.Event()
    with held(keeper):
        send(page, "A story, please")
        expect(last_answer(page)).to_contain_text("The beginning")
        page.reload()
    scripted.rest.set()
    scripted.rest = None
    wait_ready(page)
    expect(last_answer(page)).to_contain_text("The beginning")
    expect(page.locator("#thread > .growing")).to_have_count(0)
    assert texts(page) == ["A story, please", "The beginning"]


def test_several_chats_whose_writes_failed_are_there(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    page.evaluate(FAILING, ["messages"])
    lands = {"Spain": "Madrid", "Italy": "Rome"}
    for land, capital in lands.items():
        new_chat(page)
        scripted.script = [f"It is {capital}."]
        ask(page, f"And that of {land}?")
    new_chat(page)
    page.evaluate("mend()")
    with held(keeper):
        page.reload()
    wait_ready(page)
    for land, capital in lands.items():
        page.locator("#chat-list .chat-open", has_text=f"that of {land}").click()
        expect(last_answer(page)).to_contain_text(capital)


def test_versions_of_an_answer_are_there(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["One.", "Two."]
    ask(page, "Which one?")
    with held(keeper):
        last_answer(page).get_by_role("button", name="Answer again").click()
        expect(last_answer(page)).to_contain_text("Two.")
        expect(page.locator("#thread > .growing")).to_have_count(0)
        last_answer(page).get_by_role("button", name="Previous version of the answer").click()
        expect(last_answer(page)).to_contain_text("One.")
        page.reload()
    wait_ready(page)
    expect(last_answer(page)).to_contain_text("One.")
    last_answer(page).get_by_role("button", name="Next version of the answer").click()
    expect(last_answer(page)).to_contain_text("Two.")


def test_a_chat_is_renamed_and_another_deleted(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["Yes."]
    for name in ("To be renamed", "To be deleted"):
        new_chat(page)
        ask(page, name)
    new_chat(page)
    with held(keeper):
        rename(page, "To be renamed", "By another name")
        delete(page, "To be deleted")
        page.reload()
    wait_ready(page)
    expect(page.locator("#chat-list .chat-open", has_text="By another name")).to_have_count(1)
    assert not [title for title in titles(page) if title.startswith("To be")]


def test_a_deleted_chat_whose_write_failed_stays_deleted(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    """A write before the deletion succeeds: what failed is tried again, but not this chat."""
    scripted.script = ["Yes."]
    ask(page, "Another chat")
    new_chat(page)
    page.evaluate(FAILING, ["messages"])
    ask(page, "Failed and deleted")
    expect(page.locator("#notices .error")).to_contain_text("could not store the chat")
    page.evaluate("mend()")
    with held(keeper):
        rename(page, "Another chat", "Renamed meanwhile")
        delete(page, "Failed and deleted")
    expect(page.locator("#notices .error")).to_have_count(0)
    reload(page)
    expect(page.locator("#chat-list .chat-open", has_text="Renamed meanwhile")).to_have_count(1)
    assert "Failed and deleted" not in titles(page)


def test_a_deleted_chat_whose_new_name_was_not_stored_stays_deleted(
    page: Page, keeper: Page, scripted: ScriptedServer
) -> None:
    scripted.script = ["Yes."]
    ask(page, "Renamed and deleted")
    new_chat(page)
    page.evaluate(FAILING, ["chats"])
    rename(page, "Renamed and deleted", "A name that fails")
    expect(page.locator("#notices .error")).to_contain_text("could not store the chat")
    page.evaluate("mend()")
    with held(keeper):
        delete(page, "A name that fails")
        page.reload()
    wait_ready(page)
    wait_until(keeper, NOTHING_LEFT)
    assert not {"A name that fails", "Renamed and deleted"} & {*titles(page)}


# Deletes a chat as another tab does, when the transactions before have ended.
DELETE = """async (title) => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const chats = db.transaction("chats", "readwrite").objectStore("chats");
    chats.transaction.oncomplete = () => db.close();
    chats.openCursor().onsuccess = ({ target: { result: cursor } }) => {
        if (cursor?.value.title === title) cursor.delete();
        cursor?.continue();
    };
}"""


def test_a_new_name_that_comes_after_another_tab_s_deletion_brings_nothing_back(
    page: Page, keeper: Page, scripted: ScriptedServer
) -> None:
    scripted.script = ["Yes."]
    ask(page, "Deleted elsewhere")
    new_chat(page)
    with held(keeper):
        keeper.evaluate(DELETE, "Deleted elsewhere")
        rename(page, "Deleted elsewhere", "A late name")
    ask(page, "Something after that")
    reload(page)
    assert not {"A late name", "Deleted elsewhere"} & {*titles(page)}


def test_a_clock_that_goes_back_makes_nothing_older(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["One.", "Two."]
    ask(page, "Before the clock went back")
    page.evaluate("{ const now = Date.now; Date.now = () => now() - 3_600_000; }")
    with held(keeper):
        ask(page, "And after that")
        page.reload()
    wait_ready(page)
    expect(last_answer(page)).to_contain_text("Two.")
    assert texts(page) == ["Before the clock went back", "One.", "And after that", "Two."]


def test_a_new_name_whose_write_failed_is_stored_with_the_next_write(page: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["Yes."]
    ask(page, "An old name")
    new_chat(page)
    page.evaluate(FAILING, ["chats"])
    rename(page, "An old name", "A newer name")
    expect(page.locator("#notices .error")).to_contain_text("could not store the chat")
    page.evaluate("mend()")
    ask(page, "Something else")
    expect(page.locator("#notices .error")).to_have_count(0)
    reload(page)
    expect(page.locator("#chat-list .chat-open", has_text="A newer name")).to_have_count(1)


def test_another_tab_stores_and_shows_it(page: Page, keeper: Page, server: Server, scripted: ScriptedServer) -> None:
    scripted.script = ["One.", "Two."]
    ask(page, "In both tabs")
    other = open_page(page.context, server.url)
    expect(last_answer(other)).to_contain_text("One.")
    with held(keeper):
        ask(page, "In one tab")
        page.goto("about:blank")
    expect(last_answer(other)).to_contain_text("Two.")
    assert texts(other) == ["In both tabs", "One.", "In one tab", "Two."]
    other.close()
    page.goto(server.url)
    wait_ready(page)
    assert texts(page) == ["In both tabs", "One.", "In one tab", "Two."]


def test_nothing_of_a_private_chat_is_left(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    scripted.script = ["Open."]
    with held(keeper):
        ask(page, "An open question")
        page.click("#private-chat")
        scripted.rest = threading.Event()
        scripted.script = ["A secret."]
        send(page, "A private question")
        expect(last_answer(page)).to_contain_text("A secret.")
        page.goto("about:blank")
        wait_until(keeper, f"{LEFT}.length > 0")
        stored = keeper.evaluate("JSON.stringify(localStorage)")
    scripted.rest.set()
    scripted.rest = None
    assert "An open question" in stored
    assert "private question" not in stored
    assert "secret" not in stored
    page.go_back()
    wait_ready(page)


WITH_FILE = """async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const writing = db.transaction("messages", "readwrite").objectStore("messages");
    const message = { chat: "files", n: 1, parent: 0, role: "assistant", content: "So far", finish: "stop" };
    const call = { id: "a", name: "javascript", arguments: "{}", state: "done", text: "Made." };
    const files = [{ name: "made.txt", blob: new Blob(["made"]) }];
    const stepWith = (parts) => [{ content: "", calls: [{ ...call, ...parts }] }];
    writing.put({ ...message, steps: stepWith({ files }) });
    await new Promise((resolve) => (writing.transaction.oncomplete = resolve));
    db.close();
    const info = { id: "files", title: "Files", created: 1, updated: 1, shown: 1 };
    const messages = [{ ...message, content: "So far, and more", steps: stepWith({ files: [{ name: "made.txt" }] }) }];
    localStorage["wisp.closing.files.1"] = JSON.stringify({ info, messages, wasStored: true, isDeleted: false });
}"""


def test_what_a_call_has_made_stays(page: Page, keeper: Page) -> None:
    """Files do not fit into what is stored at once; those that are stored already stay."""
    store_chats(page, [chat([("Question", "So far")], id="files", title="Files")])
    keeper.evaluate(WITH_FILE)
    page.locator("#chat-list .chat-open", has_text="Files").click()
    expect(last_answer(page)).to_contain_text("So far, and more")
    cards(page).locator("summary").first.click()
    expect(cards(page)).to_contain_text("made.txt")


def test_a_chat_survives_a_storage_that_stays_full(page: Page, keeper: Page, scripted: ScriptedServer) -> None:
    page.add_init_script(FULL)
    reload(page)
    new_chat(page)
    scripted.script = ["It is full."]
    keeper.evaluate("localStorage.full = '1'")
    ask(page, "How full is it?")
    expect(page.locator("#notices .error")).to_contain_text("The storage of this browser is full.")
    for _ in range(2):
        reload(page)
        expect(page.locator("#notices .error")).to_contain_text("The storage of this browser is full.")
        assert texts(page) == ["How full is it?", "It is full."]
        assert "How full is it?" in titles(page)
    keeper.evaluate("localStorage.removeItem('full')")
    scripted.script = ["No more."]
    ask(page, "And now?")
    expect(page.locator("#notices .error")).to_have_count(0)
    wait_until(keeper, NOTHING_LEFT)
    reload(page)
    assert texts(page) == ["How full is it?", "It is full.", "And now?", "No more."]


# The answers that are stored of a chat.
ANSWERS = """async (id) => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const reading = db.transaction("messages").objectStore("messages").getAll(IDBKeyRange.bound([id], [id, []]));
    const messages = await new Promise((resolve) => (reading.onsuccess = () => resolve(reading.result)));
    db.close();
    return messages.filter(({ role }) => role === "assistant").map(({ content }) => content);
}"""
OLD = {"role": "assistant", "content": "Old.", "n": 1, "parent": 0, "finish": "stopped"}
ADDED = {"role": "assistant", "content": "Added.", "n": 7, "parent": 0, "finish": "stop"}


@pytest.mark.parametrize(
    ("late", "shown"),
    [
        ({"updated": 0, "messages": [OLD, ADDED]}, ["Newer.", "Added."]),
        ({"updated": 2, "messages": [OLD, ADDED]}, ["Old.", "Added."]),
        ({"updated": 2, "messages": [{"n": "x"}, 7, None, ADDED]}, ["Newer.", "Added."]),
        ({"updated": 2, "messages": "damaged"}, ["Newer."]),
        ({"updated": 0, "messages": [], "isDeleted": True}, ["Newer."]),
        ({"updated": 2, "messages": [], "isDeleted": True}, []),
        ({"updated": 2, "messages": [OLD, ADDED], "id": "deleted elsewhere"}, ["Newer."]),
    ],
)
def test_what_is_left_late_replaces_nothing_newer(
    page: Page, keeper: Page, late: dict[str, object], shown: list[str]
) -> None:
    """Another tab may have gone on with the chat, or have deleted it."""
    stored = chat([("Question", "Newer.")], id=str(uuid4()), title="Late")
    store_chats(page, [stored])
    info = stored["info"] | {"updated": late["updated"], "id": late.get("id", stored["info"]["id"])}
    left = {"info": info, "wasStored": True, "isDeleted": False} | late
    keeper.evaluate("(left) => (localStorage['wisp.closing.late.1'] = left)", json.dumps(left))
    wait_until(keeper, NOTHING_LEFT)
    assert keeper.evaluate(ANSWERS, stored["info"]["id"]) == shown
    assert keeper.evaluate(ANSWERS, "deleted elsewhere") == []
