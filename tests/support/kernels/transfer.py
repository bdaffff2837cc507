"""Moves numpy buffers into a page and back: large ones by HTTP, since Playwright takes them through three processes."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Page

# Bytes that go in Playwright's message: a request takes as much of the processors as they do.
INLINE = 100_000


class Handler(BaseHTTPRequestHandler):
    """Sends bytes to the page once, and receives what it computed."""

    protocol_version = "HTTP/1.1"
    server: Transfers

    def do_GET(self) -> None:
        """Send the bytes of an address."""
        self._answer(self.server.sent.pop(self.path))

    def do_POST(self) -> None:
        """Receive the bytes of an address."""
        self.server.received[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Transfers(ThreadingHTTPServer):
    """Bytes on their way, by path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent: dict[str, bytes] = {}
        self.received: dict[str, bytes] = {}
        self._numbers = itertools.count()

    def new_path(self) -> str:
        """A path to which a page can send its answer."""
        return f"/{next(self._numbers)}"

    def address(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_port}{path}"


@cache
def transfers() -> Transfers:
    """The server of this process."""
    server = Transfers()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def run_job(page: Page, job: dict[str, Any], contents: bytes) -> tuple[dict[str, int], bytes]:
    """Have runner.js run a job with these contents: the sizes of the buffers that are written, and their bytes."""
    server = transfers()
    path = server.new_path()
    job = {**job, "address": server.address(path), "inline": INLINE, "contents": None}
    if len(contents) <= INLINE:
        job["contents"] = base64.b64encode(contents).decode()
    else:
        server.sent[path] = contents
    # As one text: Playwright looks at each value of an object, and so does the page.
    found = json.loads(page.evaluate("(job) => kernels.run(job)", json.dumps(job)))
    text: str | None = found["contents"]
    return found["sizes"], server.received.pop(path) if text is None else base64.b64decode(text)
