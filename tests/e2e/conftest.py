"""Fixtures that several tests of pages share."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.browser import new_profile
from tests.support.chat_page import new_chat
from tests.support.faulty_server import FaultyServer
from tests.support.model_case import write_model


@pytest.fixture(scope="module")
def context(chromium: Callable[[str | None], Browser]) -> Iterator[BrowserContext]:
    """A browser profile per module, on the CPU backend, which loads fastest."""
    made = new_profile(chromium(None))
    yield made
    made.close()


@pytest.fixture
def talk(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The module's page `opened`, with an empty chat; a test fails if the page logged an error."""
    page, errors = opened
    errors.clear()
    new_chat(page)
    yield page
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
