"""The WebSocket to the tab that lends its engine, and the requests that it answers (app/sdk/bridge.js)."""

import contextlib
import itertools
import json
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from email.message import Message as Headers
from typing import Any

from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from py_engine import json_input

PING_S = 2.0
SILENT_S = 8.0  # a tab that sends nothing for this long counts as disconnected
SEND_S = 10.0
POLL_S = 0.05  # how often a waiting request checks that its client is connected
MAX_MESSAGE = 64 << 20  # bytes
MAX_WAITING = 4  # parts of one answer that wait to be read; a tab sends the next one when it is asked to
REPLACED = 4001  # close code: another tab lends its engine now

Message = dict[str, Any]


class NonsenseError(Exception):
    """The tab has sent what no tab sends."""


class ClientDisconnectedError(Exception):
    """The client has closed its connection."""


class Exchange:
    """One request to the tab.

    Its answer is a "head", then a "piece" or "end" for each pull; "lost" if the tab disconnects.
    """

    def __init__(self, tab: "Tab", number: int) -> None:
        self._tab = tab
        self._number = number
        self._headed = False
        self.parts: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def add(self, message: Message) -> None:
        """Add a part of the answer. Raises NonsenseError where it is none."""
        kind = message.get("kind")
        if kind == "head":
            sane = type(status := message.get("status")) is int and 200 <= status <= 599
            sane = sane and _are_headers(message.get("headers"))
        else:
            sane = kind == "end" or (kind == "piece" and isinstance(message.get("text"), str))
        if not sane or self._headed is (kind == "head") or self.parts.qsize() >= MAX_WAITING:
            raise NonsenseError
        self._headed = True
        self.parts.put(message)

    def next(self, disconnected: Callable[[], bool]) -> Message:
        """Return the next part; raise ClientDisconnectedError once `disconnected` returns true."""
        while True:
            try:
                return self.parts.get(timeout=POLL_S)
            except queue.Empty:
                if disconnected():
                    raise ClientDisconnectedError from None

    def pull(self) -> None:
        """Request the next piece."""
        self._tab.send({"id": self._number, "kind": "pull"})

    def abort(self) -> None:
        """Stop the engine."""
        self._tab.send({"id": self._number, "kind": "abort"})

    def close(self) -> None:
        """Forget the request."""
        self._tab.exchanges.pop(self._number, None)


class Tab:
    """A page with an engine, connected by a WebSocket."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name
        self.exchanges: dict[int, Exchange] = {}
        self._connection = connection
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._protocol = ServerProtocol(max_size=MAX_MESSAGE)
        self._text = b""  # frames of an unfinished message
        self._lost = False

    def accept(self, request_line: str, headers: Headers) -> bool:
        """Answer the handshake; return whether the WebSocket is open."""
        lines = [request_line.strip(), *(f"{name}: {value}" for name, value in headers.items())]
        self._protocol.receive_data(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        for request in self._protocol.events_received():
            if isinstance(request, Request):
                self._protocol.send_response(self._protocol.accept(request))
        self._connection.settimeout(SEND_S)
        self._flush()
        return self._protocol.state is State.OPEN

    def ask(self, method: str, path: str, body: str | None) -> Exchange:
        """Send a request to the tab."""
        number = next(self._numbers)
        exchange = Exchange(self, number)
        with self._lock:
            if self._lost:
                exchange.parts.put({"kind": "lost"})
                return exchange
            self.exchanges[number] = exchange
        self.send({"id": number, "kind": "request", "method": method, "path": path, "body": body})
        return exchange

    def send(self, message: Message) -> None:
        """Send one message. If the socket has closed, `run` notices and ends every exchange."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_text(json.dumps(message).encode())
                self._flush()

    def close(self, code: int = 1000) -> None:
        """Close the WebSocket."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code)
                self._flush()

    def run(self) -> None:
        """Receive until the socket closes or the tab is silent; then report "lost" to every open exchange."""
        last_received = pinged = time.monotonic()
        try:
            while (now := time.monotonic()) - last_received < SILENT_S:
                if now - pinged >= PING_S:
                    self.send({"kind": "ping"})
                    pinged = now
                if not select.select([self._connection], [], [], PING_S / 4)[0]:
                    continue
                data = self._connection.recv(1 << 16)
                if not data:
                    break
                last_received = now
                with self._lock:
                    self._protocol.receive_data(data)
                    events = self._protocol.events_received()
                    self._flush()
                for event in events:
                    if isinstance(event, Frame):
                        self._frame(event)
                if self._protocol.close_expected():
                    break
        except (OSError, ValueError, WebSocketException, NonsenseError):
            pass  # either side closed the socket, or the data is no message
        finally:
            self._drop()
            with self._lock:
                self._lost = True
                waiting = list(self.exchanges.values())
            for exchange in waiting:
                exchange.parts.put({"kind": "lost"})

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            return
        self._text += bytes(frame.data)
        if not frame.fin:
            return
        message, self._text = json_input.parse(self._text), b""
        if not isinstance(message, dict):
            raise NonsenseError
        number = message.get("id")
        exchange = self.exchanges.get(number) if isinstance(number, int) else None
        if exchange:
            exchange.add(message)

    def _flush(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._connection.sendall(data)
        except OSError:
            self._drop()

    def _drop(self) -> None:
        with contextlib.suppress(OSError):  # closed already
            self._connection.shutdown(socket.SHUT_RDWR)


def _are_headers(headers: Any) -> bool:
    return isinstance(headers, list) and all(
        isinstance(header, list) and len(header) == 2 and all(isinstance(t, str) and t.isprintable() for t in header)
        for header in headers
    )
