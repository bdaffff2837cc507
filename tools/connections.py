"""HTTP connections that no client can hold open or exhaust: deadlines, limits, checked hosts and paths."""

import http.client
import http.server
import io
import re
import select
import socket
import threading
import time
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote, urlsplit

REQUEST_S = 15.0  # limit for a whole request to arrive
IDLE_S = 60.0  # limit between two requests of a connection
WRITE_S = 60.0  # limit for the client to read a piece of an answer
MAX_CONNECTIONS = 128
MAX_LINE = 1 << 16  # bytes of the request line
MAX_PATH = 4096  # characters of a decoded path
MAX_DIGITS = 18  # of a number in a header
HOSTS = ("127.0.0.1", "localhost")

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a method, or the name of a header
CONTROLS = re.compile(r"[\0-\x08\x0a-\x1f\x7f]")  # of a header's value: line ends, too, which once continued it


class BadRequest(Exception):
    """A request that has no meaning; its text says why."""


class Headers(http.client.HTTPMessage):
    """Headers of a request. For the parser, which is one of mail, all are of plain text: it reads parts otherwise.

    It would take hours for the boundary of a folded Content-Type, and fail for the digits of another.
    """

    def get_content_type(self) -> str:
        """Return the type of what has no parts."""
        return "text/plain"

    def get_content_maintype(self) -> str:
        """Return its first half."""
        return "text"


class DeadlineReader(io.RawIOBase):
    """A socket reader with one deadline for a whole request, which a slow sender cannot extend."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        """Return True; BufferedReader asks."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read what has arrived; raise TimeoutError after the deadline."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class RequestHandler(http.server.BaseHTTPRequestHandler):
    """Read requests within a deadline. Subclasses define route() and reject()."""

    protocol_version = default_request_version = "HTTP/1.1"
    MessageClass = Headers
    disable_nagle_algorithm = True
    server: "BoundedServer"

    def setup(self) -> None:
        """Replace the connection's reader with one that has a deadline."""
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Read one request and answer it; a slow one gets 408, a meaningless one 400."""
        self.close_connection = True
        self.requestline, self.request_version, self.command, self.path = "", "HTTP/1.1", "", ""
        try:
            self._reader.deadline = time.monotonic() + self.server.idle_s
            if not self.rfile.peek(1):  # type: ignore[attr-defined]
                return
        except OSError:
            return
        try:
            self._reader.deadline = time.monotonic() + self.server.request_s
            self.raw_requestline = self.rfile.readline(MAX_LINE)
            if not self.raw_requestline.endswith(b"\n"):
                self._answer_overlong()
            elif self.parse_request():
                self._check_headers()
                self.route()
        except BadRequest as error:
            self.reject(HTTPStatus.BAD_REQUEST, "invalid_value", str(error))
        except TimeoutError:
            self.close_connection = True
            self.reject(HTTPStatus.REQUEST_TIMEOUT, "request_timeout", "The request did not arrive in time.")
        except ConnectionError:
            self.close_connection = True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Reject what is no request of HTTP/1, in the form of all errors."""
        status = HTTPStatus(code)
        self.reject(status, "invalid_value", f"{message or status.phrase}.")

    def _check_headers(self) -> None:
        """Raise BadRequest for a method or headers that another program may read as another request."""
        if not TOKEN.fullmatch(self.command):
            raise BadRequest("The request's method is none.")
        for name in ("Host", "Content-Length", "Transfer-Encoding", "Authorization", "Origin"):
            if len(self.headers.get_all(name, [])) > 1:
                raise BadRequest(f"The request has several headers {name}.")
        odd = any(not TOKEN.fullmatch(name) or CONTROLS.search(value) for name, value in self.headers.items())
        rest = self.headers.get_payload()  # all lines after one that is no header were ignored
        if odd or self.headers.defects or rest:
            raise BadRequest("The request has a line that is no header.")

    def ignore_body(self) -> None:
        """Close the connection after the answer if the request has a body, which would be read as the next request."""
        unread = self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers
        self.close_connection |= unread

    def _answer_overlong(self) -> None:
        if len(self.raw_requestline) == MAX_LINE:
            what = "The request's first line is too long."
            self.reject(HTTPStatus.REQUEST_URI_TOO_LONG, "invalid_value", what)

    def route(self) -> None:
        """Answer the request that was read."""
        raise NotImplementedError

    def reject(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answer with an error and close the connection."""
        raise NotImplementedError

    def decoded_path(self) -> str:
        """The path without percent-encoding. Raises BadRequest where no file could have it."""
        try:
            path = unquote(urlsplit(self.path).path)
        except ValueError:
            raise BadRequest("The request's address is malformed.") from None
        if len(path) > MAX_PATH or any(len(name.encode("utf-8", "replace")) > 255 for name in path.split("/")):
            raise BadRequest("The request's path, or a name in it, is too long.")
        if not all(char >= " " and char != "\x7f" for char in path):
            raise BadRequest("The request's path has control characters.")
        return path

    def host_is_this_machine(self) -> bool:
        """Whether the Host header names this machine. Else a page may have pointed its own name here."""
        host, _, port = self.headers.get("Host", "").partition(":")
        return host in HOSTS and (not port or port.isdigit())

    def linger(self) -> None:
        """Read a little of an unread body: if the server closed at once, the client would lose the answer."""
        self.connection.shutdown(socket.SHUT_WR)
        end = time.monotonic() + 1
        self.connection.settimeout(0.25)
        while time.monotonic() < end and self.connection.recv(1 << 16):
            pass

    def log_message(self, *_: object) -> None:
        """Print nothing: the terminal shows the address alone."""


def is_closed(connection: socket.socket) -> bool:
    """Whether either side has closed a connection."""
    try:
        return bool(select.select([connection], [], [], 0)[0]) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # ValueError: another thread has closed it
        return True


def number(text: str) -> int:
    """A number of a header. Raises BadRequest."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_DIGITS:
        raise BadRequest("A number in the request's headers is malformed or too long.")
    return int(text)


class BoundedServer(http.server.ThreadingHTTPServer):
    """A server with a thread for each connection, MAX_CONNECTIONS at most; more are closed at once."""

    daemon_threads = True
    allow_reuse_address = True
    request_s = REQUEST_S
    idle_s = IDLE_S
    max_connections = request_queue_size = MAX_CONNECTIONS  # the system resets those that its queue cannot hold

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(self.max_connections)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if there are not too many."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then let another one take its place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_: object) -> None:
        """Ignore connections that the browser closes early."""
