"""Tabs with an engine each, as those of two versions of the page have: one downloads a file, the others wait for it."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.browser import new_profile
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.serve import Server

MINI = (ROOT / "static" / "models" / "wisp-mini-q8_0.gguf").read_bytes()
HELD, STORED = 9_000_000, 1 << 20  # bytes: when so many have arrived, more than so many of them are stored
START = """async () => {
    const { Wisp } = await import("/wisp.js");
    globalThis.arrived = 0;
    globalThis.wisp = await Wisp.create({ shared: false, onProgress: ({ loaded }) => (globalThis.arrived = loaded) });
}"""
CHANGE = "([what, argument]) => globalThis.wisp.downloads[what](argument)"
QUEUE = """async () => {
    const items = await globalThis.wisp.downloads.list();
    return items.map(({ state, loaded, total }) => [state, loaded, total]);
}"""
LOAD_AND_ASK = """async (model) => {
    await globalThis.wisp.load({ model });
    const messages = [{ role: "user", content: "What is the capital of France?" }];
    const answer = await globalThis.wisp.chat.completions.create({ temperature: 0, messages });
    return answer.choices[0].message.content;
}"""


@pytest.fixture
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    made = new_profile(chromium(None), service_worker=False)
    yield made
    made.close()


def tab(context: BrowserContext, server: Server) -> Page:
    """A tab with an engine of its own, and no model."""
    page = context.new_page()
    page.goto(f"{server.url}notices.html")
    page.evaluate(START)
    return page


def published(host: FaultyServer, name: str) -> File:
    """A model that arrives slowly, without its end."""
    host.files[name] = file = File(MINI, piece=1 << 15, pause=Pause(0.01, held_at=HELD))
    return file


def begun(context: BrowserContext, server: Server, host: FaultyServer, name: str) -> tuple[File, Page, Page, str]:
    """A model's file, a tab whose engine has downloaded most of it, another tab, and the file's address."""
    file, url = published(host, name), host.url(name)
    one, two = tab(context, server), tab(context, server)
    one.evaluate(CHANGE, ["add", {"model": url}])
    wait_for(lambda: file.sent >= HELD)
    return file, one, two, url


def go_on(file: File) -> None:
    file.pause = None


def test_one_downloads_and_the_other_shows_it(
    context: BrowserContext, server: Server, bad_server: FaultyServer
) -> None:
    file, one, two, _ = begun(context, server, bad_server, "twice.gguf")
    requests = len(file.requests)
    wait_for(lambda: two.evaluate(QUEUE)[0][1] > STORED)
    ((state, loaded, total),) = two.evaluate(QUEUE)
    assert (state, total) == ("running", len(MINI))
    assert loaded < len(MINI)
    assert len(file.requests) == requests, "the second engine asks the host for nothing"
    go_on(file)
    for page in (one, two):
        wait_for(lambda page=page: page.evaluate(QUEUE) == [["done", len(MINI), len(MINI)]])  # type: ignore[misc]
    assert file.sent == len(MINI), "no byte is fetched twice"


def test_the_other_goes_on_when_the_tab_that_downloads_is_closed(
    context: BrowserContext, server: Server, bad_server: FaultyServer
) -> None:
    file, one, two, _ = begun(context, server, bad_server, "orphan.gguf")
    wait_for(lambda: two.evaluate(QUEUE)[0][1] > STORED)
    stored = two.evaluate(QUEUE)[0][1]
    file.requests.clear()
    one.close()
    go_on(file)
    wait_for(lambda: two.evaluate(QUEUE) == [["done", len(MINI), len(MINI)]])
    spans = [request.partition("=")[2].split("-") for request in file.requests]
    again = sum(int(end) + 1 - int(start) for start, end in spans)
    # Or less: the tab may have stored more before it was closed.
    assert 0 < again <= len(MINI) - stored, "what the closed tab has stored is not fetched again"


def test_a_pause_is_one_for_both_and_so_is_what_follows(
    context: BrowserContext, server: Server, bad_server: FaultyServer
) -> None:
    file, one, two, url = begun(context, server, bad_server, "paused.gguf")
    wait_for(lambda: two.evaluate(QUEUE)[0][0] == "running")
    two.evaluate(CHANGE, ["pause", url])
    wait_for(lambda: one.evaluate(QUEUE)[0][0] == "paused")
    go_on(file)
    wait_for(lambda: not file.under_way)
    sent = file.sent
    two.wait_for_timeout(300)
    assert file.sent == sent, "nothing travels"
    one.evaluate(CHANGE, ["resume", url])
    for page in (one, two):
        wait_for(lambda page=page: page.evaluate(QUEUE)[0][0] == "done")  # type: ignore[misc]


def test_a_load_waits_for_the_download_of_another_tab(
    context: BrowserContext, server: Server, bad_server: FaultyServer
) -> None:
    file, _, two, url = begun(context, server, bad_server, "loaded.gguf")
    two.evaluate(f"(model) => void (globalThis.answer = ({LOAD_AND_ASK})(model))", url)
    wait_for(lambda: two.evaluate("globalThis.arrived") > STORED)
    go_on(file)
    assert "Paris" in two.evaluate("globalThis.answer")
    wait_for(lambda: not file.under_way)
    asked_for_newer = sum(request == "GET bytes=0-0" for request in file.requests)
    assert file.sent == len(MINI) + asked_for_newer
