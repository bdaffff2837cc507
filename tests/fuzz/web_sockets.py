"""Random WebSocket frames to the server of `serve --api`: damaged handshakes, frames, texts and answers of a tab."""

import json
import socket
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz import http
from tests.support.waiting import HANG_S, wait_for

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
HANDSHAKE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    f"Sec-WebSocket-Key: {KEY}",
    "Sec-WebSocket-Version: 13",
)
DAMAGED = (
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Key: " + "A" * 5000,
    "Sec-WebSocket-Version: 12",
    "Sec-WebSocket-Version: " + "1" * 5000,
    "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99",
    'Sec-WebSocket-Extensions: ;;;,,,"',
    "Sec-WebSocket-Protocol: é",
    "Upgrade: h2c",
    "Connection: close",
    "Transfer-Encoding: chunked",
    "Content-Length: 5",
    " folded",
)
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, 2, -1, 1.5, 10**400, float("nan"), 200, 999, "", "x", "\ud800", "\0", "x" * 5000,
    "head", "piece", "end", "lost", "ping", [], [["content-type", "text/event-stream"]],
    [["content-type", "application/json"]], [["a", "b\r\nc: d"]], [[1, 2]], {}, {"kind": "head"},
)  # fmt: skip
LENGTHS = (0, 1, 125, 126, 127, 65_535, 65_536, 2**31, 2**63, 2**64 - 1)


@dataclass
class Connection:
    """What a tab sends: lines of a handshake, then bytes. `asked`: a client waits for an answer meanwhile."""

    lines: list[str]
    data: list[bytes] = field(default_factory=list)
    asked: bool = False


def frame(opcode: int, payload: bytes, *, end: bool = True, mask: bytes | None = b"\1\2\3\4", rsv: int = 0) -> bytes:
    """A frame of a client."""
    return head(opcode, len(payload), end=end, mask=mask, rsv=rsv) + (
        bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)) if mask else payload
    )


def head(opcode: int, length: int, *, end: bool, mask: bytes | None, rsv: int) -> bytes:
    """The bytes before a frame's payload."""
    first, masked = (0x80 if end else 0) | rsv << 4 | opcode, 0x80 if mask else 0
    size = (
        bytes([masked | length])
        if length < 126
        else bytes([masked | 126]) + length.to_bytes(2, "big")
        if length < 1 << 16
        else bytes([masked | 127]) + length.to_bytes(8, "big")
    )
    return bytes([first]) + size + (mask or b"")


def message(rng: Random) -> bytes:
    """A message of a tab: as it should be, with other values, or none."""
    if rng.random() < 0.1:
        return rng.choice((b"", b"{", b"[]", b"\xff\xfe", b"[" * 5000, b"1" * 5000, b"null", b'"' + b"x" * 70_000))
    number = rng.choice((1, 1, 1, 2, 7))
    good = (
        {"id": number, "kind": "head", "status": 200, "headers": [["content-type", "text/event-stream"]]},
        {"id": number, "kind": "head", "status": 200, "headers": []},
        {"id": number, "kind": "piece", "text": "data: {}\n\n"},
        {"id": number, "kind": "end"},
        {"kind": "ping"},
    )
    made: dict[str, Any] = dict(rng.choice(good))
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        made[rng.choice((*made, "x"))] = rng.choice(VALUES)
    return json.dumps(made, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def frames(rng: Random) -> bytes:
    """One or more frames."""
    kind = rng.random()
    if kind < 0.6:
        return frame(1, message(rng))
    if kind < 0.7:  # a text in fragments, between which others may come
        text = message(rng)
        at = rng.randrange(len(text) + 1)
        between = rng.choice((b"", frame(9, b"ping"), frame(1, b"{}"), frame(0, b"") * 100))
        return frame(1, text[:at], end=False) + between + frame(0, text[at:], end=rng.random() < 0.8)
    if kind < 0.8:  # control frames
        payload = rng.choice((b"", b"\x03\xe8", b"\x03", b"\xff\xff", b"\x03\xe8\xff", b"x" * 125, b"x" * 126))
        return frame(rng.choice((8, 9, 10)), payload, end=rng.random() < 0.8)
    if kind < 0.9:  # any bits
        payload = rng.randbytes(rng.choice((0, 1, 10, 300)))
        mask = rng.choice((None, b"\0\0\0\0", rng.randbytes(4)))
        return frame(rng.randrange(16), payload, end=rng.random() < 0.5, mask=mask, rsv=rng.randrange(8))
    if kind < 0.95:  # a length that is none
        opcode, length = rng.randrange(3), rng.choice(LENGTHS)
        return head(opcode, length, end=True, mask=b"abcd", rsv=0) + rng.randbytes(10)
    return rng.randbytes(rng.choice((1, 2, 5, 100)))


def case(rng: Random) -> Connection:
    """A connection of a tab."""
    lines = list(HANDSHAKE)
    if rng.random() < 0.1:
        for _ in range(rng.choice((1, 2))):
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(DAMAGED))
        if rng.random() < 0.5:
            lines.remove(rng.choice(HANDSHAKE))
    data = [frames(rng) for _ in range(rng.choice((0, 1, 3, 10, 40)))]
    if rng.random() < 0.1 and data:
        data[-1] = data[-1][: rng.randrange(len(data[-1]) + 1)]
    return Connection(lines, data, rng.random() < 0.5)


def run(given: Connection) -> None:
    """Connect as a tab and send it, then leave. A client that asked has an answer, and the server goes on."""
    running = http.server()
    running.request_s = HANG_S
    port = running.server_address[1]
    ticket = running.tickets.issue("tab")
    lines = [f"GET /v1/bridge?ticket={ticket} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}"]
    answers: list[bytes] = []
    client: threading.Thread | None = None
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as tab:
        try:
            tab.sendall("\r\n".join([*lines, *given.lines, "", ""]).encode())
            opened = tab.recv(1 << 16).startswith(b"HTTP/1.1 101 ")
            if given.asked and opened:
                client = threading.Thread(target=lambda: answers.append(_ask(port, running.key)))
                client.start()
                tab.recv(1 << 16)  # the ticket, or the request
            for data in given.data:
                tab.sendall(data)
            tab.shutdown(socket.SHUT_WR)
            while tab.recv(1 << 16):
                pass
        except OSError:  # the server has closed it
            pass
    if client is not None:
        client.join(HANG_S)
        assert answers, "no answer"
        assert answers[0][:9] in (b"HTTP/1.1 ", b""), answers
    wait_for(lambda: running.tab is None)
    http.assert_alive()


def _ask(port: int, key: str) -> bytes:
    head = (
        f"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    )
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_S) as connection:
        try:
            connection.sendall(head.encode())
            while piece := connection.recv(1 << 16):
                received += piece
        except OSError:
            pass
    return received
