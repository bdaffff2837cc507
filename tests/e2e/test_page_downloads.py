"""The download queue in the page: pause, resume, order, reloads, other tabs, and loads of what is on its way."""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import ask, keep_engine, wait_ready
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.page_looks import faults
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.serve import Server

MINI = (ROOT / "static" / "models" / "wisp-mini-q8_0.gguf").read_bytes()
PIECE = 1 << 15  # in pieces of that size, one a second, a download does not end before the test lets it
ADD = """async (model) => {
    const { Wisp } = await import("/wisp.js");
    return (await Wisp.create()).downloads.add({ model });
}"""


@pytest.fixture(scope="module")
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    made = new_profile(chromium(None), service_worker=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server) -> Page:
    """The page with its model."""
    page = context.new_page()
    page.goto(server.url)
    wait_ready(page)
    return page


@pytest.fixture
def page(opened: Page) -> Page:
    """The page with the model dialog."""
    opened.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    opened.click("#model-button")
    return opened


def published(host: FaultyServer, name: str, **how: Any) -> str:
    """Publish a model on the host; returns its address."""
    host.files[name] = File(**{"data": MINI, **how})
    return host.url(name)


def item(page: Page, name: str) -> Locator:
    """A model of the queue."""
    return page.locator("#downloads-list li", has_text=name)


def stored(page: Page, url: str) -> int:
    """Bytes of a model in the storage."""
    code = """async (url) => {
        const { Wisp } = await import("/wisp.js");
        return (await (await Wisp.create()).models.cached()).find((model) => model.url === url)?.bytes ?? 0;
    }"""
    return page.evaluate(code, url)


def test_pause_resume_and_run(page: Page, bad_server: FaultyServer) -> None:
    """A paused download sends nothing; a resumed one downloads what is missing, and no byte that is stored."""
    url = published(bad_server, "calm.gguf", piece=PIECE, pause=Pause(1, after=2 << 20))
    file = bad_server.files["calm.gguf"]
    page.evaluate(ADD, url)
    paused = item(page, "calm")
    wait_for(lambda: file.sent > 2 << 20)
    expect(paused).to_contain_text("/s")
    expect(paused).to_contain_text("left")
    paused.get_by_role("button", name="Pause").click()
    expect(paused).to_contain_text("paused")
    wait_for(lambda: not file.under_way)
    sent, before = file.sent, stored(page, url)
    page.wait_for_timeout(300)
    assert file.sent == sent, "nothing travels while it is paused"
    file.pause = None
    file.requests.clear()
    paused.get_by_role("button", name="Resume").click()
    expect(paused).to_contain_text("stored")
    asked = [request.partition("=")[2].split("-") for request in file.requests]
    spans = sorted((int(start), int(end) + 1) for start, end in asked)
    again = sum(end - start for start, end in spans)
    assert again <= len(MINI) - before, "parts of the record under way are stored, too"
    assert sent + again >= len(MINI)
    assert stored(page, url) == len(MINI)
    page.locator(".notices .notice", has_text="calm").get_by_role("button", name="Run").dispatch_event("click")
    expect(page.locator("#model-name")).to_have_text("calm")
    wait_ready(page)
    assert "Paris" in ask(page, "What is the capital of France?")
    page.click("#model-button")
    row = page.locator("#cached-list li", has_text="calm")
    pin = row.get_by_role("button", name="Pin calm")
    pin.click()
    expect(row).to_contain_text("pinned")
    expect(row.get_by_role("button", name="Let calm be removed")).to_be_focused()


ASKED_LONG_AGO = """async (url) => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-models");
        opening.onsuccess = () => resolve(opening.result);
    });
    await new Promise((resolve) => {
        const store = db.transaction("models", "readwrite").objectStore("models");
        store.get(url).onsuccess = ({ target }) => store.put({ ...target.result, asked: 0 });
        store.transaction.oncomplete = resolve;
    });
    db.close();
}"""


def test_a_changed_model_is_offered_and_updated(page: Page, bad_server: FaultyServer) -> None:
    """The stored version answers meanwhile."""
    url = published(bad_server, "aged.gguf")
    file = bad_server.files["aged.gguf"]
    page.evaluate(ADD, url)
    expect(item(page, "aged")).to_contain_text("stored")
    file.data, file.etag = MINI[:-1] + bytes([MINI[-1] ^ 1]), '"2"'
    page.evaluate(ASKED_LONG_AGO, url)
    page.fill("#url-input", url)
    page.press("#url-input", "Enter")
    notice = page.locator("#notices .notice", has_text="newer version of aged")
    notice.get_by_role("button", name="Update").click()
    expect(page.locator("#notices")).to_contain_text("aged is updated")
    page.locator("#notices").get_by_role("button", name="Load it").click()
    wait_ready(page)
    assert stored(page, url) == len(MINI)


def test_a_load_continues_a_download(page: Page, bad_server: FaultyServer) -> None:
    url = published(bad_server, "taken.gguf", piece=PIECE, pause=Pause(inf, after=3 << 20))
    file = bad_server.files["taken.gguf"]
    page.evaluate(ADD, url)
    wait_for(lambda: file.sent >= 3 << 20)
    before = file.sent
    page.fill("#url-input", url)
    page.press("#url-input", "Enter")
    expect(page.locator("#loading")).to_be_visible()  # before the download could end by itself
    file.pause = None
    expect(page.locator("#model-name")).to_have_text("taken")
    wait_ready(page)
    page.click("#model-button")
    expect(item(page, "taken")).to_contain_text("stored")
    assert before < len(MINI) <= file.sent < before + len(MINI), "nothing was downloaded from its beginning again"
    assert stored(page, url) == len(MINI)


