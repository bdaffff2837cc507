"""Random bytes to the server of `serve --api`: requests with damaged lines, headers and bodies, at once or slowly."""

import socket
import sys
import tempfile
import time
from dataclasses import dataclass
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
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "get", "", "G" * 300, "\x00", "CONNECT", "G(T", "G\u00c9T")
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
    "Content-Type: message/rfc822",
    "Content-Type: multipart/form-data; boundary=x",
    'Content-Type: multipart/x; a="' + ";" * 60_000,
    "Content-Type: multipart/x; boundary*" + "9" * 5000 + "=b",
    "Content-Type: multipart/x; boundary*=a; boundary*0=b",
    'Content-Type: multipart/x; a="' + ";;;;\r\n " * 60,
    "X: " + "x" * 70_000,
    "no colon",
    ": no name",
    " folded",
    "\x00: \x00",
    "X: é",
)
# Bodies in chunks, as they should be and damaged.
CHUNKS = (
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "5\r\nhel",
    "-5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5\nhello\n0\n\n",
    "f" * 5000 + "\r\nx\r\n",
    "ffffffffffffffff\r\nx",
    "\r\n\r\n",
    "5\r\nhello, and more\r\n0\r\n\r\n",
    "0\r\n" + "X: y\r\n" * 500,
    "z\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
)
CHUNKED = "POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
ENCODINGS = (
    "chunked",
    "chunked",
    "gzip, chunked",
    "chunked, chunked",
    "identity",
    "CHUNKED",
    "chunked\r\nContent-Length: 5",
)
REQUEST_S = 0.15  # the server's limits, for senders that are slower
# How an answer begins; one to HTTP/0.9 has no status line, and may have a part of the file.
STARTS = (b"HTTP/", b"<!DOC", b"<!doc", b'{"err', b"404 N")


@dataclass
class Traffic:
    """What one connection sends: pieces of a text, a pause after each, and whether it then ends or waits."""

    pieces: list[str]
    pause_s: float = 0.0
    ends: bool = True


@cache
def server() -> ApiServer:
    """One server for all cases. `failures`: the errors that its handlers did not expect."""
    folder = Path(tempfile.mkdtemp())
    (folder / "index.html").write_text("<!doctype html>")
    running = ApiServer(folder, 0)
    running.tab_s = 0.01
    running.idle_s = 2 * REQUEST_S
    running.handle_error = _noted  # type: ignore[method-assign]
    running.start()
    return running


failures: list[BaseException | None] = []


def _noted(*_: object) -> None:
    error = sys.exception()
    if not isinstance(error, OSError):  # the client has left
        failures.append(error)


def case(rng: Random) -> Traffic:
    """One or more requests as text."""
    text = ""
    for _ in range(rng.choice((1, 1, 2, 5))):
        if rng.random() < 0.1:
            text += f"{CHUNKED}Transfer-Encoding: {rng.choice(ENCODINGS)}\r\n\r\n{rng.choice(CHUNKS)}"
            continue
        lines = [" ".join(rng.choice(part) for part in (METHODS, TARGETS, VERSIONS))]
        if rng.random() < 0.5:
            lines = [f"{rng.choice(('GET', 'HEAD', 'POST'))} {rng.choice(TARGETS)} HTTP/1.1", "Host: {host}"]
        lines += rng.choices(HEADERS, k=rng.choice((0, 1, 3, 6, 150)))
        text += rng.choice(("\r\n", "\r\n", "\n")).join(lines) + rng.choice(("\r\n\r\n", "\r\n\r\n", "\r\n", ""))
        text += rng.choice(("", "hello", "{}" * 1000, *CHUNKS[:3]))
    if rng.random() > 0.03:
        return Traffic([text])
    text = text[: rng.choice((20, 200, 100_000))]
    ends = sorted(rng.randrange(len(text) + 1) for _ in range(rng.choice((1, 5, 20))))
    pieces = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
    return Traffic(pieces, rng.choice((0.001, 0.02, 1.5 * REQUEST_S)), rng.random() < 0.3)


def run(traffic: Traffic) -> None:
    """Send it, and read to the end; then the server still answers, and no handler has failed."""
    running = server()
    address = ("127.0.0.1", running.server_address[1])
    host = f"127.0.0.1:{address[1]}"
    texts = [piece.replace("{host}", host).replace("{key}", running.key) for piece in traffic.pieces]
    pieces = [text.encode("utf-8", "surrogatepass") for text in texts]
    running.request_s = REQUEST_S
    answer = exchange(address, pieces, traffic.pause_s, ends=traffic.ends)[:5]
    assert any(start.startswith(answer) for start in STARTS), answer
    assert_alive()


def assert_alive() -> None:
    """The server answers, and no handler has failed."""
    running = server()
    running.request_s = HANG_S
    host = f"127.0.0.1:{running.server_address[1]}"
    question = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    alive = exchange(("127.0.0.1", running.server_address[1]), [question])
    assert alive.startswith(b"HTTP/1.1 200 "), alive[:100]
    assert not failures, failures


def exchange(address: tuple[str, int], pieces: list[bytes], pause_s: float = 0.0, *, ends: bool = True) -> bytes:
    """What the server answers until it closes the connection. `ends`: the client says that it sends no more."""
    received = b""
    with socket.create_connection(address, timeout=HANG_S) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                if pause_s:
                    time.sleep(pause_s)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError:  # the server has closed it already
            pass
    return received
