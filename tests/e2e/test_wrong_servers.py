"""Servers that send other bytes than they were asked for."""

from playwright.sync_api import Page

from tests.support.faulty_server import FaultyServer, File
from tests.support.model_case import Case


def test_another_part_of_the_file_is_an_error(engine_page: Page, bad_server: FaultyServer, model: bytes) -> None:
    """Its tensors would be wrong, and nothing would say so."""
    got = Case(engine_page, bad_server, File(model, shift=-1)).load()
    assert got["error"]["code"] == "network_error"
    assert "another part" in got["error"]["message"]
