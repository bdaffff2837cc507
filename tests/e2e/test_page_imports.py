"""Imports of many chats: their progress, how they are cancelled, and what becomes of them if storage is full."""

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Locator, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import open_without_engine
from tests.support.chat_store import store_old_chats
from tests.support.full_storage import FULL_UNTIL_FREED
from tests.support.waiting import wait_for
from tools.serve import Server


@pytest.fixture(scope="module")
def blank(context: BrowserContext, server: Server) -> Page:
    """A page of the chat page's origin."""
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    return page


@pytest.fixture
def old_chats(blank: Page, context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page with three chats, without an engine: imports need none."""
    store_old_chats(blank)
    page = open_without_engine(context, server.url)
    errors = watch(page)
    expect(page.locator("#chat-list .chat-open")).to_have_count(3)
    yield page
    page.close()
    assert not errors


# Has an import take a while on any machine: 1 s after each 200 chats, asleep. An import of MANY chats is still under
# way when a busy machine cancels it.
MANY = 6_000
SLOWLY = """() => {
    const { getKey } = IDBObjectStore.prototype;
    const never = new Int32Array(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer);
    IDBObjectStore.prototype.getKey = function (...given) {
        Atomics.wait(never, 0, 0, 1000);
        return getKey.apply(this, given);
    };
}"""
# Keeps messages from the page's workers, so that an import does not begin before its worker is changed.
HOLD = """() => {
    const { postMessage } = Worker.prototype;
    const held = [];
    Worker.prototype.postMessage = function (...message) {
        held.push(() => postMessage.apply(this, message));
    };
    globalThis.release = () => {
        Worker.prototype.postMessage = postMessage;
        for (const send of held) send();
    };
}"""
# Waits for the writes that began before.
STORED = """(async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const counting = db.transaction("chats").objectStore("chats").count();
    const stored = await new Promise((resolve) => (counting.onsuccess = () => resolve(counting.result)));
    db.close();
    return stored;
})()"""


def import_many(page: Page, count: int, how: str = SLOWLY) -> Locator:
    """Import chats; `how` is run in the worker before. Returns the notice of the progress."""
    text = {"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Ahoy " * 40]}}}
    tree = {str(n): text | {"id": str(n), "parent": str(n - 1)} for n in range(2)}
    chats = [{"title": f"Brought {n}", "create_time": n, "update_time": n, "mapping": tree} for n in range(count)]
    file = FilePayload(name="many.json", mimeType="application/json", buffer=json.dumps(chats).encode())
    page.evaluate(HOLD)
    with page.expect_event("worker", lambda worker: "import" in worker.url) as started:
        page.set_input_files("#import-input", file)
    started.value.evaluate(how)
    page.evaluate("release()")
    return page.locator('#notices [data-key^="import "]')


def test_an_import_shows_how_far_it_is_and_is_cancelled_by_keyboard(old_chats: Page) -> None:
    """All or nothing is stored, and the page stays quick meanwhile."""
    page = old_chats
    before = page.evaluate(STORED)
    notice = import_many(page, MANY)
    notice.get_by_role("button", name="Cancel").focus()
    expect(notice).to_contain_text(" of 6,000")
    expect(notice.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(notice).to_have_count(0)
    assert page.evaluate(STORED) == before
    expect(page.locator("#chat-rows > .chat")).to_have_count(before)
    expect(page.locator("#notices", has_text="imported")).to_have_count(0)


def test_a_press_while_the_progress_changes_cancels(old_chats: Page) -> None:
    """The button that was pressed is the one that is released."""
    page = old_chats
    before = page.evaluate(STORED)
    notice = import_many(page, MANY)
    expect(notice).to_contain_text(" of 6,000")
    notice.get_by_role("button", name="Cancel").hover()
    page.mouse.down()
    told = notice.inner_text()
    wait_for(lambda: notice.inner_text() != told)
    page.mouse.up()
    expect(notice).to_have_count(0)
    assert page.evaluate(STORED) == before


def test_two_imports_have_a_cancel_each(old_chats: Page) -> None:
    page = old_chats
    before = page.evaluate(STORED)
    import_many(page, MANY)
    notices = import_many(page, MANY)
    expect(notices).to_have_count(2)
    for _ in range(2):
        notices.first.get_by_role("button", name="Cancel").click()
    expect(notices).to_have_count(0)
    assert page.evaluate(STORED) == before


# Has the write of the 301st chat fail: at once, as one that cannot be stored, and later, as its key is taken.
FAILING = """(how) => {
    const { put } = IDBObjectStore.prototype;
    let [count, first] = [0, null];
    IDBObjectStore.prototype.put = function (value) {
        if (this.name !== "chats") return put.call(this, value);
        first ??= value;
        if (++count !== 301) return put.call(this, value);
        if (how === "at once") throw new DOMException("", "QuotaExceededError");
        return this.add(first);
    };
}"""


@pytest.mark.parametrize(
    ("how", "why"), [("at once", "The storage of this browser is full."), ("later", "Key already")]
)
def test_an_import_that_fails_stores_nothing_and_says_why(old_chats: Page, how: str, why: str) -> None:
    before = old_chats.evaluate(STORED)
    import_many(old_chats, 400, f"({FAILING})({json.dumps(how)})")
    expect(old_chats.locator("#notices .error")).to_contain_text("many.json was not imported")
    expect(old_chats.locator("#notices .error")).to_contain_text(why)
    assert old_chats.evaluate(STORED) == before


def test_a_full_storage_is_told_though_no_engine_can_free_any(old_chats: Page) -> None:
    """The prompt cache is the engine's, which may never start."""
    page = old_chats
    page.evaluate(f"({FULL_UNTIL_FREED})(['chats'])")
    row = page.locator("#chat-rows > .chat").first
    row.hover()
    row.get_by_role("button", name="Rename").click()
    page.keyboard.type("By another name")
    page.keyboard.press("Enter")
    expect(page.locator("#notices .error")).to_contain_text("The storage of this browser is full.")
