"""Data that outlives the tab: chats, settings, the page itself without a network. The update to a newer version."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tests.support.browser import new_profile, wait_until, watch
from tests.support.chat_page import (
    ask,
    keep_engine,
    last_answer,
    open_page,
    open_without_engine,
    send,
    wait_answer,
    wait_ready,
)
from tests.support.chat_store import store_chat
from tests.support.slow_engine import slowed
from tools.serve import Server

STORY = "Write a short story about a dragon named Ember who finds a silver key."


# The text of the newest answer that is stored; "" if there is none.
STORED_ANSWER = """async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const reading = db.transaction("messages").objectStore("messages").getAll();
    const messages = await new Promise((resolve) => (reading.onsuccess = () => resolve(reading.result)));
    db.close();
    return messages.findLast(({ role }) => role === "assistant")?.content ?? "";
}"""
FORGET = """async () => {
    localStorage.clear();
    await new Promise((resolve) => (indexedDB.deleteDatabase("wisp-page").onsuccess = resolve));
}"""


@pytest.fixture(scope="module")
def profile(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[BrowserContext, Page]]:
    """A profile without WebGPU and service worker, and its tab that keeps the engine."""
    made = new_profile(chromium(None), service_worker=False)
    yield made, keep_engine(made, server.url)
    made.close()


@pytest.fixture
def context(profile: tuple[BrowserContext, Page]) -> Iterator[BrowserContext]:
    """A profile in which nothing is stored but the model."""
    made, keeper = profile
    yield made
    for page in made.pages:
        if page is not keeper:
            page.close()
    keeper.evaluate(FORGET)


@pytest.fixture
def fresh_context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A fresh profile, with a service worker."""
    made = new_profile(chromium(None))
    yield made
    made.close()


def wait_installed(page: Page) -> None:
    """Wait until the service worker has the whole page and controls this tab."""
    page.evaluate(
        """async () => {
            await navigator.serviceWorker.ready;
            while (!navigator.serviceWorker.controller) await new Promise((resolve) => setTimeout(resolve, 50));
        }"""
    )


def test_chats_and_settings_survive_a_reload(context: BrowserContext, server: Server) -> None:
    page = open_page(context, server.url)
    ask(page, "Hi, my name is Nadia.")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Top-k").fill("")
    page.keyboard.press("Escape")
    page.reload()
    expect(page.locator("#thread")).to_contain_text("Nadia")  # before any model is ready
    wait_ready(page)
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("Seed")).to_have_value("7")
    expect(page.get_by_label("Top-k")).to_have_value("")
    page.keyboard.press("Escape")
    assert "Nadia" in ask(page, "What is my name?")
    page.reload()
    expect(page.locator("#thread > li")).to_have_count(4)


def test_a_private_chat_that_is_begun_while_the_last_one_is_read_stays(context: BrowserContext, server: Server) -> None:
    """Its questions would else go to the chat that is read, and be stored."""
    page = open_without_engine(context, server.url)
    store_chat(page, [("Hi, my name is Nadia.", "Hello Nadia!")])
    page.add_init_script(
        """{
            const { open } = IDBFactory.prototype;
            IDBFactory.prototype.open = function (name, ...rest) {
                if (name === "wisp-page") queueMicrotask(() => document.querySelector("#private-chat").click());
                IDBFactory.prototype.open = open;
                return open.call(this, name, ...rest);
            };
        }"""
    )
    page.reload()
    expect(page.locator("#chat-list .chat-open")).not_to_have_count(0)  # drawn after the last chat was read
    assert page.locator("#private-mark").is_visible()
    assert page.locator("#welcome").is_visible()


def test_a_message_that_was_not_sent_outlives_a_reload(context: BrowserContext, server: Server) -> None:
    """That of a private chat does not."""
    page = open_without_engine(context, server.url)
    page.fill("#prompt", "A long question that is not complete")
    page.reload()
    expect(page.locator("#prompt")).to_have_value("A long question that is not complete")
    page.click("#private-chat")
    page.locator("#prompt").press_sequentially("!")
    page.reload()
    expect(page.locator("#new-chat")).to_be_visible()
    expect(page.locator("#prompt")).to_have_value("")
    page.close()
    page = open_page(context, server.url)
    page.fill("#prompt", "What is the capital of Italy?")
    page.press("#prompt", "Enter")
    wait_answer(page)
    page.reload()
    wait_ready(page)
    expect(page.locator("#prompt")).to_have_value("")
    assert "Rome" in last_answer(page).inner_text()


def test_an_answer_cut_by_a_reload_is_saved(context: BrowserContext, server: Server) -> None:
    page = open_page(context, server.url)
    send(page, STORY)
    expect(last_answer(page).locator(".block").first).to_be_visible()
    page.reload()
    expect(page.locator("#thread > .user")).to_have_count(1)
    wait_ready(page)
    expect(page.locator("#thread > .growing")).to_have_count(0)
    page.get_by_role("button", name="Answer again").click()
    expect(last_answer(page).locator(".block").first).to_be_visible()


