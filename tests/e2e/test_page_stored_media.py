"""Pictures and sound of the page's chats, and of messages that were not sent, are stored."""

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.attachments import STORED, attached, choose, clear
from tests.support.browser import watch
from tests.support.chat_page import open_page, send, wait_ready
from tests.support.media import MEDIA
from tests.support.waiting import wait_for
from tools.serve import Server


@pytest.fixture(scope="module")
def opened(engine_context: BrowserContext, server: Server) -> tuple[Page, list[str]]:
    """The page, whose engine lives on between its reloads, and the errors that it logs."""
    page = open_page(engine_context, server.url)
    return page, watch(page)


def in_menu_of_chats(page: Page, name: str) -> None:
    page.click("#chats-more")
    page.get_by_role("menuitem", name=name).click()


def test_media_of_a_chat_are_stored_exported_and_imported(talk: Page, tmp_path: Path) -> None:
    choose(talk, "wide.png")
    expect(attached(talk)).to_have_count(1)
    send(talk, "")
    expect(talk.locator(".answer-error")).to_be_visible()
    data = base64.b64encode((MEDIA / "wide.png").read_bytes()).decode()
    wait_for(lambda: talk.evaluate(STORED) == [["image", "wide.png", "image/png", data]])
    talk.reload()
    wait_ready(talk)
    picture = talk.locator("#thread .picture img")
    expect(picture).to_have_js_property("naturalWidth", 150)
    picture.click()
    expect(talk.get_by_role("dialog", name="wide.png")).to_be_visible()
    talk.keyboard.press("Escape")
    with talk.expect_download() as download:
        in_menu_of_chats(talk, "Save all as JSON")
    saved = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    (chat,) = [chat for chat in saved["chats"] if chat["info"]["title"] == "wide.png"]
    ((medium,),) = [message["media"] for message in chat["messages"] if "media" in message]
    assert (medium["kind"], medium["name"], medium["data"]) == ("image", "wide.png", f"data:image/png;base64,{data}")
    chat["info"] |= {"id": "again", "title": "Again", "updated": chat["info"]["updated"] + 1}
    path = tmp_path / "again.json"
    path.write_text(json.dumps({**saved, "chats": [chat]}))
    talk.set_input_files("#import-input", path)
    talk.locator("#chat-rows").get_by_text("Again").click()
    expect(picture).to_have_js_property("naturalWidth", 150)


def test_the_bytes_of_a_file_are_read_whatever_its_type_is(talk: Page) -> None:
    """An export had wrong bytes of a type with a comma in quotes."""
    code = """async (types) => {
        const { base64Of } = await import("/repo/app/sdk/base64.js");
        return Promise.all(types.map((type) => base64Of(new Blob(type === "empty" ? [] : ["Tea"], { type }))));
    }"""
    assert talk.evaluate(code, ['text/html;profile="a,b"', "", "empty"]) == ["VGVh", "VGVh", ""]


# The names of what tabs have stored of messages that were not sent.
UNSENT = """async () => {
    const opening = indexedDB.open("wisp-unsent");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const reading = db.transaction("tabs").objectStore("tabs").getAll();
    const records = await new Promise((resolve) => (reading.onsuccess = () => resolve(reading.result)));
    db.close();
    return records.flat().map(({ name }) => name);
}"""


STORE_UNSENT = """async (keys) => {
    const opening = indexedDB.open("wisp-unsent");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const store = db.transaction("tabs", "readwrite").objectStore("tabs");
    for (const key of keys) {
        const record = [{ kind: "image", name: `${key}.png`, blob: new Blob(["old"]) }];
        await new Promise((resolve) => (store.put(record, key).onsuccess = resolve));
    }
    db.close();
}"""
# Holds a lock until the page ends.
HOLD = """(name) => new Promise((held) => {
    void navigator.locks.request(name, () => (held(), new Promise(() => {})));
})"""
# Notes how many media each change stores.
COUNT_STORED = """(() => {
    const { put } = IDBObjectStore.prototype;
    globalThis.stored = [];
    IDBObjectStore.prototype.put = function (value, ...key) {
        if (this.name === "tabs") stored.push(value.length);
        return put.call(this, value, ...key);
    };
})()"""


def test_media_that_were_not_sent_outlive_a_reload(talk: Page) -> None:
    """Those of a private chat are not stored."""
    talk.add_init_script(COUNT_STORED)
    choose(talk, "wide.png", "half.wav")
    expect(attached(talk)).to_have_count(2)
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png", "half.wav"])
    talk.reload()
    expect(attached(talk)).to_have_count(2)
    assert talk.evaluate("stored") == [2], "a second reload at any time would lose none"
    expect(attached(talk).locator("img")).to_have_js_property("naturalWidth", 150)
    expect(attached(talk).nth(1)).to_contain_text("0:01")
    expect(talk.locator("#send")).to_be_enabled()
    wait_ready(talk)
    talk.get_by_role("button", name="Remove half.wav").click()
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    send(talk, "What is it?")
    expect(talk.locator(".answer-error")).to_be_visible()
    wait_for(lambda: talk.evaluate(UNSENT) == [])
    choose(talk, "wide.png")
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    talk.click("#private-chat")
    wait_for(lambda: talk.evaluate(UNSENT) == [])
    choose(talk, "square.png")
    expect(attached(talk)).to_have_count(2)
    assert talk.evaluate(UNSENT) == []
    talk.reload()
    wait_ready(talk)
    expect(attached(talk)).to_have_count(0)


def test_a_duplicated_tab_stores_its_media_apart(talk: Page) -> None:
    choose(talk, "wide.png")
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    with talk.expect_popup() as opening:
        talk.evaluate("void open(location.href)")  # with a copy of the sessionStorage, as a duplicate
    other = opening.value
    expect(attached(other)).to_have_count(1)
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png", "wide.png"])
    other.get_by_role("button", name="Remove wide.png").click()
    wait_for(lambda: talk.evaluate(UNSENT) == ["wide.png"])
    other.close()
    talk.reload()
    expect(attached(talk)).to_have_count(1)
    wait_ready(talk)
    clear(talk)
    wait_for(lambda: talk.evaluate(UNSENT) == [])


def test_media_of_tabs_that_were_closed_long_ago_are_deleted(talk: Page) -> None:
    """A tab that is open as long keeps its own: it holds the lock of their key."""
    keys = {days: f"{datetime.now(UTC) - timedelta(days):%Y-%m-%d} of {days} days" for days in (6, 8, 9)}
    open_tab = talk.context.new_page()
    open_tab.goto(urljoin(talk.url, "notices.html"))
    open_tab.evaluate(HOLD, f"wisp.unsent-media {keys[9]}")
    talk.evaluate(STORE_UNSENT, list(keys.values()))
    talk.reload()
    wait_ready(talk)
    wait_for(lambda: talk.evaluate(UNSENT) == [f"{keys[9]}.png", f"{keys[6]}.png"])
    expect(attached(talk)).to_have_count(0)
    open_tab.close()
