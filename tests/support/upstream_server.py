"""A server for the tests of upstreams: forwards /v1 to a real Wisp's bridge, and allows requests of a page (CORS).

Below /hostile/v1 it answers by itself, with texts that must not become a part of the page; from /moved/v1 it redirects.
"""

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.support.waiting import HANG_S

PWN = "<img src=x onerror='globalThis.pwned = 1'>"
HOSTILE_MODEL = f"{PWN}/../<b>m</b>"
HOSTILE_TEXT = f"{PWN}<script>globalThis.pwned = 2</script> [link](javascript:globalThis.pwned=3) **bold**"
SHORT = 4  # messages that the model "short" accepts
PIECE = 7  # bytes sent at a time: cuts events and characters


class Handler(BaseHTTPRequestHandler):
    """Handles a request: answers it, or forwards it to the bridge."""

    protocol_version = "HTTP/1.1"
    server: "UpstreamServer"

    def do_OPTIONS(self) -> None:
        """Answer a CORS preflight."""
        self._head(204, {"Access-Control-Allow-Headers": "authorization, content-type", "Content-Length": "0"})

    def do_GET(self) -> None:
        """Answer a request for the list of models."""
        self._answer()

    def do_POST(self) -> None:
        """Answer every other request."""
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append((self.path, dict(self.headers), json.loads(body) if body else None))
        if self.path.startswith("/hostile/"):
            self._hostile()
            return
        if self.path.startswith("/moved/"):
            self._head(307, {"Location": self.path.removeprefix("/moved"), "Content-Length": "0"})
            return
        host = urlsplit(self.server.bridge).netloc
        connection = http.client.HTTPConnection(host, timeout=HANG_S)
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
        connection.request(self.command, self.path, body or None, headers)
        reply = connection.getresponse()
        self._head(reply.status, {"Content-Type": reply.headers["Content-Type"], "Connection": "close"})
        self.close_connection = True
        try:
            while piece := reply.read1():
                for i in range(0, len(piece), PIECE):
                    self.wfile.write(piece[i : i + PIECE])
        except OSError:  # the page left
            self.server.aborted += 1
        finally:
            connection.close()

    def _hostile(self) -> None:
        if self.command == "GET":
            answer: Any = {"object": "list", "data": [{"id": HOSTILE_MODEL}, {"id": "refuses"}, {"id": "short"}]}
            text, kind, status = json.dumps(answer), "application/json", 200
        elif self.server.seen[-1][2]["model"] == "refuses":
            text, kind, status = json.dumps({"error": {"message": PWN}}), "application/json", 400
        elif self.server.seen[-1][2]["model"] == "short" and len(self.server.seen[-1][2]["messages"]) > SHORT:
            error = {
                "code": 400,
                "message": "the request exceeds the available context size",
            }
            text, kind, status = json.dumps({"error": error}), "application/json", 400
        else:
            chunk = {"choices": [{"index": 0, "delta": {"content": HOSTILE_TEXT}, "finish_reason": "stop"}]}
            text, kind, status = f"data: {json.dumps(chunk)}\r\n\r\ndata: [DONE]\r\n\r\n", "text/event-stream", 200
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(text))})
        self.wfile.write(text.encode())

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        allowed = {"Access-Control-Allow-Origin": self.server.allowed} if self.server.allowed else {}
        for name, value in {**allowed, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class UpstreamServer(ThreadingHTTPServer):
    """The server. `allowed`: the origin whose pages may send requests; None: only its own."""

    daemon_threads = True

    def __init__(self, bridge: str, allowed: str | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bridge, self.allowed = bridge, allowed
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.aborted = 0  # answers that the page aborted
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Base URL for an upstream."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"
