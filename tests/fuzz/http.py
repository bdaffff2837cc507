"""Random bytes to the server of `serve --api`: requests with damaged lines, headers, bodies and handshakes."""

import socket
import tempfile
from functools import cache
from pathlib import Path
from random import Random

from tests.support.waiting import HANG_S
from tools.api import ApiServer

TARGETS = (
    "/",
    "/index.html",
    "/%00",
    "/..%2f..%2fetc/passwd",
    "/" + "a" * 5000,
    "/%ff%fe",
    "//x",
    "http://[",
    "*",
    "/v1/models",
    "/v1/chat/completions",
    "/v1/bridge",
    "/v1/bridge?ticket=x",
    "/v1/",
    "/?a=%zz",
    "/é",
    "/a\x0bb",
    "http://127.0.0.1/",
)
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "get", "", "G" * 300, "\x00", "CONNECT")
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9999999999.1", "HTTP/x", "", "HTTP/1.1 x")
HEADERS = (
    "Host: {host}",
    "Host: {host}",
    "Host: {host}",
    "Host: example.org",
    "Host:",
    "Authorization: Bearer {key}",
    "Authorization: Bearer",
    "Authorization: x",
    "Content-Length: 5",
    "Content-Length: -5",
    "Content-Length: 99999999999",
    "Content-Length: " + "9" * 5000,
    "Content-Length: x",
    "Transfer-Encoding: chunked",
    "Range: bytes=0-1",
    "Range: bytes=" + "9" * 5000 + "-",
    "Range: bytes=-0",
    "Range: x",
    "If-None-Match: *",
    "Connection: close",
    "Origin: null",
    "Origin: http://{host}",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 13",
    "Expect: 100-continue",
    "X: " + "x" * 70_000,
    "no colon",
    ": no name",
    " folded",
    "\x00: \x00",
    "X: é",
)
# How an answer begins; one to HTTP/0.9 has no status line, and may have a part of the file.
STARTS = (b"HTTP/", b"<!DOC", b"<!doc", b'{"err', b"404 N")


@cache
def server() -> ApiServer:
    """One server for all cases."""
    folder = Path(tempfile.mkdtemp())
    (folder / "index.html").write_text("<!doctype html>")
    running = ApiServer(folder, 0)
    running.tab_s = 0.01
    running.start()
    return running


def case(rng: Random) -> str:
    """One or more requests as text."""
    text = ""
    for _ in range(rng.choice((1, 1, 2, 5))):
        lines = [" ".join(rng.choice(part) for part in (METHODS, TARGETS, VERSIONS))]
        if rng.random() < 0.5:
            lines = [f"{rng.choice(('GET', 'HEAD', 'POST'))} {rng.choice(TARGETS)} HTTP/1.1", "Host: {host}"]
        lines += rng.choices(HEADERS, k=rng.choice((0, 1, 3, 6, 150)))
        text += rng.choice(("\r\n", "\r\n", "\n")).join(lines) + rng.choice(("\r\n\r\n", "\r\n\r\n", "\r\n", ""))
        text += rng.choice(("", "hello", "{}" * 1000))
    return text


def run(text: str) -> None:
    """Send it, half-close, and read to the end; then the server still answers."""
    running = server()
    address = ("127.0.0.1", running.server_address[1])
    given = (
        text.replace("{host}", f"127.0.0.1:{address[1]}").replace("{key}", running.key).encode("utf-8", "surrogatepass")
    )
    running.request_s = 0.2
    answer = exchange(address, given)[:5]
    assert any(start.startswith(answer) for start in STARTS), answer
    running.request_s = HANG_S
    alive = exchange(address, f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{address[1]}\r\nConnection: close\r\n\r\n".encode())
    assert alive.startswith(b"HTTP/1.1 200 "), alive[:100]


def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    received = b""
    with socket.create_connection(address, timeout=HANG_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError:  # the server has closed it already
            pass
    return received
