"""The KV cache survives: after a reload, the beginning of a prompt is read from the browser's storage."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import open_page
from tools.serve import Server

WORDS = " ".join(f"The {thing} of number {i} is in the garden." for i in range(9) for thing in ("key", "cup"))
LOAD = """async ([backend, shared]) => {
    globalThis.engine = await (await import("/wisp.js")).Wisp.create({ shared });
    globalThis.load = () => engine.load({ model: "wisp-mini-q4_0", backend, contextLength: 512 });
    await load();
}"""
LOAD_AGAIN = """async () => {
    await engine.unload();
    await load();
}"""
ASK = """async (more) => {
    const messages = [{ role: "user", content: more.content }];
    const answer = await engine.chat.completions.create({ temperature: 0, max_tokens: 12, ...more.fields, messages });
    const { prompt_tokens, prompt_tokens_details } = answer.usage;
    return [answer.choices[0].message.content, prompt_tokens, prompt_tokens_details.cached_tokens];
}"""
STORED = """async (least) => {
    while ((await engine.stats()).prefixes.written_tokens < least) await new Promise((done) => setTimeout(done, 50));
    return engine.promptCache.usage();
}"""
WRITABLES = """async () => {
    const all = await (await navigator.storage.getDirectory()).getDirectoryHandle("wisp-prefixes");
    globalThis.writables = [];
    for await (const [, layout] of all.entries())
        for await (const [, handle] of layout.entries())
            writables.push(await handle.createWritable({ keepExistingData: true }));
    return writables.length;
}"""
DAMAGE = """async () => {
    for (const file of writables) {
        await file.write({ type: "write", position: 100, data: new Uint8Array([1, 2, 3]) });
        await file.close();
    }
}"""


LIMIT = 2 << 30  # bytes of the prompt cache where the user has set none


class Visits:
    """Visits of one browser to the page, one after the other, each with an engine of its own."""

    def __init__(self, context: BrowserContext, server: Server, backend: str) -> None:
        self._context, self._server, self._backend = context, server, backend
        self._page: Page | None = None

    def visit(self) -> Page:
        """Close the page, with which its engine ends, and open an engine again."""
        if self._page is not None:
            self._page.close()
        self._page = self.alone()
        return self._page

    def begin(self) -> Page:
        """The engine of the test before with nothing stored and nothing in its caches; a new one if there is none."""
        if self._page is None:
            return self.visit()
        self._page.evaluate("engine.promptCache.clear()")
        self._page.evaluate("(limit) => engine.promptCache.setLimit(limit)", LIMIT)
        return self.load_again()

    def load_again(self) -> Page:
        """Load the model once more, which empties its caches and lists what is stored, without a start of Python."""
        assert self._page is not None
        self._page.evaluate(LOAD_AGAIN)
        return self._page

    def visit_the_chats(self) -> Page:
        """Open the chat page with its engine."""
        page = open_page(self._context, self._server.url)
        page.evaluate(LOAD, [self._backend, True])
        page.evaluate("engine.promptCache.clear()")
        return page

    def alone(self) -> Page:
        """A page with an engine that no other page has."""
        page = self._context.new_page()
        page.goto(f"{self._server.url}notices.html")
        page.evaluate(LOAD, [self._backend, False])
        return page


@pytest.fixture(scope="module")
def visits(
    chromium: Callable[[str | None], Browser], server: Server, request: pytest.FixtureRequest
) -> Iterator[Visits]:
    """A profile of this module's own. Its parameter is the backend, by default the CPU, which starts fastest."""
    backend = getattr(request, "param", "cpu")
    context = new_profile(chromium("lavapipe-optimized" if backend == "webgpu" else None), service_worker=False)
    yield Visits(context, server, backend)
    context.close()


def ask(page: Page, content: str = WORDS, **fields: Any) -> tuple[str, int, int]:
    text, prompt, cached = page.evaluate(ASK, {"content": content, "fields": fields})
    return text, prompt, cached


@pytest.mark.parametrize("visits", ["webgpu"], indirect=True)  # the other tests run on the CPU
def test_after_a_reload_the_prompt_is_read(visits: Visits) -> None:
    page = visits.visit()
    text, prompt, cached = ask(page)
    assert (prompt > 200, cached) == (True, 0)
    whole = (prompt - 1) // 64 * 64
    usage = page.evaluate(STORED, whole)
    assert usage["blocks"] >= whole // 64
    page = visits.visit()
    assert ask(page) == (text, prompt, whole)
    seeded = ask(page, temperature=1.0, seed=4)
    page = visits.load_again()
    assert ask(page, temperature=1.0, seed=4)[0] == seeded[0]


