"""Fixtures that several tests of pages share."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import answer_by, keep_engine, new_chat, open_page
from tests.support.chat_store import store_old_chats
from tests.support.faulty_server import FaultyServer
from tests.support.model_case import write_model
from tests.support.scripted_server import ScriptedServer
from tools.serve import Server


@pytest.fixture(scope="module")
def context(request: pytest.FixtureRequest, chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A browser profile per module, on the CPU backend, which loads fastest.

    Without a service worker, unless the module has SERVICE_WORKER = True.
    """
    made = new_profile(chromium(None), service_worker=getattr(request.module, "SERVICE_WORKER", False))
    yield made
    made.close()


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedServer]:
    """A server whose answers the module's tests write."""
    running = ScriptedServer()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def opened(context: BrowserContext, server: Server, scripted: ScriptedServer) -> tuple[Page, list[str]]:
    """A page with the scripted model, and the errors that it logs. Modules may have their own."""
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    errors = watch(page)
    answer_by(page, scripted.url)
    return page, errors


@pytest.fixture
def talk(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The module's page `opened`, with an empty chat; a test fails if the page logged an error."""
    page, errors = opened
    errors.clear()
    new_chat(page)
    yield page
    assert not errors


@pytest.fixture(scope="module")
def engine_context(context: BrowserContext, server: Server) -> BrowserContext:
    """The module's profile, with an engine that lives on between its tests."""
    keep_engine(context, server.url)
    return context


@pytest.fixture
def old_chats(engine_context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page whose storage had three chats of version 1 and nothing else; a test fails if it logged an error."""
    store_old_chats(engine_context.pages[0])  # the tab that keeps the engine
    page = open_page(engine_context, server.url, settings={"max_tokens": 8})
    errors = watch(page)
    expect(page.locator("#chat-list .chat-open")).to_have_count(3)
    yield page
    page.close()
    assert not errors


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small model's file."""
    return write_model(tmp_path_factory.mktemp("gguf") / "model.gguf")


@pytest.fixture(scope="module")
def bad_server() -> Iterator[FaultyServer]:
    """A server whose faults tests choose."""
    server = FaultyServer()
    yield server
    server.shutdown()
    server.server_close()
