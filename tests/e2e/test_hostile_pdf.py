"""PDF files that need much memory or time, or refer to themselves: a text or a clear error, and the page works on."""

import base64
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.hostile_pdf import CASES
from tests.support.memory import renderers_mb
from tests.support.pdf_file import endless, pdf
from tools.selection import everything
from tools.serve import Server

MAX_MB = 2000  # of the page's process; without limits it grows until it ends
LIMIT_MS = 500_000  # for a page: a busy machine needs a minute for what takes ten seconds
# Those that take longest; others need as much memory in the same ways. WISP_ALL=1 runs them.
SLOW = ("3 million names", "60,000 fonts", "an array of 40 million dictionaries")
READ = """async ([reader, worker, data, limit]) => {
    const { readPdf } = await import(reader);
    const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
    let ticks = 0;
    const timer = setInterval(() => ticks++, 100);
    const begun = performance.now();
    const found = await readPdf(bytes.buffer, worker, undefined, limit).then(
        ({ blocks }) => blocks.map(({ text }) => text).join("\\n"), (error) => `Error: ${error.message}`);
    clearInterval(timer);
    return [found, performance.now() - begun, ticks];
}"""


class Reader(Protocol):
    def __call__(self, data: bytes, limit_ms: int = LIMIT_MS) -> tuple[str, float, int]:
        """Return the text or error, the time it took in ms, and how often the page's timer ticked meanwhile."""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    context = new_profile(chromium(None), service_worker=False)
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    yield page
    context.close()


@pytest.fixture(scope="module")
def read(page: Page, server: Server) -> Reader:
    assets = page.evaluate(
        """async () => {
            const { dataset } = new DOMParser()
                .parseFromString(await (await fetch("/index.html")).text(), "text/html")
                .getElementById("documents-dialog");
            return [`/${dataset.pdf}`, `/${dataset.pdfWorker}`];
        }"""
    )

    def read(data: bytes, limit_ms: int = LIMIT_MS) -> tuple[str, float, int]:
        found: list[Any] = page.evaluate(READ, [*assets, base64.b64encode(data).decode(), limit_ms])
        return found[0], found[1], found[2]

    return read


@pytest.mark.parametrize("name", [name for name in CASES if everything() or name not in SLOW])
def test_a_hostile_file_is_text_or_an_error(read: Reader, name: str) -> None:
    make, expected = CASES[name]
    data = make()
    most, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            most.append(renderers_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found, ms, ticks = read(data)
    finally:
        ended.set()
        watcher.join()
    print(f"{name}: {ms / 1000:.1f} s, {max(most):.0f} MB, {len(data) / 1e6:.1f} MB file: {found:.100}")
    assert expected in found
    assert max(most) < MAX_MB
    assert ticks >= ms / 1000, "the page stood still"
    assert read(pdf([[("The Zeta Radio costs 9 euros.", 11, 80)]]))[0] == "The Zeta Radio costs 9 euros."


def test_a_page_that_takes_too_long_is_an_error(read: Reader) -> None:
    assert "A page of it takes longer than 0.5 s to read." in read(endless(), limit_ms=500)[0]
    assert read(pdf([[("The Zeta Radio costs 9 euros.", 11, 80)]]))[0] == "The Zeta Radio costs 9 euros."


# The tab is frozen for an hour, whenever a limit is set: all timers are due then, and no message has been received.
FROZEN = """(limit) => {
    const { setTimeout } = globalThis;
    const now = performance.now.bind(performance);
    let frozen = 0; // ms
    let isOver = false;
    performance.now = () => now() + frozen;
    globalThis.setTimeout = (run, ms, ...rest) => {
        if (ms !== limit || isOver) return setTimeout(run, ms, ...rest);
        frozen += 3_600_000;
        return setTimeout(() => ((isOver = true), run(), (isOver = false)), 0);
    };
    globalThis.thaw = () => {
        delete performance.now;
        globalThis.setTimeout = setTimeout;
    };
}"""


def test_a_tab_that_was_frozen_reads_on(page: Page, read: Reader) -> None:
    """As when the user of a phone looks at another application."""
    limit_ms = 299_999  # of no other timer
    page.evaluate(FROZEN, limit_ms)
    try:
        found = read(pdf([[("The Zeta Radio costs 9 euros.", 11, 80)], [("It weighs 1 kg.", 11, 80)]]), limit_ms)[0]
    finally:
        page.evaluate("thaw()")
    assert found.splitlines()[0] == "The Zeta Radio costs 9 euros."
    assert found.splitlines()[-1] == "It weighs 1 kg."
