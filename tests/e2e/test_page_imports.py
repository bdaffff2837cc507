"""Imports of many chats: their progress, how they are cancelled, and what becomes of them if storage is full."""

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, FilePayload, Locator, Page, expect

from tests.support.chat_page import page_of_old_chats, profile_with_engine
from tests.support.waiting import wait_for
from tools.serve import Server


@pytest.fixture(scope="module")
def context(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[BrowserContext]:
    """A profile with an engine, which the page of each test uses."""
    yield from profile_with_engine(chromium(None), server.url)


@pytest.fixture
def talk(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page with three chats; a test fails if it logged an error."""
    yield from page_of_old_chats(context, server.url)


# Has an import take a while on any machine: 0.2 s after each 200 chats.
SLOWLY = """() => {
    const { getKey } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.getKey = function (...given) {
        const end = performance.now() + 200;
        while (performance.now() < end);
        return getKey.apply(this, given);
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
    tree = {str(n): text | {"id": str(n), "parent": str(n - 1)} for n in range(10)}
    chats = [{"title": f"Brought {n}", "create_time": n, "update_time": n, "mapping": tree} for n in range(count)]
    file = FilePayload(name="many.json", mimeType="application/json", buffer=json.dumps(chats).encode())
    with page.expect_event("worker", lambda worker: "import" in worker.url) as started:
        page.set_input_files("#import-input", file)
    started.value.evaluate(how)
    return page.locator('#notices [data-key^="import "]')


def test_an_import_shows_how_far_it_is_and_is_cancelled_by_keyboard(talk: Page) -> None:
    """All or nothing is stored, and the page stays quick meanwhile."""
    page = talk
    before = page.evaluate(STORED)
    notice = import_many(page, 4000)
    notice.get_by_role("button", name="Cancel").focus()
    expect(notice).to_contain_text(" of 4,000")
    expect(notice.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(notice).to_have_count(0)
    assert page.evaluate(STORED) == before
    expect(page.locator("#chat-rows > .chat")).to_have_count(before)
    expect(page.locator("#notices", has_text="imported")).to_have_count(0)


def test_a_press_while_the_progress_changes_cancels(talk: Page) -> None:
    """The button that was pressed is the one that is released."""
    page = talk
    before = page.evaluate(STORED)
    notice = import_many(page, 4000)
    expect(notice).to_contain_text(" of 4,000")
    notice.get_by_role("button", name="Cancel").hover()
    page.mouse.down()
    told = notice.inner_text()
    wait_for(lambda: notice.inner_text() != told)
    page.mouse.up()
    expect(notice).to_have_count(0)
    assert page.evaluate(STORED) == before


def test_two_imports_have_a_cancel_each(talk: Page) -> None:
    page = talk
    before = page.evaluate(STORED)
    import_many(page, 4000)
    notices = import_many(page, 400)
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
def test_an_import_that_fails_stores_nothing_and_says_why(talk: Page, how: str, why: str) -> None:
    before = talk.evaluate(STORED)
    import_many(talk, 1000, f"({FAILING})({json.dumps(how)})")
    expect(talk.locator("#notices .error")).to_contain_text("many.json was not imported")
    expect(talk.locator("#notices .error")).to_contain_text(why)
    assert talk.evaluate(STORED) == before
