"""The WebSocket to the tab that lends its engine, and the requests that wait for its answers (app/sdk/bridge.js)."""

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

PING_S = 2.0
SILENT_S = 8.0  # a tab from which nothing came for so long is taken for gone
SEND_S = 10.0
POLL_S = 0.05  # how often a waiting request looks whether its client is still there
MAX_MESSAGE = 64 << 20  # bytes
REPLACED = 4001  # close code: another tab lends its engine now

Message = dict[str, Any]


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class Exchange:
    """One request that the tab answers: a "head", then a "piece" or the "end" for every pull, or "lost"."""

    def __init__(self, tab: "Tab", number: int) -> None:
        self._tab = tab
        self._number = number
        self.parts: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def next(self, gone: Callable[[], bool]) -> Message:
        """The next part; raises ClientGone once `gone` says so."""
        while True:
            try:
                return self.parts.get(timeout=POLL_S)
            except queue.Empty:
                if gone():
                    raise ClientGone from None

    def pull(self) -> None:
        """Ask for the next piece."""
        self._tab.send({"id": self._number, "kind": "pull"})

    def abort(self) -> None:
        """Stop the engine."""
        self._tab.send({"id": self._number, "kind": "abort"})

    def close(self) -> None:
        """Forget the request."""
        self._tab.exchanges.pop(self._number, None)


class Tab:
    """A page with an engine, at the other end of a WebSocket."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name
        self.exchanges: dict[int, Exchange] = {}
        self._connection = connection
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._protocol = ServerProtocol(max_size=MAX_MESSAGE)
        self._text = b""  # of a message whose last frame has not come

    def accept(self, request_line: str, headers: Headers) -> bool:
        """Answer the handshake; returns whether there is a WebSocket now."""
        lines = [request_line.strip(), *(f"{name}: {value}" for name, value in headers.items())]
        self._protocol.receive_data(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        for request in self._protocol.events_received():
            if isinstance(request, Request):
                self._protocol.send_response(self._protocol.accept(request))
        self._connection.settimeout(SEND_S)
        self._flush()
        return self._protocol.state is State.OPEN

    def ask(self, method: str, path: str, body: str | None) -> Exchange:
        """Hand over a request."""
        number = next(self._numbers)
        exchange = self.exchanges[number] = Exchange(self, number)
        self.send({"id": number, "kind": "request", "method": method, "path": path, "body": body})
        return exchange

    def send(self, message: Message) -> None:
        """Send one message; where the socket is gone, `run` finds out and tells every exchange."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_text(json.dumps(message).encode())
                self._flush()

    def close(self, code: int = 1000) -> None:
        """End the WebSocket."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(code)
                self._flush()

    def run(self) -> None:
        """Receive until the socket ends or the tab stays silent; then every open exchange is lost."""
        heard = pinged = time.monotonic()
        try:
            while (now := time.monotonic()) - heard < SILENT_S:
                if now - pinged >= PING_S:
                    self.send({"kind": "ping"})
                    pinged = now
                if not select.select([self._connection], [], [], PING_S / 4)[0]:
                    continue
                data = self._connection.recv(1 << 16)
                if not data:
                    break
                heard = now
                with self._lock:
                    self._protocol.receive_data(data)
                    events = self._protocol.events_received()
                    self._flush()
                for event in events:
                    if isinstance(event, Frame):
                        self._frame(event)
                if self._protocol.close_expected():
                    break
        except (OSError, ValueError, WebSocketException):
            pass  # the socket was closed from either side, or what came is no message
        finally:
            self._drop()
            for exchange in list(self.exchanges.values()):
                exchange.parts.put({"kind": "lost"})

    def _frame(self, frame: Frame) -> None:
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            return
        self._text += bytes(frame.data)
        if not frame.fin:
            return
        message, self._text = json.loads(self._text), b""
        exchange = self.exchanges.get(message.get("id"))
        if exchange:
            exchange.parts.put(message)

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
