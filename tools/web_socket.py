"""The server's end of one WebSocket, over a socket whose HTTP request was read already."""

import contextlib
import select
import socket
import threading
from email.message import Message as Headers

from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

SEND_S = 10.0
CLOSE_S = 0.5  # for the handshake of an end
MAX_MESSAGE = 64 << 20  # bytes


class WebSocket:
    """A WebSocket for texts. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._protocol = ServerProtocol(max_size=MAX_MESSAGE)
        self._lock = threading.Lock()
        self._text = bytearray()  # frames of an unfinished message

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

    def send(self, text: bytes) -> None:
        """Send a text in UTF-8. If the socket has closed, `receive` notices."""
        with self._lock:
            if self._protocol.state is State.OPEN:
                self._protocol.send_text(text)
                self._flush()

    def receive(self, wait_s: float) -> list[bytes] | None:
        """Wait for data; return the texts that it completes, None if there is no data.

        Raises ConnectionError once the socket is closed, and ValueError for what is no text.
        """
        if not select.select([self._connection], [], [], wait_s)[0]:
            return None
        data = self._connection.recv(1 << 16)
        if not data:
            raise ConnectionAbortedError
        with self._lock:
            try:
                self._protocol.receive_data(data)
            except WebSocketException as error:
                raise ConnectionAbortedError from error
            events = self._protocol.events_received()
            self._flush()
        texts = [text for event in events if isinstance(event, Frame) and (text := self._whole(event)) is not None]
        if not texts and self._protocol.close_expected():
            raise ConnectionAbortedError
        return texts

    def _whole(self, frame: Frame) -> bytes | None:
        """The text that this frame ends."""
        if frame.opcode not in (Opcode.TEXT, Opcode.CONT):
            return None
        self._text += frame.data  # in place: there may be a million frames
        if not frame.fin:
            return None
        text, self._text = bytes(self._text), bytearray()
        return text

    def close(self, code: int = 1000) -> None:
        """Close the WebSocket: without a handshake if the other side does not read, since its successor waits."""
        if not self._lock.acquire(timeout=CLOSE_S):  # a send waits for the other side
            self.drop()
            return
        try:
            if self._protocol.state is State.OPEN:
                self._connection.settimeout(CLOSE_S)
                self._protocol.send_close(code)
                self._flush()
        finally:
            self._lock.release()

    def drop(self) -> None:
        """Close the socket without a handshake."""
        with contextlib.suppress(OSError):  # closed already
            self._connection.shutdown(socket.SHUT_RDWR)

    def _flush(self) -> None:
        try:
            for data in self._protocol.data_to_send():
                if data:
                    self._connection.sendall(data)
        except OSError:
            self.drop()
