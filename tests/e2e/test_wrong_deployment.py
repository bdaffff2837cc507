"""Wisp's files on another origin than the page, or not all of them: the error says what to change."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.bare_pyodide import Quiet
from tests.support.browser import new_profile

CREATE = """async (url) => {
  const { Wisp } = await import(url);
  return Wisp.create().then(() => "no error", (error) => [error.name, error.code, error.message]);
}"""


class Shared(Quiet):
    """A file server whose files other origins may read."""

    def end_headers(self) -> None:
        """Add the header of CORS."""
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a folder until the test ends, and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def served(folder: Path) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), partial(Shared, directory=folder)))
        Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/"

    yield served
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(tmp_path: Path, dist: Path, serve: Callable[[Path], str]) -> str:
    """The address of a folder with a page and the SDK's first file, and nothing else."""
    shutil.copy(dist / "wisp.js", tmp_path)
    (tmp_path / "index.html").write_text("<!doctype html>")
    return serve(tmp_path)


def error_of(chromium: Callable[[str | None], Browser], page_url: str, sdk: str) -> Any:
    """What `Wisp.create()` rejects with in a page."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(page_url)
    found = page.evaluate(CREATE, sdk)
    context.close()
    return found


def test_files_of_another_origin(
    chromium: Callable[[str | None], Browser], site: str, serve: Callable[[Path], str], dist: Path
) -> None:
    other = serve(dist)
    name, code, message = error_of(chromium, site, f"{other}wisp.js")
    assert (name, code) == ("WispError", "worker_crashed")
    assert other in message
    assert f"Serve Wisp's files from {site.rstrip('/')}" in message


def test_the_sdk_without_its_other_files(chromium: Callable[[str | None], Browser], site: str) -> None:
    name, code, message = error_of(chromium, site, f"{site}wisp.js")
    assert (name, code) == ("WispError", "worker_crashed")
    assert f"did not load from {site}assets/worker" in message
    assert "wisp.js needs assets/ beside it" in message
