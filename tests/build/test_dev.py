"""`build.py dev`: a change in a source reaches the open page, and nothing of that is in dist/."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import new_profile, wait_until
from tests.support.chat_page import NO_ENGINE
from tests.support.checkouts import copy_sources
from tests.support.waiting import HANG_S
from tools.headers import CSP
from tools.paths import ROOT

CONTROLLED = "navigator.serviceWorker.controller"
# `build.py serve` without its build: dist/ is made.
SERVE = "import sys; from tools import paths, serve; serve.serve(paths.DIST, int(sys.argv[1]), open_browser=False)"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, with this checkout's environment and packages."""
    made = tmp_path_factory.mktemp("checkout")
    copy_sources(made)
    (made / "node_modules").symlink_to(ROOT / "node_modules")
    return made


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[str]:
    """Run Python in a checkout, where it serves a page; yields the address. In the end, interrupt it as Ctrl-C does:
    together with what it has started.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, *arguments]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, cwd=folder, env=env, **options) as process:
        try:
            assert process.stdout
            match = re.fullmatch(r"Serving (http://127\.0\.0\.1:\d+/)\n", process.stdout.readline())
            assert match
            yield match[1]
        finally:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(HANG_S) in (0, 130)


def unused_port() -> int:
    """A free port below those that the system gives to whoever asks for any: it stays free between two servers."""
    for port in range(20_000, 30_000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


@pytest.fixture(scope="module")
def page(dist: Path, checkout: Path, chromium: Callable[[str | None], Browser]) -> Iterator[Page]:
    """A page that `serve` has cached, opened again while `dev` runs at its address."""
    context, port = new_profile(chromium(None)), unused_port()
    context.add_init_script(NO_ENGINE)  # the page would start Python each time it is loaded
    opened = context.new_page()
    with running(ROOT, "-c", SERVE, str(port)) as url:
        opened.goto(url)
        wait_until(opened, CONTROLLED)
    with running(checkout, "build.py", "dev", "--no-open", "--port", str(port)):
        opened.goto(url)
        yield opened
    context.close()


def test_a_page_that_serve_has_cached_is_replaced(page: Page) -> None:
    """The production service worker answers first; then that of `dev` takes over and loads the page again."""
    expect(page.locator('script[src="/dev/reload.js"]')).to_have_count(1)


def test_a_change_reloads_the_page(page: Page, checkout: Path) -> None:
    """The service worker does not answer with the old page."""
    assert page.request.get(page.url).headers["content-security-policy"] == CSP
    wait_until(page, CONTROLLED)
    with (checkout / "app" / "page.js").open("a") as script:
        script.write('\ndocument.documentElement.dataset.changed = "once";\n')
    expect(page.locator("html[data-changed=once]")).to_have_count(1)
    index = checkout / "static" / "index.html"
    index.write_text(index.read_text().replace("What shall we try?", "Changed twice"))
    expect(page.locator("#welcome h1")).to_have_text("Changed twice")
    for path in (checkout / "dist").rglob("*"):
        assert path.suffix not in (".html", ".js") or b"/dev/reload.js" not in path.read_bytes(), path
    assert (checkout / "dist" / "sw.js").read_bytes().startswith(b'const __WISP_PRECACHE__ = {"version": "')
