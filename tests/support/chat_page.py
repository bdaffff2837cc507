"""A user's actions on the page: open it, ask, read the answer."""

import json
import re
from typing import Any

from playwright.sync_api import BrowserContext, Error, Locator, Page, expect

from tests.support.browser import wait_until
from tools.paths import ROOT

SETTINGS = {"temperature": 0, "max_tokens": 160}
READY = "document.querySelector('#model-dot')?.className === 'dot ready'"
SHOWN = "document.querySelector('#send')?.checkVisibility({ visibilityProperty: true })"
ANSWERED = f"{SHOWN} && !document.querySelector('#thread > .growing')"
# Listens after the page does: when it has heard the dialog close, the page has begun to load the model again.
CLOSED = "(dialog) => ({ closed: new Promise((resolve) => dialog.addEventListener('close', resolve, { once: true })) })"


def _first_load_ms() -> str:
    """How long the page waits for its first model before it installs its service worker (app/page.js)."""
    found = re.search(r"FIRST_LOAD_MS = (\d[\d_]*);", (ROOT / "app" / "page.js").read_text(encoding="utf-8"))
    assert found
    return found[1]


# The engine's worker is never heard of: the page stays at loading its model, and waits for that no longer than a moment
# before it installs its service worker.
NO_ENGINE = """{
  delete globalThis.SharedWorker;
  const { Worker, setTimeout } = globalThis;
  globalThis.Worker = function (url, options) {
    return options?.name === "wisp" ? { postMessage() {}, terminate() {} } : new Worker(url, options);
  };
  globalThis.Worker.prototype = Worker.prototype;
  globalThis.setTimeout = (run, ms, ...rest) => setTimeout(run, ms === FIRST_LOAD_MS ? 0 : ms, ...rest);
}""".replace("FIRST_LOAD_MS", _first_load_ms())


def keep_engine(context: BrowserContext, url: str) -> Page:
    """Open a tab in which the shared engine lives on while other tabs are reloaded or closed. Starting Python takes
    most of a page's start.
    """
    page = context.new_page()
    page.goto(f"{url}notices.html")
    page.evaluate("async () => void (await (await import('/wisp.js')).Wisp.create())")
    return page


def open_page(context: BrowserContext, url: str, *, settings: dict[str, Any] | None = None) -> Page:
    """Open the page in a new tab and wait for its model. Sampling is greedy unless `settings` says otherwise."""
    page = context.new_page()
    text = json.dumps(json.dumps(SETTINGS | (settings or {})))
    page.add_init_script(f'localStorage["wisp.settings"] ??= {text}')
    page.goto(url)
    wait_ready(page)
    return page


def open_without_engine(context: BrowserContext, url: str) -> Page:
    """Open the page in a new tab, for what it does by itself: starting an engine takes most of a page's start."""
    page = context.new_page()
    page.add_init_script(NO_ENGINE)
    page.goto(url)
    expect(page.locator("#loading")).to_be_visible()
    wait_until(page, "(await indexedDB.databases()).some(({ name }) => name === 'wisp-page')")  # tests add chats
    return page


def wait_ready(page: Page) -> None:
    """Wait until a model is ready and nothing is loading."""
    wait_soon(page, READY)


def wait_soon(page: Page, condition: str) -> None:
    """Wait until a JavaScript expression is true, also where the page is reloaded meanwhile.

    Tests wait here most often. Playwright's expect() looks once a second, and half of that is lost.
    """
    while True:
        try:
            return wait_until(page, condition)
        except Error as error:
            if "Execution context was destroyed" not in error.message:
                raise


def close_settings(page: Page) -> None:
    """Press Done, and wait for the model: another context length loads it again."""
    closed = page.locator("#settings-dialog").evaluate_handle(CLOSED)
    page.get_by_role("button", name="Done").click()
    closed.evaluate("({ closed }) => closed")
    wait_ready(page)


def send(page: Page, text: str) -> None:
    """Type a message and press Enter."""
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def last_answer(page: Page) -> Locator:
    """The newest answer."""
    return page.locator("#thread > .assistant").last


def wait_answer(page: Page) -> str:
    """Wait until the newest answer is complete; return its text."""
    wait_soon(page, ANSWERED)
    return last_answer(page).locator(".body").inner_text()


def ask(page: Page, text: str) -> str:
    """Send a message and wait for the whole answer."""
    send(page, text)
    return wait_answer(page)


def answer_by(page: Page, url: str) -> None:
    """Let another server answer, whose model is called "scripted"."""
    page.click("#model-button")
    page.click("#upstream-add")
    page.fill("#upstream-form [name=name]", "script")
    page.fill("#upstream-form [name=baseURL]", url)
    page.get_by_role("button", name="Save").click()
    page.locator("#upstream-list .model").first.click()
    expect(page.locator("#model-name")).to_have_text("scripted")


def switch_on(page: Page, tools: str = "Code in a sandbox") -> None:
    """Let the chat's answers use tools."""
    page.click("#tools-button")
    page.get_by_role("menuitem", name=tools).click()
    expect(page.locator("#tools-button")).to_have_attribute("aria-pressed", "true")


def cards(page: Page) -> Locator:
    """The calls of tools of the newest answer."""
    return last_answer(page).locator(".tool-call")


def use_wisp_mini(page: Page) -> None:
    """Load Wisp Mini, if another model answers since the last test."""
    if page.locator("#model-name").inner_text() == "Wisp Mini":
        return
    page.click("#model-button")
    page.locator("#model-list button").first.click()
    expect(page.locator("#model-name")).to_have_text("Wisp Mini")
    wait_ready(page)


def new_chat(page: Page) -> None:
    """Press Ctrl+Shift+O."""
    page.keyboard.press("Control+Shift+KeyO")
    expect(page.locator("#welcome")).to_be_visible()


def draw_all(page: Page) -> None:
    """Have the page draw all messages, as for a print, until it scrolls."""
    page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
