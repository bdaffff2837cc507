"""The npm package in apps of real bundlers: what npm/README.md has, and a page of the result that is to answer."""

import re
import shutil
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import Browser

from tests.support.bare_pyodide import MODEL, Quiet
from tests.support.browser import new_profile
from tests.support.waiting import wait_for
from tools.failure import run
from tools.paths import ROOT

README = (ROOT / "npm" / "README.md").read_text(encoding="utf-8")
VITE, APP, WEBPACK = re.findall(r"```js\n(.*?)```", README, re.DOTALL)


def app() -> str:
    """The app of the README, with the model and a question of the tests."""
    here = APP.replace("https://example.org/model.gguf", f"/{MODEL.name}")
    return here.replace("Hello", "What is the capital of France?")


def install(folder: Path, *packages: str | Path) -> None:
    """Install packages into a folder."""
    npm = shutil.which("npm") or "npm"
    run([npm, "install", "--no-audit", "--no-fund", *packages], "Cannot install the packages", cwd=folder)


def answer(site: Path, chromium: Callable[[str | None], Browser]) -> str:
    """What a built site's page writes until it has a whole sentence."""
    shutil.copy(MODEL, site)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site))
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    page = new_profile(chromium(None)).new_page()
    page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
    wait_for(lambda: "." in page.locator("body").inner_text())
    text = page.locator("body").inner_text()
    page.context.close()
    server.shutdown()
    server.server_close()
    return text
