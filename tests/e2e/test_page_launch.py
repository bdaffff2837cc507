"""What the system opens with the installed page: shortcuts of its icon, files, and what is shared with it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, wait_until
from tests.support.chat_page import keep_engine, open_page, wait_ready
from tools.serve import Server

NOTE = {"name": "note.md", "mimeType": "text/markdown", "buffer": b"# Zorbix\n\nThe Zorbix Pro costs 420 euros."}
# Chromium launches installed apps only, so that the tests hand the page's consumer what Chromium would.
QUEUE = """const launchQueue = { setConsumer(consumer) { globalThis.launch = consumer; } };
Object.defineProperty(globalThis, "launchQueue", { value: launchQueue });"""
LEFT = """async () => {  // how many shared forms are stored
    const name = (await caches.keys()).find((name) => name.startsWith("wisp-shared"));
    return (await (await caches.open(name)).keys()).length;
}"""
LAUNCH = """async (names) => {
    const folder = await navigator.storage.getDirectory();
    const files = [];
    for (const name of names) {
        const handle = await folder.getFileHandle(name, { create: true });
        const writable = await handle.createWritable();
        await writable.write("The Zorbix Pro costs 420 euros.");
        await writable.close();
        files.push(handle);
    }
    await launch({ files, targetURL: location.href });
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """The page, with its service worker, in a profile of its own."""
    context = new_profile(chromium(None))
    keep_engine(context, server.url)  # the tests leave the page, and come back
    context.add_init_script(QUEUE)
    page = open_page(context, server.url)
    page.evaluate("async () => { await navigator.serviceWorker.ready; }")
    yield page
    context.close()


def share(page: Page, server: Server, fields: dict[str, str], files: list[Any]) -> None:
    """Post a form to the share target, from a page of another origin, as the system does."""
    page.goto("about:blank")
    inputs = "".join(f'<input name="{name}" value="{value}" />' for name, value in fields.items())
    page.set_content(
        f'<form method="post" action="{server.url}share" enctype="multipart/form-data">{inputs}'
        '<input type="file" name="files" multiple /><button>Share</button></form>'
    )
    page.set_input_files("[name=files]", files)
    page.click("button")
    expect(page).to_have_url(server.url)
    wait_ready(page)


def test_the_shortcuts_of_the_icon_open_what_they_name(page: Page, server: Server) -> None:
    manifest = page.evaluate("async () => (await fetch(document.querySelector('link[rel=manifest]').href)).json()")
    urls = {shortcut["name"]: shortcut["url"].removeprefix("./") for shortcut in manifest["shortcuts"]}
    page.goto(server.url + urls["Private chat"])
    wait_ready(page)
    expect(page).to_have_url(server.url)
    expect(page.locator("#private-mark")).to_be_visible()
    for name in ("Models", "New chat"):  # in the open window
        page.evaluate("(url) => launch({ files: [], targetURL: url })", server.url + urls[name])
    expect(page.locator("#model-dialog")).to_be_visible()
    expect(page.locator("#private-mark")).to_be_hidden()


def test_a_model_is_loaded_and_a_document_added_that_the_system_opens(page: Page) -> None:
    page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")
    page.evaluate(LAUNCH, ["pump.txt"])
    expect(page.locator("#document-list")).to_contain_text("pump.txt")
    expect(page.locator("#ask-documents")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Escape")
    page.evaluate(LAUNCH, ["no-model.gguf"])
    notice = page.locator('[data-key="opened"]')
    expect(notice).to_contain_text("no-model was opened with Wisp.")
    expect(page.locator("#model-name")).to_have_text("Wisp Mini")
    notice.get_by_role("button", name="Load").click()
    expect(page.locator('[data-key="load"]')).to_contain_text("no-model was not loaded.")


def test_what_is_shared_waits_in_the_message_field_and_for_the_users_word(page: Page, server: Server) -> None:
    fields = {"title": "Zorbix", "text": "Zorbix", "url": "https://example.org/zorbix"}
    share(page, server, fields, [NOTE])
    expect(page.locator("#prompt")).to_have_value("Zorbix\nhttps://example.org/zorbix")
    expect(page.locator("#thread .message")).to_have_count(0)
    notice = page.locator('[data-key="shared"]')
    expect(notice).to_contain_text("note.md was shared with Wisp.")
    notice.get_by_role("button", name="Add").click()
    expect(page.locator("#document-list")).to_contain_text("note.md")
    assert page.evaluate(LEFT) == 0


def test_what_any_site_shares_that_is_no_form_is_dropped(page: Page, server: Server) -> None:
    page.goto("about:blank")
    page.set_content(
        f'<form method="post" action="{server.url}share" enctype="text/plain"><input name="text" /><button>Go</button>'
    )
    page.click("button")
    expect(page).to_have_url(server.url)
    wait_ready(page)
    wait_until(page, "typeof launch === 'function'")  # the page has started
    assert page.evaluate(LEFT) == 0


def test_what_is_shared_and_cannot_be_stored_is_reported(page: Page, server: Server) -> None:
    """The system's window shows the page, not the browser's own error."""
    (worker,) = page.context.service_workers
    worker.evaluate(
        """() => {
            const { put } = Cache.prototype;
            globalThis.mend = () => void (Cache.prototype.put = put);
            Cache.prototype.put = async () => { throw new DOMException("", "QuotaExceededError"); };
        }"""
    )
    share(page, server, {"title": "Zorbix"}, [])
    expect(page.locator('[data-key="shared"]')).to_contain_text("What was shared with Wisp did not arrive.")
    worker.evaluate("mend()")
    assert page.evaluate(LEFT) == 0


def test_a_storage_of_shared_forms_that_does_not_open_is_reported(page: Page, server: Server) -> None:
    other = page.context.new_page()
    other.add_init_script("CacheStorage.prototype.open = async () => { throw new DOMException('', 'UnknownError'); }")
    other.goto(f"{server.url}?shared=lost")
    expect(other.locator('[data-key="shared"]')).to_contain_text("What was shared with Wisp did not arrive.")
    other.close()