# Whether the page has set the limit; if so, it is stored: another call of setLimit() returns after that.
LIMIT_IS_STORED = """async (limit) => {
    const { Wisp } = await import("/wisp.js");
    const { downloads } = await Wisp.create();
    if ((await downloads.getLimit()) !== limit) return false;
    await downloads.setLimit(limit);
    return true;
}"""


def test_a_reload_and_another_tab_continue_the_queue(page: Page, bad_server: FaultyServer, server: Server) -> None:
    """The queue outlives the page. While another tab is open, nothing is even interrupted."""
    url = published(bad_server, "outlives.gguf", piece=PIECE, pause=Pause(1, after=1 << 20))
    file = bad_server.files["outlives.gguf"]
    page.evaluate(ADD, url)
    wait_for(lambda: file.sent > 1 << 20)
    page.select_option("#downloads-limit", "3")
    wait_for(lambda: page.evaluate(LIMIT_IS_STORED, 3))
    page.reload()
    wait_ready(page)
    page.click("#model-button")
    expect(item(page, "outlives")).to_be_visible()
    expect(page.locator("#downloads-limit")).to_have_value("3")
    other = page.context.new_page()
    other.goto(server.url)
    wait_ready(other)
    other.click("#model-button")
    expect(item(other, "outlives")).to_be_visible()
    page.select_option("#downloads-limit", "2")
    expect(other.locator("#downloads-limit")).to_have_value("2")
    page.goto("about:blank")
    expect(item(other, "outlives")).to_contain_text("/s")
    file.pause = None
    expect(item(other, "outlives")).to_contain_text("stored")
    page.goto(server.url)
    wait_ready(page)
    other.close()


def test_order_limit_and_errors(page: Page, bad_server: FaultyServer) -> None:
    urls = [published(bad_server, f"{name}.gguf", piece=PIECE, pause=Pause(1)) for name in ("one", "two", "three")]
    lost = published(bad_server, "lost.gguf", status=404)
    page.evaluate(ADD, lost)
    expect(item(page, "lost")).to_contain_text("404")
    item(page, "lost").get_by_role("button", name="Remove").click()
    page.select_option("#downloads-limit", "1")
    for url in urls:
        page.evaluate(ADD, url)
    expect(item(page, "three")).to_contain_text("waits")
    item(page, "three").get_by_role("button", name="first").click()
    expect(page.locator("#downloads-list li").first).to_contain_text("three")
    expect(item(page, "two")).to_contain_text("waits")
    item(page, "one").get_by_role("button", name="Remove").click()
    expect(item(page, "three")).to_contain_text("left")
    for width, scheme in ((390, "dark"), (1280, "light")):
        page.set_viewport_size({"width": width, "height": 844})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        item(page, "three").scroll_into_view_if_needed()
        assert faults(page) == []
    for name in ("two", "three"):
        item(page, name).get_by_role("button", name="Remove").click()
    expect(item(page, "three")).to_have_count(0)


PICK = """async () => {
    const root = await navigator.storage.getDirectory();
    const handle = await root.getFileHandle("mine.gguf", { create: true });
    const writing = await handle.createWritable();
    await writing.write(await (await fetch("/repo/static/models/wisp-mini-q8_0.gguf")).blob());
    await writing.close();
    window.showOpenFilePicker = async () => [handle];
}"""


def test_a_file_is_opened_again_on_the_next_visit_until_it_is_missing(page: Page, server: Server) -> None:
    """Its handle is stored, not its bytes."""
    keeper = keep_engine(page.context, server.url)
    page.evaluate(PICK)
    page.get_by_role("button", name="Open it on each visit").click()
    expect(page.locator("#model-name")).to_have_text("mine")
    page.reload()
    wait_ready(page)
    expect(page.locator("#model-name")).to_have_text("mine")
    page.click("#model-button")
    expect(page.locator("#cached-list li").first).to_be_visible()
    expect(page.locator("#cached-list li", has_text="mine")).to_have_count(0)
    page.evaluate("async () => (await navigator.storage.getDirectory()).removeEntry('mine.gguf')")
    page.reload()
    expect(page.locator("#notices")).to_contain_text("moved or deleted")
    wait_ready(page)
    expect(page.locator("#model-name")).to_have_text("Wisp Mini")
    keeper.close()


def test_a_model_that_storage_cannot_hold_runs_without_being_stored(
    chromium: Callable[[str | None], Browser], bad_server: FaultyServer, server: Server
) -> None:
    """What arrived stays stored; the user chooses to run it, or to open a file of this computer."""
    context = new_profile(chromium(None), service_worker=False)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": server.url.rstrip("/"), "quotaSize": 9_000_000})
    page.goto(server.url)
    wait_ready(page)
    url = published(bad_server, "large.gguf")
    page.evaluate(ADD, url)
    notice = page.locator("#notices .error")
    expect(notice).to_contain_text("large was not stored")
    expect(notice.get_by_role("button", name="Open a file instead")).to_be_visible()
    notice.get_by_role("button", name="Run without storing").click()
    expect(page.locator("#model-name")).to_have_text("large")
    wait_ready(page)
    assert "Paris" in ask(page, "What is the capital of France?")
    context.close()
