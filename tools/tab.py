"""The WebSocket to the tab that lends its engine, and the requests that it answers (app/sdk/bridge.js)."""

import base64
import itertools
import json
import queue
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from py_engine import json_input
from tools.web_socket import WebSocket

PING_S = 2.0
SILENT_S = 8.0  # a tab that sends nothing for this long counts as disconnected
POLL_S = 0.05  # how often a waiting request checks that its client is connected
MAX_WAITING = 4  # parts of one answer that wait to be read; a tab sends the next one when it is asked to
REPLACED = 4001  # close code: another tab lends its engine now

LONG_IN_JSON = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")  # six characters each; no request's JSON has them

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

    def __init__(self, socket: WebSocket, name: str, silent_s: float = SILENT_S) -> None:
        self.name = name
        self._silent_s = silent_s
        self.exchanges: dict[int, Exchange] = {}
        self._socket = socket
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._lost = False

    def ask(self, method: str, path: str, body: bytes | None, form: str | None = None) -> Exchange:
        """Send a request to the tab. `form`: the Content-Type of a multipart form, which has its boundary."""
        number = next(self._numbers)
        exchange = Exchange(self, number)
        with self._lock:
            if self._lost:
                exchange.parts.put({"kind": "lost"})
                return exchange
            self.exchanges[number] = exchange
        self.send({"id": number, "kind": "request", "method": method, "path": path, "type": form, **_sendable(body)})
        return exchange

    def send(self, message: Message) -> None:
        """Send one message. If the socket has closed, `run` notices and ends every exchange."""
        self._socket.send(json.dumps(message, ensure_ascii=False).encode())

    def close(self, code: int = 1000) -> None:
        """Close the WebSocket."""
        self._socket.close(code)

    def run(self) -> None:
        """Receive until the socket closes or the tab is silent; then report "lost" to every open exchange."""
        last_received = pinged = time.monotonic()
        try:
            while (now := time.monotonic()) - last_received < self._silent_s:
                if now - pinged >= PING_S:
                    self.send({"kind": "ping"})
                    pinged = now
                texts = self._socket.receive(PING_S / 4)
                if texts is None:
                    continue
                last_received = now
                for text in texts:
                    self._message(json_input.parse(text))
        except (OSError, ValueError, NonsenseError):
            pass  # either side closed the socket, or the data is no message
        finally:
            self._socket.drop()
            with self._lock:
                self._lost = True
                waiting = list(self.exchanges.values())
            for exchange in waiting:
                exchange.parts.put({"kind": "lost"})

    def _message(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise NonsenseError
        number = message.get("id")
        exchange = self.exchanges.get(number) if isinstance(number, int) else None
        if exchange:
            exchange.add(message)


def _sendable(body: bytes | None) -> Message:
    """A body as a field of a message: a text, or what is none, or none of JSON, in Base64."""
    if not body:
        return {"body": None}
    try:
        if not LONG_IN_JSON.search(body):
            return {"body": body.decode()}
    except UnicodeDecodeError:
        pass
    return {"base64": base64.b64encode(body).decode()}


def _are_headers(headers: Any) -> bool:
    return isinstance(headers, list) and all(
        isinstance(header, list) and len(header) == 2 and all(isinstance(t, str) and t.isprintable() for t in header)
        for header in headers
    )