@pytest.mark.parametrize("how", ["reload", "crash"])
def test_a_cut_answer_goes_on_with_the_same_text(context: BrowserContext, server: Server, how: str) -> None:
    page = open_page(context, server.url, settings={"temperature": 1, "seed": 7, "max_tokens": 48})
    whole = ask(page, STORY)
    with slowed(page):
        page.get_by_role("button", name="Answer again").click()
        expect(last_answer(page).locator(".block").first).to_be_visible()
        if how == "reload":
            shown = last_answer(page).locator(".body").inner_text()
            page.reload()
        else:
            wait_until(page, f"(await ({STORED_ANSWER})()).length")  # the page saves once a second
            shown = ""
            with pytest.raises(PlaywrightError):
                page.goto("chrome://crash")
            page.close()
    if page.is_closed():
        page = context.new_page()
        page.goto(server.url)
    wait_ready(page)
    expect(last_answer(page).locator(".body")).not_to_be_empty()
    cut = last_answer(page).locator(".body").inner_text()
    assert whole.startswith(cut)
    assert len(whole) > len(cut) >= max(1, len(shown))
    page.get_by_role("button", name="Continue the answer").click()
    assert wait_answer(page) == whole
    page.reload()
    expect(last_answer(page).locator(".body")).to_have_text(whole, use_inner_text=True)


def test_an_answer_cut_by_its_limit_goes_on_with_the_same_text(context: BrowserContext, server: Server) -> None:
    page = open_page(context, server.url, settings={"temperature": 1, "seed": 7, "max_tokens": 20})
    cut = ask(page, STORY)
    page.get_by_role("button", name="Continue the answer").click()
    longer = wait_answer(page)
    page.evaluate("localStorage['wisp.settings'] = JSON.stringify({ temperature: 1, seed: 7, max_tokens: 40 })")
    page.reload()
    wait_ready(page)
    page.get_by_role("button", name="Answer again").click()
    assert wait_answer(page) == longer
    assert longer.startswith(cut)
    assert len(longer) > len(cut)


HOSTILE = """<img src=x onerror="globalThis.pwned = 1"><script>globalThis.pwned = 2</script>
<svg onload="globalThis.pwned = 3"></svg><iframe srcdoc="<script>parent.pwned = 4</script>"></iframe>

[a link](javascript:globalThis.pwned=5) [data](data:text/html,<script>1</script>) ![picture](https://example.org/x.png)

<a href="javascript:globalThis.pwned=6" style="position:fixed;inset:0">over everything</a>

`<b>code</b>` and **bold**

```html"><img src=x onerror="globalThis.pwned=7">
<script>globalThis.pwned = 8</script>
```
"""


