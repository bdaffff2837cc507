"""Run `build.py serve --api`: the server, and a headless browser that lends its engine while no tab does."""

import argparse
import atexit
import shutil
import sys
import tempfile
import threading
import time
import webbrowser
from html import escape
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.api import BACKGROUND, ApiServer
from tools.chat import exit_status, open_browser, open_page
from tools.failure import Failure
from tools.mcp_servers import servers_of
from tools.paths import DIST, cache_dir
from tools.serve import has_desktop, open_port

GRACE_S = 30.0  # for a browser to open, or a tab to reload
LEND = """async ({ model, url }) => {
  const { Wisp } = await import("/wisp.js");
  try {
    const engine = await Wisp.create({ onProgress: (progress) => wispProgress(progress) });
    await engine.load({ model: model ?? undefined });
    await wispProgress(null);
    Wisp.lend(url);
    return null;
  } catch (error) {
    return error.message;
  }
}"""


def main(arguments: list[str]) -> int:
    """Serve until interrupted; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-open", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--mcp", action="append", default=[])
    options = parser.parse_args(arguments)
    try:
        return exit_status(lambda: _serve(options))
    except KeyboardInterrupt:
        return 0


def _serve(options: argparse.Namespace) -> None:
    server = open_port(DIST, options.port, ApiServer)
    assert isinstance(server, ApiServer)
    server.relay.servers = servers_of(options.mcp)
    server.start()
    print(f"Serving {server.url}", flush=True)
    print(f"API: {server.url}v1", flush=True)
    print(f"API key: {server.key}", flush=True)
    print(f"To let a tab of your browser answer, open {server.lending_url}", flush=True)
    server.say = lambda text: print(text, flush=True)
    if not options.no_open and has_desktop():
        threading.Thread(target=_open_privately, args=(server.lending_url,), daemon=True).start()
        server.wait_for_tab(GRACE_S)
    while True:
        if server.tab is None:
            _lend(server, options.model)
        with server.changed:
            server.changed.wait(0.5)
        if server.tab is None:
            server.wait_for_tab(GRACE_S)  # a tab that reloads connects again


def _open_privately(address: str) -> None:
    """Open an address in the user's browser by way of a file that only the user may read.

    The browser's command line, which all users of the machine see, has the file's name instead of the ticket.
    """
    folder = Path(tempfile.mkdtemp(prefix="wisp-"))  # readable by the user alone
    atexit.register(
        shutil.rmtree, folder, ignore_errors=True
    )  # this thread may end with the process, without `finally`
    page = folder / "open.html"
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">')
    webbrowser.open(page.as_uri())
    time.sleep(GRACE_S)
    shutil.rmtree(folder, ignore_errors=True)


def _lend(server: ApiServer, model: str | None) -> None:
    """Let a headless browser answer until a tab of the user connects, or its own page ends."""
    with tempfile.TemporaryDirectory() as spare, sync_playwright() as playwright:
        context = open_browser(playwright, str(cache_dir("chat-profile")), spare)
        try:
            page = open_page(context, server.url, None)
            url = f"{server.url.replace('http', 'ws', 1)}v1/bridge?ticket={server.tickets.issue(BACKGROUND)}"
            problem = page.evaluate(LEND, {"model": model, "url": url})
            if problem:
                raise Failure(problem)
            tab = server.wait_for_tab(GRACE_S)
            if tab is not None and tab.name == BACKGROUND:
                print("Ready: a browser in the background answers", flush=True)
            while server.tab is not None and server.tab.name == BACKGROUND:
                page.wait_for_timeout(250)
        finally:
            context.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
