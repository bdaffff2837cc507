"""Two versions of the page: tabs of both are open, the host goes back to the older one, a newer one takes the chats."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.browser import new_profile, wait_until, watch
from tests.support.chat_page import ask, keep_engine, last_answer, open_page, open_without_engine, send, wait_answer
from tests.support.chat_store import chat, store_chats
from tests.support.slow_engine import slowed
from tests.support.two_versions import publish, version
from tools.serve import Server

CONTROLLED = "navigator.serviceWorker.controller"
UPDATE = "navigator.serviceWorker.getRegistration().then((registration) => registration.update())"
# A newer version of the page opens the database; returns [text, finish, whether it can go on] of each answer.
OPEN_NEWER = """async () => {
    const opening = indexedDB.open("wisp-page", 3);
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const reading = db.transaction("messages").objectStore("messages").getAll();
    const messages = await new Promise((resolve) => (reading.onsuccess = () => resolve(reading.result)));
    db.close();
    const answers = messages.filter(({ role }) => role === "assistant");
    return answers.map(({ content, finish, cut }) => [content, finish, Boolean(cut)]);
}"""

# The number of stored messages.
COUNT = """async () => {
    if (!(await indexedDB.databases()).some(({ name, version }) => name === "wisp-page" && version === 2)) return 0;
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const counting = db.transaction("messages").objectStore("messages").count();
    const count = await new Promise((resolve) => (counting.onsuccess = () => resolve(counting.result)));
    db.close();
    return count;
}"""
DELETE = """() => new Promise((resolve, reject) => {
    const deleting = indexedDB.deleteDatabase("wisp-page");
    deleting.onsuccess = resolve;
    deleting.onblocked = reject;
})"""


@pytest.fixture(scope="module")
def versions(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of two versions."""
    folder = tmp_path_factory.mktemp("versions")
    return version(dist, folder / "one", "one"), version(dist, folder / "two", "two")


@pytest.fixture
def site(versions: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[Path, Server]]:
    """A host with the first version."""
    folder = tmp_path / "site"
    folder.mkdir()
    publish(versions[0], folder)
    running = Server(folder, 0).start()
    yield folder, running
    running.shutdown()
    running.server_close()


