"""Run `build.py dev`: serve dist/, rebuild it when a source changes, and reload the pages that show it.

Only this server's answers contain the reload code. The server adds one module to each HTML page, under the production
Content-Security-Policy, and empties the service worker's list of files, so that every file is loaded from the network.
dist/ holds exactly what `build.py build` makes.
"""

import argparse
import re
import sys
import threading
import time
import webbrowser
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from watchfiles import watch

from tools import dist
from tools.failure import Failure, say
from tools.headers import HEADERS, SANDBOXES
from tools.paths import ROOT
from tools.serve import Handler, Server, has_desktop, open_port

WATCHED = ("app", "bench", "py_engine", "static", "wgsl", "wisp")
EVENTS, MODULE = "/dev/events", "/dev/reload.js"
PING_S = 5.0  # between comments that find out whether a page is still connected
RELOAD = f"""
let shown;
new EventSource("{EVENTS}").onmessage = ({{ data }}) => {{
  if (shown !== undefined && shown !== data) location.reload();
  shown = data;
}};
"""
# Prepended to sw.js: take over at once. Where `serve` has left a cached page, load it again from the network.
TAKE_OVER = """
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil((async () => {
  const cached = (await caches.keys()).some((name) => /^wisp /.test(name) && !/ dev$/.test(name));
  await self.clients.claim();
  if (cached) for (const page of await self.clients.matchAll({ type: "window" })) page.navigate(page.url);
})()));
"""
PRECACHE = re.compile(rb"^const __WISP_PRECACHE__ = .*;\n")


class DevHandler(Handler):
    """Serve files as `serve` does, with the reload code added."""

    server: "DevServer"

    def do_GET(self) -> None:
        """Send a file, the reload module or the stream of build numbers."""
        path = urlsplit(self.path).path
        if path == EVENTS:
            self._events()
        elif path == MODULE:
            self._text(RELOAD.encode(), "text/javascript; charset=utf-8")
        elif (file := self._file()) is not None and file.suffix == ".html" and file.name not in SANDBOXES:
            tag = f'<script type="module" src="{MODULE}"></script></head>'
            self._text(file.read_bytes().replace(b"</head>", tag.encode(), 1), "text/html; charset=utf-8")
        elif file is not None and file == self.server.root / "sw.js":
            precache = b'const __WISP_PRECACHE__ = {"version":"dev","files":[],"onUse":[]};\n'
            code = PRECACHE.sub(lambda _: precache + TAKE_OVER.encode(), file.read_bytes())
            self._text(code, "text/javascript; charset=utf-8")
        else:
            super().do_GET()

    def _text(self, data: bytes, kind: str) -> None:
        self._begin(kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self) -> None:
        """Send the build's number now and whenever it changes, until the page disconnects."""
        self.close_connection = True
        self._begin("text/event-stream")
        self.end_headers()
        sent = ""
        try:
            while True:
                number = self.server.build_after(sent, PING_S)
                self.wfile.write(f"data: {number}\n\n".encode() if number != sent else b": ping\n\n")
                sent = number
        except OSError:
            return

    def _begin(self, kind: str) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")


class DevServer(Server):
    """The page's server, with the number of the build that it serves."""

    handler = DevHandler

    def __init__(self, root: Path, port: int) -> None:
        super().__init__(root, port)
        self._changed = threading.Condition()
        self._build = str(time.time_ns())  # differs from those of earlier servers, whose pages reconnect

    def built(self) -> None:
        """Tell every page that there is a new build."""
        with self._changed:
            self._build = str(time.time_ns())
            self._changed.notify_all()

    def build_after(self, known: str, timeout_s: float) -> str:
        """Return the build's number once it is not `known`, at the latest after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._build != known, timeout_s)
            return self._build


def main(arguments: list[str]) -> int:
    """Build, serve and watch until interrupted; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--no-open", action="store_true")
    options = parser.parse_args(arguments)
    try:
        server = open_port(dist.build(), options.port, DevServer)
    except Failure as failure:
        print(f"build.py: {failure}", file=sys.stderr)
        return 1
    assert isinstance(server, DevServer)
    server.start()
    print(f"Serving {server.url}", flush=True)
    if not options.no_open and has_desktop():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    for changes in watch(*(ROOT / name for name in WATCHED), debounce=100, raise_interrupt=False):
        names = sorted(str(Path(path).relative_to(ROOT)) for _, path in changes)
        say(f"Changed: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}")
        try:
            dist.build()
        except Failure as failure:
            print(f"build.py: {failure}", file=sys.stderr)
        else:
            server.built()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
