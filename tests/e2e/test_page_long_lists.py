"""Lists of a thousand rows in the sheets: rows near the view are in the document, and all of them can be reached."""

from collections.abc import Callable, Iterator
from math import inf

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import keep_engine, open_page
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.page_looks import faults
from tests.support.waiting import wait_for
from tools.serve import Server

N = 1000
QUEUED = 150  # downloads
MOST = 130  # list items that a list may have in the document
WIDE, PHONE = ViewportSize(width=1100, height=760), ViewportSize(width=360, height=640)

PRESETS = """(n) => {
    const named = (what) => Array.from({ length: n }, (_, i) => ({ id: `${i}`, name: `${what}-${1000 + i}` }));
    localStorage["wisp.snippets"] = JSON.stringify(named("snippet").map((one) => ({ ...one, text: "Hello" })));
    localStorage["wisp.assistants"] = JSON.stringify(named("assistant").map((one) => ({ ...one, settings: {} })));
}"""
DOCUMENTS = """async (n) => {
    const opening = indexedDB.open("wisp-documents");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const writing = db.transaction("documents", "readwrite");
    for (let i = 0; i < n; i++)
        writing.objectStore("documents").put(
            { id: `${i}`, name: `document ${1000 + i}.md`, size: 1000, added: i, passages: 1, model: null });
    await new Promise((resolve) => (writing.oncomplete = resolve));
    db.close();
}"""
# Stored models, an MCP server and the models of another server: what the engine would say of them.
ENGINE = """async (n) => {
    const engine = await (await import("/wisp.js")).Wisp.create();
    const numbers = Array.from({ length: n }, (_, i) => 1000 + i);
    const model = (i) => ({ id: `model-${i}`, url: `http://a.example/${i}.gguf`, size: 1e9, bytes: 1e9, complete: true,
                            verified: true, pinned: false, last_used: 1, loaded: false });
    let stored = numbers.map(model);
    engine.models.cached = async () => stored;
    engine.models.delete = async (url) => (stored = stored.filter((model) => model.url !== url));
    engine.models.pin = async (url, pinned) =>
        (stored = stored.map((model) => (model.url === url ? { ...model, pinned } : model)));
    engine.upstreams.list = async () => ({ data: [{
        name: "office", base_url: "http://a.example/v1", requests: 0,
        models: numbers.map((i) => `office/large-${i}`) }] });
    engine.mcp.unusable = async () => null;
    engine.mcp.connect = async () => ({
        tools: numbers.map((i) => `tool_${i}`).map((name) => ({
            own: name, function: { name, description: "does something", parameters: {} } })),
        close: async () => {},
        prompts: async () => [],
        resources: async () => numbers.map((i) => ({ name: `file-${i}`, uri: `file:///${i}` })),
    });
}"""
ADD = """async ({ url, n }) => {
    const { downloads } = await (await import("/wisp.js")).Wisp.create();
    for (let i = 0; i < n; i++) await downloads.add({ model: `${url}?${1000 + i}`, name: `download-${1000 + i}` });
}"""