@pytest.fixture
def profile(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    made = new_profile(chromium(None))
    yield made
    made.close()


def offer(page: Page) -> Locator:
    return page.locator(".notice", has_text="A newer Wisp is ready.")


def update(page: Page) -> None:
    """Take over the version that the host has by now."""
    page.evaluate(UPDATE)
    offer(page).get_by_role("button", name="Reload").click()


def shows(page: Page, name: str) -> None:
    expect(page.locator("#welcome h1")).to_have_text(f"Version {name}")
    wait_until(page, CONTROLLED)


def caches_of(url: str, *names: str) -> str:
    wanted = sorted(f"wisp {url} {name}" for name in names)
    return f"JSON.stringify((await caches.keys()).sort()) === JSON.stringify({wanted})"


def test_a_tab_goes_on_with_its_version_until_it_is_reloaded(
    profile: BrowserContext, site: tuple[Path, Server], versions: tuple[Path, Path]
) -> None:
    folder, server = site
    old, new = (open_without_engine(profile, server.url) for _ in range(2))
    shows(old, "one")
    errors = watch(old)
    publish(versions[1], folder)
    update(new)  # is offered to a tab that installed the first version, too
    shows(new, "two")
    offer(old).get_by_role("button", name="Dismiss").click()
    old.click("#settings-button")
    old.select_option("#language", "ja")  # was never loaded, and the host does not have it any more
    expect(old.locator("html")).to_have_attribute("lang", "ja")
    old.select_option("#language", "en")
    old.keyboard.press("Escape")
    profile.set_offline(True)
    old.click("#monitor-button")
    expect(old.get_by_role("heading", name="KV cache by request")).to_be_visible()
    profile.set_offline(False)
    assert not [error for error in errors if "404" in error]
    wait_until(new, caches_of(server.url, "one", "two"))
    old.close()
    new.reload()
    shows(new, "two")
    wait_until(new, caches_of(server.url, "two"))


def test_the_offer_works_after_another_tab_has_taken_it(
    profile: BrowserContext, site: tuple[Path, Server], versions: tuple[Path, Path]
) -> None:
    folder, server = site
    first, second = (open_without_engine(profile, server.url) for _ in range(2))
    for tab in (first, second):
        shows(tab, "one")
    publish(versions[1], folder)
    first.evaluate(UPDATE)
    offer(second).get_by_role("button", name="Dismiss").click()
    update(first)
    shows(first, "two")
    offer(second).get_by_role("button", name="Reload").click()  # it came again: this tab is older now
    shows(second, "two")
    wait_until(second, caches_of(server.url, "two"))


def test_a_host_goes_back_to_the_older_version(
    profile: BrowserContext, site: tuple[Path, Server], versions: tuple[Path, Path]
) -> None:
    folder, server = site
    tab, other = (open_without_engine(profile, server.url) for _ in range(2))
    shows(tab, "one")
    for name, made in (("two", versions[1]), ("one", versions[0])):
        publish(made, folder)
        update(tab)
        shows(tab, name)
    shows(other, "one")
    profile.set_offline(True)
    tab.reload()
    shows(tab, "one")
    profile.set_offline(False)


def test_a_version_that_cannot_be_fetched_leaves_nothing(
    profile: BrowserContext, site: tuple[Path, Server], versions: tuple[Path, Path]
) -> None:
    folder, server = site
    tab = open_without_engine(profile, server.url)
    shows(tab, "one")
    publish(versions[1], folder)
    (folder / "notices.html").unlink()
    tab.evaluate(f"{UPDATE}.catch(() => {{}})")
    ended = "!(await navigator.serviceWorker.getRegistration()).installing"
    wait_until(tab, f"{ended} && {caches_of(server.url, 'one')}")
    tab.reload()
    shows(tab, "one")


def test_a_cache_that_the_browser_removed_is_filled_again(profile: BrowserContext, server: Server) -> None:
    tab = open_without_engine(profile, server.url)
    wait_until(tab, CONTROLLED)
    count = "(await (await caches.open((await caches.keys())[0])).keys()).length"
    whole = tab.evaluate(f"async () => {count}")
    tab.evaluate("async () => { for (const name of await caches.keys()) await caches.delete(name); }")
    tab.reload()
    wait_until(tab, f"(await caches.keys()).length && {count} >= {whole} - 1")  # all but the note of older versions
    profile.set_offline(True)
    tab.reload()
    expect(tab.locator("#welcome h1")).to_be_visible()
    profile.set_offline(False)


@pytest.fixture
def old_tab(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A tab with an engine, in a profile of its own."""
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    yield page
    page.close()


def test_what_a_tab_is_making_is_stored_before_a_newer_one_takes_the_chats(old_tab: Page) -> None:
    ask(old_tab, "What is the capital of Italy?")
    with slowed(old_tab):
        send(old_tab, "Write a short story about a dragon named Ember who finds a silver key.")
        expect(last_answer(old_tab).locator(".body")).to_contain_text("dragon")
        seen = last_answer(old_tab).locator(".body").inner_text().split()
        first, second = old_tab.evaluate(OPEN_NEWER)
        assert first == ["The capital of Italy is Rome.", "stop", False]
        assert second[0].split()[: len(seen) - 1] == seen[:-1]
        assert second[1:] == [None, True]
        expect(old_tab.locator("#notices")).to_contain_text("Reload this tab.")
        old_tab.get_by_role("button", name="Stop").click()
    wait_answer(old_tab)
    expect(old_tab.locator("#notices .error")).to_contain_text("A newer Wisp has stored these data")
    address = old_tab.url
    old_tab.reload()
    expect(old_tab.locator("#notices .error")).to_contain_text("They are not lost: reload to get that one.")
    assert old_tab.url == address


def test_a_chat_is_stored_as_a_whole_after_another_tab_deleted_the_chats(
    profile: BrowserContext, server: Server
) -> None:
    page, other = (open_without_engine(profile, server.url) for _ in range(2))
    store_chats(page, [chat([("What is first?", "This.")])])
    page.reload()
    expect(page.locator("#thread .message")).to_have_count(2)
    other.evaluate(DELETE)
    send(page, "What is next?")
    wait_until(other, f"(await ({COUNT})()) === 4")
    page.reload()
    expect(page.locator("#thread .message").first).to_contain_text("What is first?")
    expect(page.locator("#thread")).to_contain_text("What is next?")
    expect(page.locator(".notice")).to_have_count(0)