def test_damaged_blocks_are_computed_again(visits: Visits) -> None:
    page = visits.begin()
    text, prompt, _ = ask(page)
    whole = (prompt - 1) // 64 * 64
    page.evaluate(STORED, whole)
    assert page.evaluate(WRITABLES) >= whole // 64
    page.evaluate(DAMAGE)
    page = visits.load_again()
    assert ask(page) == (text, prompt, 0)
    page.evaluate(STORED, 64)
    page = visits.load_again()
    assert ask(page)[0] == text
    assert ask(page, WORDS + "?")[2] >= whole


def test_blocks_that_others_write_are_read_all_the_same(visits: Visits) -> None:
    """While another tab writes a file, no sync access handle opens; it is read as a Blob."""
    page = visits.begin()
    text, prompt, _ = ask(page)
    whole = (prompt - 1) // 64 * 64
    page.evaluate(STORED, whole)
    page = visits.load_again()
    assert page.evaluate(WRITABLES) >= whole // 64
    assert ask(page) == (text, prompt, whole)
    page.evaluate("Promise.all(writables.map((file) => file.abort()))")


def test_private_requests_are_not_stored(visits: Visits) -> None:
    page = visits.begin()
    ask(page, prompt_cache_retention="in_memory")
    ask(page, "A cup. " + WORDS)
    usage = page.evaluate(STORED, 192)
    page = visits.load_again()
    assert ask(page)[2] == 0
    assert usage["blocks"] < 6


def test_the_user_sees_limits_and_clears_it(visits: Visits) -> None:
    page = visits.begin()
    ask(page)
    usage = page.evaluate(STORED, 192)
    assert usage["bytes"] > 0
    assert usage["limit"] == LIMIT
    page.evaluate("engine.promptCache.setLimit(1000)")
    assert page.evaluate("engine.promptCache.usage()") == {"blocks": 0, "bytes": 0, "limit": 1000}
    page = visits.visit()
    assert ask(page)[2] == 0
    assert page.evaluate("engine.promptCache.usage()")["limit"] == 1000
    page.evaluate("engine.promptCache.setLimit(1e9)")
    ask(page, "Once more. " + WORDS)
    page.evaluate(STORED, 64)  # more are on their way, and are dropped
    page.evaluate("engine.promptCache.clear()")
    assert page.evaluate("engine.promptCache.usage()")["blocks"] == 0
    page.wait_for_timeout(500)
    assert page.evaluate("engine.promptCache.usage()")["blocks"] == 0
    page.evaluate("(limit) => engine.promptCache.setLimit(limit)", LIMIT)


def test_the_page_shows_and_clears_it(visits: Visits) -> None:
    page = visits.visit_the_chats()
    ask(page)
    page.evaluate(STORED, 192)
    page.click("#model-button")
    item = page.locator("#cached-list li", has_text="Prompt cache")
    expect(item).to_contain_text("of at most 2.1 GB")
    page.get_by_role("button", name="Clear the prompt cache").click()
    expect(item).to_have_count(0)
    assert page.evaluate("engine.promptCache.usage()")["bytes"] == 0
    passing = page.locator("#cached-passing")
    expect(passing).to_contain_text("This browser may remove what is stored here")
    page.keyboard.press("Escape")
    page.evaluate("() => void (navigator.storage.persisted = async () => true)")  # as where the user has installed it
    page.click("#model-button")
    expect(passing).to_be_hidden()


def test_a_shared_engine_reads_what_is_stored(chromium: Callable[[str | None], Browser], server: Server) -> None:
    """The page's is one. Shared workers cannot open files for synchronous access, which other engines read with."""
    context = new_profile(chromium(None), service_worker=False)
    found = []
    for _ in range(2):
        page = context.new_page()
        page.goto(f"{server.url}notices.html")
        page.evaluate(LOAD, ["cpu", True])
        found.append(ask(page))
        if len(found) == 1:
            page.evaluate(STORED, (found[0][1] - 1) // 64 * 64)
        page.close()  # its engine ends
    context.close()
    (text, prompt, _), again = found
    assert again == (text, prompt, (prompt - 1) // 64 * 64)


def test_another_engine_reads_what_this_one_stores(visits: Visits) -> None:
    """Both are loaded before anything is stored."""
    one, other = visits.begin(), visits.alone()
    text, prompt, _ = ask(one)
    one.evaluate(STORED, (prompt - 1) // 64 * 64)
    assert ask(other) == (text, prompt, (prompt - 1) // 64 * 64)