# Whether rows of a list that are in view have no elements yet.
GAP_IN_VIEW = """(list) => {
    const { top, bottom } = list.closest(".sheet-body").getBoundingClientRect();
    return [...list.children].some((item) => {
        const box = item.getBoundingClientRect();
        return item.matches(".gap") && box.bottom > top && box.top < bottom;
    });
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server, bad_server: FaultyServer) -> Iterator[Page]:
    """A page whose lists are long."""
    context = new_profile(chromium(None), service_worker=False, viewport=WIDE)
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    errors = watch(page)
    page.evaluate(PRESETS, N)
    page.evaluate(DOCUMENTS, N)
    page.reload()
    page.evaluate(ENGINE, N)
    bad_server.files["slow.gguf"] = File(bytes(1 << 20), pause=Pause(inf, after=1))
    page.evaluate(ADD, {"url": bad_server.url("slow.gguf"), "n": QUEUED})
    yield page
    assert not errors
    context.close()
    bad_server.files["slow.gguf"].pause = None  # its handlers end


def stored_models(page: Page) -> Locator:
    page.click("#model-button")
    return page.locator("#cached-list")


def downloads(page: Page) -> Locator:
    page.click("#model-button")
    return page.locator("#downloads-list")


def models_of_a_server(page: Page) -> Locator:
    page.click("#model-button")
    return page.locator("#upstream-list .upstream-models")


def documents(page: Page) -> Locator:
    page.click("#documents-button")
    return page.locator("#document-list")


def presets(page: Page) -> None:
    page.evaluate("document.querySelector('#presets-dialog').showModal()")


def snippets(page: Page) -> Locator:
    presets(page)
    return page.locator("#snippets .document-list")


def assistants(page: Page) -> Locator:
    presets(page)
    return page.locator("#assistants .document-list")


def mcp(page: Page) -> Locator:
    """The one server of the sheet, connected."""
    page.click("#settings-button")
    page.click("#mcp-button")
    if not page.locator("#mcp-list > li").count():
        page.click("#mcp-add")
        page.fill("#mcp-form [name=name]", "shop")
        page.fill("#mcp-form [name=url]", "http://a.example/mcp")
        page.press("#mcp-form [name=url]", "Enter")
    expect(page.locator("#mcp-list > li")).to_contain_text("1,000 tools")
    return page.locator("#mcp-list > li")


def tools(page: Page) -> Locator:
    mcp(page).locator("summary", has_text="tools").click()
    return page.locator("#mcp-list .mcp-tools ul[aria-label^=Tools]")


def resources(page: Page) -> Locator:
    mcp(page).locator("summary", has_text="resources").click()
    return page.locator("#mcp-list .mcp-tools ul[aria-label^=Prompts]")


LISTS = [stored_models, downloads, models_of_a_server, documents, snippets, assistants, tools, resources]


@pytest.fixture(autouse=True)
def closed(page: Page) -> Iterator[None]:
    """Closes what a test has opened."""
    yield
    page.set_viewport_size(WIDE)
    page.evaluate("document.querySelectorAll('dialog[open] .sheet-body').forEach((body) => body.scrollTo(0, 0))")
    page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")


def row(shown: Locator, number: int) -> Locator:
    """The row of a number from 1, if it is drawn."""
    return shown.locator(f'> [aria-posinset="{number}"]')


@pytest.mark.parametrize("open_list", LISTS, ids=lambda opener: opener.__name__)
def test_only_rows_near_the_view_have_elements(page: Page, open_list: Callable[[Page], Locator]) -> None:
    shown = open_list(page)
    n = QUEUED if open_list is downloads else N
    expect(row(shown, 1)).to_contain_text("1000")
    assert row(shown, 1).get_attribute("aria-setsize") == str(n)
    assert shown.locator("> li").count() < min(MOST, n)
    # The last row, as a user gets there who drags the scroll bar: rows that are higher than was thought move the end.
    to_end = "(list) => list.lastElementChild.scrollIntoView({ block: 'end' })"
    wait_for(lambda: (shown.evaluate(to_end), row(shown, n).count())[1])
    expect(row(shown, n)).to_contain_text(str(999 + n))
    row(shown, n).scroll_into_view_if_needed()
    expect(row(shown, n)).to_be_in_viewport()
    assert shown.locator("> li").count() < min(MOST, n)
    wait_for(lambda: not shown.evaluate(GAP_IN_VIEW))
    assert faults(page) == []
    page.set_viewport_size(PHONE)
    expect(row(shown, n)).to_be_attached()
    wait_for(lambda: not shown.evaluate(GAP_IN_VIEW))
    assert faults(page) == []


@pytest.mark.parametrize(
    "open_list", [stored_models, documents, models_of_a_server], ids=lambda opener: opener.__name__
)
def test_tab_goes_through_rows_that_were_not_drawn(page: Page, open_list: Callable[[Page], Locator]) -> None:
    shown = open_list(page)
    row(shown, 1).locator("button").last.focus()
    buttons = row(shown, 1).locator("button").count()
    for number in range(2, 62):
        expect(row(shown, number)).to_be_attached()  # on a busy machine Tab is faster than rows are drawn
        for _ in range(buttons):
            page.keyboard.press("Tab")
        expect(row(shown, number).locator("button").last).to_be_focused()
    expect(row(shown, 61)).to_be_in_viewport()


def test_the_focus_stays_in_a_list_that_changes(page: Page) -> None:
    """A row that is drawn anew keeps the focus on its button. That of a removed row goes to the row in its place,
    but to none of its buttons: Enter, held a moment too long, would remove the next model, too.
    """
    shown = stored_models(page)
    row(shown, 1).scroll_into_view_if_needed()
    pin = row(shown, 2).get_by_role("button", name="Pin model-1001")
    pin.focus()
    page.keyboard.press("Enter")
    expect(row(shown, 2)).to_contain_text("pinned")
    expect(row(shown, 2).get_by_role("button").first).to_be_focused()
    row(shown, 1).get_by_role("button", name="Remove model-1000").focus()
    page.keyboard.press("Enter")
    expect(row(shown, 1)).to_contain_text("model-1001")
    expect(row(shown, 1)).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    pin = row(shown, 1).get_by_role("button").first
    expect(pin).to_be_focused()
    page.keyboard.press("Enter")
    expect(pin).to_have_attribute("aria-pressed", "false")  # it was pinned
    expect(row(shown, 1)).to_contain_text("model-1001")
    assert row(shown, 1).get_attribute("aria-setsize") == str(N - 1)


def test_only_a_sheet_s_body_scrolls(page: Page) -> None:
    """Its head, with the button that closes it, stays where it is."""
    page.set_viewport_size(PHONE)
    for open_list in (stored_models, documents, snippets, mcp):
        open_list(page)
        sizes = "() => [...document.querySelectorAll('dialog[open]')].map((one) => one.scrollHeight - one.clientHeight)"
        assert set(page.evaluate(sizes)) == {0}, open_list.__name__
        page.evaluate("document.querySelectorAll('dialog[open]').forEach((dialog) => dialog.close())")


def test_a_search_in_a_long_list_shows_what_it_finds(page: Page) -> None:
    shown = models_of_a_server(page)
    field = page.get_by_role("searchbox", name="Search the models of office")
    field.fill("large-1987")
    expect(shown.locator("> li")).to_have_count(1)
    field.fill("")
    expect(row(shown, 2)).to_contain_text("large-1001")


def test_rows_are_drawn_when_what_is_above_them_shrinks(page: Page) -> None:
    """Nothing scrolls then: the end of the list comes into view by itself."""
    shown = snippets(page)
    body = page.locator("#presets-dialog .sheet-body")
    expect(row(shown, 1)).to_be_attached()
    body.evaluate("(body) => { body.scrollTop = body.scrollHeight / 4; }")
    wait_for(lambda: not shown.evaluate(GAP_IN_VIEW))
    page.evaluate("document.querySelector('#assistants').hidden = true")
    wait_for(lambda: not shown.evaluate(GAP_IN_VIEW))
    page.evaluate("document.querySelector('#assistants').hidden = false")
