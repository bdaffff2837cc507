"""Moves numpy buffers into a page and back by HTTP. Playwright would take base64 through two more processes."""

from __future__ import annotations

import itertools
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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

    def send(self, data: bytes) -> str:
        """Offer bytes to a page; return their path, to which the page sends its answer."""
        path = f"/{next(self._numbers)}"
        self.sent[path] = data
        return path

    def address(self, path: str) -> str:
        """The address of a path."""
        return f"http://127.0.0.1:{self.server_port}{path}"


@cache
def transfers() -> Transfers:
    """The server of this process."""
    server = Transfers()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