def test_what_a_model_writes_cannot_run(context: BrowserContext, server: Server) -> None:
    page = open_without_engine(context, server.url)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    store_chat(page, [("<b>hi</b>", HOSTILE)], title="<img src=x onerror='globalThis.pwned=9'>")
    page.reload()
    answer = last_answer(page)
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer).to_contain_text('<img src=x onerror="globalThis.pwned = 1">')  # shown as text
    expect(page.locator("#thread > .user .bubble")).to_have_text("<b>hi</b>")
    assert page.locator("#thread :is(script, img, iframe, svg:not(.icon), style, form, object)").count() == 0
    assert page.locator("#chat-list img").count() == 0
    hrefs = answer.locator("a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
    assert [href for href in hrefs if href] == ["https://example.org/x.png"]
    assert answer.locator("[style], [onerror], [onload]").count() == 0
    for link in answer.locator("a").all():
        link.click(trial=True)
    assert page.evaluate("globalThis.pwned") is None
    assert not [url for url in requests if "example.org" in url]


def test_everything_works_offline_after_the_first_visit(fresh_context: BrowserContext, server: Server) -> None:
    context = fresh_context
    page = open_page(context, server.url)
    wait_installed(page)
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    errors = watch(page)
    context.set_offline(True)
    page.reload()
    wait_ready(page)
    assert page.evaluate("crossOriginIsolated")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    stats = page.evaluate("async () => (await (await import('/wisp.js')).Wisp.create()).stats()")
    assert stats["cache"]["requests"] == 0
    assert stats["cache"]["downloaded_bytes"] == 0
    assert not [url for url in requests if url.endswith(".gguf")]
    assert not [error for error in errors if "sw.js" not in error]  # the check for a newer version may fail
    context.set_offline(False)


def test_all_parts_are_there_offline_once_the_page_is_installed(fresh_context: BrowserContext, server: Server) -> None:
    page = open_without_engine(fresh_context, server.url)
    wait_installed(page)
    page.evaluate("dispatchEvent(new Event('appinstalled'))")
    parts = page.evaluate("Object.values(document.getElementById('parts').dataset)")
    files = [path for path in parts if not path.endswith("/") and " " not in path]  # not the sandbox's wheels
    paths = json.dumps(files)
    wait_until(page, f"(await Promise.all({paths}.map((path) => caches.match(path)))).every(Boolean)")
    fresh_context.set_offline(True)
    assert page.evaluate(FETCH_SELDOM)["ok"]  # which was never used
    fresh_context.set_offline(False)


def test_a_tab_has_every_language_offline(fresh_context: BrowserContext, server: Server) -> None:
    page = open_without_engine(fresh_context, server.url)
    wait_installed(page)
    fresh_context.set_offline(True)
    page.click("#settings-button")
    for code in ("ja", "ar", "zh", "de", "es", "fr", "en"):  # which were never used
        page.select_option("#language", code)
        expect(page.locator("html")).to_have_attribute("lang", code)
    expect(page.locator("#notices .error")).to_have_count(0)
    fresh_context.set_offline(False)


FETCH_SELDOM = """async () => {
  const { ok, url } = await fetch(document.getElementById("parts").dataset.highlightAll);
  return { ok, url };
}"""


def test_a_full_storage_keeps_no_file_from_being_used(fresh_context: BrowserContext, server: Server) -> None:
    page = open_without_engine(fresh_context, server.url)
    wait_installed(page)
    (worker,) = fresh_context.service_workers
    worker.evaluate(
        "() => { Cache.prototype.put = async () => { throw new DOMException('', 'QuotaExceededError'); }; }"
    )
    found = page.evaluate(FETCH_SELDOM)
    assert found["ok"]
    assert not page.evaluate("async (url) => (await caches.match(url)) !== undefined", found["url"])


# As iOS starts the page from the home screen: in a storage of its own, without an event.
STANDALONE = """{
    const { matchMedia } = window;
    window.matchMedia = (query) => query.includes("standalone") ? { matches: true } : matchMedia.call(window, query);
}"""
SAVES_DATA = "Object.defineProperty(navigator, 'connection', { value: { saveData: true } })"
CACHED_SELDOM = """(async () => {
    const { mermaid, highlightAll, mcp } = document.getElementById("parts").dataset;
    return (await Promise.all([mermaid, highlightAll, mcp].map((path) => caches.match(path)))).filter(Boolean).length;
})()"""


def test_all_parts_are_cached_at_the_first_start_from_a_home_screen(
    fresh_context: BrowserContext, server: Server
) -> None:
    fresh_context.add_init_script(STANDALONE)
    page = open_without_engine(fresh_context, server.url)
    wait_until(page, f"(await {CACHED_SELDOM}) === 3")


def test_an_installed_page_saves_data_where_it_is_asked_to(fresh_context: BrowserContext, server: Server) -> None:
    fresh_context.add_init_script(SAVES_DATA)
    page = open_without_engine(fresh_context, server.url)
    wait_installed(page)
    page.evaluate("dispatchEvent(new Event('appinstalled'))")
    page.wait_for_timeout(1000)
    assert page.evaluate(CACHED_SELDOM) == 0


def test_a_newer_version_is_offered_and_taken(fresh_context: BrowserContext, dist: Path, tmp_path: Path) -> None:
    shutil.copytree(dist, tmp_path / "site")
    server = Server(tmp_path / "site", 0).start()
    page = open_without_engine(fresh_context, server.url)
    wait_installed(page)
    assert len(page.evaluate("caches.keys()")) == 1
    seldom = page.evaluate(FETCH_SELDOM)["url"]  # cached when it is first used
    wait_until(page, f"await caches.match({seldom!r})")
    worker, index = (tmp_path / "site" / name for name in ("sw.js", "index.html"))
    first, rest = worker.read_text().split("\n", 1)
    precache = json.loads(first.partition("=")[2].strip().rstrip(";"))
    worker.write_text(f"const __WISP_PRECACHE__ = {json.dumps(precache | {'version': 'newer'})};\n{rest}")
    index.write_text(index.read_text().replace("What shall we try?", "Something new"))
    page.reload()
    expect(page.locator("#welcome h1")).to_have_text("What shall we try?")  # the old version, complete
    page.get_by_role("button", name="Reload").click()
    expect(page.locator("#welcome h1")).to_have_text("Something new")
    wait_until(page, f"(await caches.keys()).join() === 'wisp {server.url} newer'")
    assert page.evaluate("async (url) => (await caches.match(url)) !== undefined", seldom)
    server.shutdown()
    server.server_close()


def test_without_webgpu_the_page_says_so_and_answers(context: BrowserContext, server: Server) -> None:
    page = open_page(context, server.url)
    expect(page.locator("#model-badge")).to_have_text("CPU")
    expect(page.locator("#notices")).to_contain_text("No GPU here")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    page.get_by_role("button", name="Dismiss").click()
    page.reload()
    wait_ready(page)
    expect(page.locator("#notices .notice")).to_have_count(0)  # the notice appears once
