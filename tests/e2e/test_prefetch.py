"""The next model, fetched ahead: only if switched on, while nobody uses the page, on an unmetered link."""

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile
from tests.support.chat_page import SETTINGS, wait_ready
from tests.support.fake_hub import FakeHub, Repository
from tests.support.hub_mirror import use_mirror
from tools.paths import STATIC
from tools.serve import Server

CURATED = "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF"
LINK = """Object.defineProperty(navigator, "connection",
    { value: Object.assign(new EventTarget(), { type: "wifi", saveData: false }) });"""
AWAY_MS = 90_000


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    hub = FakeHub()
    model = (STATIC / "models" / "wisp-mini-q8_0.gguf").read_bytes()
    hub.add(Repository(CURATED, {"smollm2-360m-instruct-q8_0.gguf": model}))
    yield hub
    hub.close()


@pytest.fixture
def page(chromium: Callable[[str | None], Browser], server: Server, hub: FakeHub) -> Iterator[Page]:
    """A page whose clock the test moves, on a link whose kind the test sets."""
    context: BrowserContext = new_profile(chromium(None), service_worker=False)
    use_mirror(context, server.url, hub.url)
    page = context.new_page()
    page.add_init_script(f'localStorage["wisp.settings"] ??= {json.dumps(json.dumps(SETTINGS))}; {LINK}')
    page.clock.install()
    page.goto(server.url)
    wait_ready(page)
    yield page
    context.close()


def switch_on(page: Page) -> None:
    page.click("#settings-button")
    page.get_by_label("Fetch the next model ahead").check()
    page.keyboard.press("Escape")


def test_nothing_is_fetched_unless_all_conditions_hold(page: Page, hub: FakeHub) -> None:
    page.clock.run_for(AWAY_MS)
    assert hub.requests == []  # not switched on
    page.evaluate("navigator.connection.type = 'cellular'")
    switch_on(page)
    page.clock.run_for(AWAY_MS)
    assert hub.requests == []
    page.evaluate("navigator.connection.type = 'wifi'; navigator.connection.saveData = true")
    page.clock.run_for(AWAY_MS)
    assert hub.requests == []
    page.evaluate("navigator.connection.saveData = false")
    page.keyboard.press("Shift")  # somebody is here
    page.clock.run_for(30_000)
    assert hub.requests == []


def test_it_is_stored_while_nobody_is_there_and_runs_from_the_storage(page: Page, hub: FakeHub) -> None:
    switch_on(page)
    page.clock.run_for(AWAY_MS)
    expect(page.locator("#notices")).to_contain_text("smollm2-360m-instruct-q8_0 is stored.")
    hub.requests.clear()
    page.clock.run_for(AWAY_MS)
    assert hub.requests == []  # no other one before this one is used
    page.get_by_role("button", name="Run").click()
    wait_ready(page)
    expect(page.locator("#model-name")).to_contain_text("smollm2")
