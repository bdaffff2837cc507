"""A server of model files with faults: errors, lost connections, delays. Its port makes it another origin."""

import http.server
import socket
import threading
import time
from dataclasses import dataclass, field
from math import inf

from tools.serve import UnsatisfiableRange, parse_range

POLL_S = 0.01  # between two looks whether a pause has ended


@dataclass(frozen=True)
class Pause:
    """A pause of `seconds` before each piece of a body, once `after` bytes were sent.

    With inf, and once `held_at` bytes were sent, bodies are held until the test sets `File.pause` to None. Both count
    the bytes of all answers (`File.sent`).
    """

    seconds: float
    after: int = 0
    held_at: float = inf

    def at(self, sent: int) -> float:
        """The seconds before the next piece."""
        return inf if sent >= self.held_at else self.seconds if sent >= self.after else 0.0


@dataclass
class File:
    """One file and how it is served."""

    data: bytes
    cors: bool = True
    ranges: bool = True
    shift: int = 0  # bytes after which ranges begin where they were asked for, but for the first one
    expose: bool = True  # whether Content-Range and ETag may be read by other sites
    etag: str = '"1"'
    linked: str = ""  # the header X-Linked-ETag
    status: int = 0  # answer with this status instead
    statuses: list[int] = field(default_factory=list)  # the next answers' statuses, before the file is served
    cut_at: int | None = None  # drop the connection before the file's byte `cut_at`
    cuts: int = 1 << 30  # how often that happens
    piece: int = 1 << 16  # bytes written at once
    pause: Pause | None = None  # tests change it at any time
    requests: list[str] = field(default_factory=list)  # "GET bytes=0-9", ... in order of arrival
    sent: int = 0  # bytes of bodies, counted before they go
    under_way: set[object] = field(default_factory=set)  # the requests that are being answered


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "FaultyServer"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        file = self.server.files.get(self.path.lstrip("/"))
        if "Authorization" in self.headers:
            self.server.authorizations.add(self.headers["Authorization"])
        if file is None:
            self._head(404, 0, {"Access-Control-Allow-Origin": "*"})
            return
        wanted = self.headers.get("Range")
        file.requests.append(f"{self.command} {wanted or ''}".strip())
        headers = {"ETag": file.etag, "Content-Type": "application/octet-stream"}
        if file.linked:
            headers["X-Linked-ETag"] = file.linked
        if file.cors:
            headers["Access-Control-Allow-Origin"] = "*"
            if file.expose:
                headers["Access-Control-Expose-Headers"] = "Content-Range, ETag, X-Linked-ETag"
        status = file.statuses.pop(0) if file.statuses else file.status
        if status:
            self._head(status, 0, headers)
            return
        size = len(file.data)
        try:
            span = parse_range(wanted, size) if file.ranges else None
        except UnsatisfiableRange:
            self._head(416, 0, {**headers, "Content-Range": f"bytes */{size}"})
            return
        start, end = span or (0, size)
        if span and start:
            start, end = max(start + file.shift, 0), max(end + file.shift, 1)
        if span:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        answering = object()
        file.under_way.add(answering)
        try:
            self._head(206 if span else 200, end - start, headers)
            if self.command == "GET":
                self._body(file, start, end)
        finally:
            file.under_way.discard(answering)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def _body(self, file: File, start: int, end: int) -> None:
        while start < end:
            begun = time.monotonic()
            while (pause := file.pause) and time.monotonic() - begun < pause.at(file.sent):
                time.sleep(POLL_S)
            stop = min(start + file.piece, end)
            lost = file.cuts > 0 and file.cut_at is not None and start <= file.cut_at < stop
            if lost:
                stop = file.cut_at or 0
            file.sent += stop - start
            self.wfile.write(file.data[start:stop])
            if lost:
                file.cuts -= 1
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            start = stop

    def log_message(self, *_: object) -> None:
        pass


class FaultyServer(http.server.ThreadingHTTPServer):
    """Serves `files`: name -> File."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, File] = {}
        self.authorizations: set[str] = set()  # headers that requests had
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def handle_error(self, *_: object) -> None:
        pass
