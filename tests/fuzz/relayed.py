"""Random answers of an MCP server to the relay of `serve --api --mcp`, and requests of pages whose headers are odd."""

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from random import Random

from tests.fuzz import http
from tests.support.waiting import HANG_S
from tools.mcp_relay import RELAY_KEY
from tools.mcp_servers import Address

STATUS_LINES = (
    "HTTP/1.1 200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200", "HTTP/1.1 204 x", "HTTP/1.1 304 x", "HTTP/1.1 401 x",
    "HTTP/1.1 101 x", "HTTP/1.1 102 x", "HTTP/1.1 999 x", "HTTP/1.1 1000 x", "HTTP/1.1 -1 x", "HTTP/1.1 \xb2",
    "HTTP/9 200",
    "HTTP/0.9 200", "ICY 200 OK", "", "x", "HTTP/1.1 200 " + "x" * 70_000, "HTTP/1.1 100 x\r\n\r\nHTTP/1.1 200 OK",
    "HTTP/1.1 100 x\r\n\r\n" * 3000 + "HTTP/1.1 200 OK",
)  # fmt: skip
HEADERS = (
    "Content-Length: 5", "Content-Length: -5", "Content-Length: x", "Content-Length: " + "9" * 5000,
    "Content-Length: " + "9" * 30, "no colon", " folded",
    "Transfer-Encoding: chunked", "Transfer-Encoding: x",
    "Content-Type: application/json", "Content-Type: text/event-stream",
    "Content-Type: a\r\n b", "Content-Type: \xe9", "Content-Type: a\x0bb", "Content-Type: a\rb", "Content-Type: \0",
    "Mcp-Session-Id: \xe9\0", "Mcp-\xe9: x", "mcp-: ", "mcp-a b: c", "Retry-After: x", "WWW-Authenticate: x" * 3000,
    "Connection: close", "X: " + "x" * 70_000, "Content-Type: message/rfc822", "Content-Type: multipart/x; boundary=b",
    'Content-Type: multipart/x; a="' + ";" * 15_000, "Content-Type: multipart/x; boundary*" + "9" * 5000 + "=b",
    "Content-Type: multipart/x; boundary*=a; boundary*0=b", 'Content-Type: multipart/x; a="' + ";\r\n ;" * 3000,
)  # fmt: skip
BODIES = (
    "", "hello", "5\r\nhello\r\n0\r\n\r\n", "z\r\n", "f" * 5000 + "\r\n", "-5\r\nx", "5\r\nhel",
    "0\r\n" + "x: y\r\n" * 300, "5;" + "x" * 70_000 + "\r\nhello\r\n",
)  # fmt: skip
METHODS = ("POST", "POST", "GET", "DELETE", "HEAD", "CONNECT", "G\1T", "G\xc9T", "(")
SENT = (
    "mcp-\xe9: x",
    "mcp-\1: x",
    "mcp-a: \0",
    "mcp-a: \xe9",
    "Accept: a\r\n b",
    "Last-Event-Id: " + "x" * 60_000,
    "mcp-(: x",
)


@dataclass
class Relayed:
    """The head of a page's request, without its address, and all that the server answers."""

    method: str
    headers: list[str]
    answer: str


class Upstream:
    """A server that answers each connection with `text`, then ends it."""

    text = ""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, suppress(OSError):  # the relay has had enough
                connection.settimeout(HANG_S)
                connection.recv(1 << 16)
                connection.sendall(self.text.encode("latin-1"))


@cache
def upstream() -> Upstream:
    """One server for all cases, which the relay knows."""
    running = Upstream()
    http.server().relay.servers = {"odd": Address(running.url)}
    return running


def case(rng: Random) -> Relayed:
    """An answer, seldom as it should be."""
    lines = [rng.choice(STATUS_LINES), *rng.choices(HEADERS, k=rng.choice((0, 1, 1, 2, 4, 120)))]
    answer = "\r\n".join([*lines, "", rng.choice(BODIES)])
    if rng.random() < 0.1:
        at = rng.randrange(len(answer))
        answer = answer[:at] + rng.choice(("", "\n", "\r", "\0", ":", " ")) + answer[at + rng.randrange(3) :]
    return Relayed(rng.choice(METHODS), rng.choices(SENT, k=rng.choice((0, 0, 0, 1, 2))), answer)


def run(given: Relayed) -> None:
    """Ask through the relay. The page gets an answer, and the server goes on."""
    running = http.server()
    running.request_s = HANG_S
    upstream().text = given.answer
    host = f"127.0.0.1:{running.server_address[1]}"
    lines = [f"{given.method} /mcp/odd HTTP/1.1", f"Host: {host}", f"{RELAY_KEY}: {running.relay.key}", *given.headers]
    request = "\r\n".join([*lines, "Content-Length: 0", "Connection: close", "", ""]).encode("latin-1")
    answer = http.exchange(("127.0.0.1", running.server_address[1]), [request], ends=False)
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    http.assert_alive()
