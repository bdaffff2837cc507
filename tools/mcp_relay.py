"""Relay a page to servers of the Model Context Protocol that the command line names (mcp_servers.py).

A page cannot start programs, and many servers do not allow pages (CORS). A page that this server has opened gets the
addresses of its relays; no page can add one. A stdio server is a program of its own for each WebSocket: a line of its
output is a message, and so is a line of its input. Requests to a server over HTTP are repeated as they are.
"""

import atexit
import contextlib
import http.client
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote, urlsplit

from tools.connections import is_closed
from tools.mcp_servers import Address, Program, Target
from tools.web_socket import MAX_MESSAGE, WebSocket

RELAYED = "/mcp/"  # before the name of a server
RELAY_KEY = "X-Wisp-Relay"
CONNECT_S = 30.0
POLL_S = 0.25  # how often a relay checks that the page still listens
END_S = 2.0  # for a program to end when its input has
MAX_UNREAD = 2 * MAX_MESSAGE  # bytes that wait for a program to read its input: it may be slow to start
MAX_HEAD = 16 << 10  # bytes of the headers of a server's answer: for the parser, they are those of a mail
TOO_BIG = 1009  # close code
SPACES = bytes.maketrans(b"\r\n", b"  ")
SENT = ("accept", "authorization", "content-type", "last-event-id", "mcp-")  # starts of headers
RECEIVED = ("content-type", "mcp-", "www-authenticate", "retry-after")


class Relay:
    """The servers that the command line names, and the key of the pages that may use them."""

    def __init__(self, servers: dict[str, Target]) -> None:
        self.servers = servers
        self.key = token_urlsafe(24)

    def described(self, host: str) -> list[dict[str, Any]]:
        """What `engine.mcp.connect` needs for each: {name, url, headers}."""
        out = []
        for name, target in self.servers.items():
            if isinstance(target, Address):
                out.append({"name": name, "url": f"http://{host}{RELAYED}{name}", "headers": {RELAY_KEY: self.key}})
            else:
                out.append({"name": name, "url": f"ws://{host}{RELAYED}{name}?key={quote(self.key)}", "headers": {}})
        return out


def relay_stdio(page: WebSocket, server: Program) -> None:
    """Run a program until the WebSocket closes or the program ends. What it logs goes to the terminal."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    try:
        program = subprocess.Popen(server.command, env={**os.environ, **server.env}, **pipes)
    except OSError:
        page.close(1011)
        return
    _running.add(program)
    lines = Lines()  # where a program does not read, only its writer waits
    reader = threading.Thread(target=_pass_on, args=(program, page), daemon=True)
    for thread in (reader, threading.Thread(target=_feed, args=(program, lines), daemon=True)):
        thread.start()
    try:
        while reader.is_alive():
            for text in page.receive(POLL_S) or ():
                lines.put(text.translate(SPACES) + b"\n")
    except (OSError, ValueError, BufferError):
        pass  # either side has ended, or the program does not read
    finally:
        _end(program, lines)
        page.close()
        page.drop()


def _pass_on(program: "subprocess.Popen[bytes]", page: WebSocket) -> None:
    """Send each line of a program's output."""
    assert program.stdout
    while line := program.stdout.readline(MAX_MESSAGE + 1):
        if len(line) > MAX_MESSAGE:
            page.close(TOO_BIG)
            return
        if line.strip():
            page.send(line.strip().decode("utf-8", "replace").encode())  # a browser ends a WebSocket for other bytes


class Lines:
    """What waits for a program to read its input: MAX_UNREAD bytes at most, however many lines these are."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0

    def put(self, line: bytes) -> None:
        """Add a line. Raises BufferError where too much waits."""
        size = sys.getsizeof(line)  # an object of a short line is larger than its text
        with self._lock:
            if self._waiting + size > MAX_UNREAD:
                raise BufferError
            self._waiting += size
        self._lines.put(line)

    def end(self) -> None:
        """Say that no line follows."""
        self._lines.put(None)

    def get(self) -> bytes | None:
        """Wait for the next line; None: there is none."""
        line = self._lines.get()
        with self._lock:
            self._waiting -= sys.getsizeof(line) if line is not None else 0
        return line


def _feed(program: "subprocess.Popen[bytes]", lines: Lines) -> None:
    """Write each line to a program, and end its input after the last one."""
    assert program.stdin
    with contextlib.suppress(OSError), program.stdin:  # it has ended
        while (line := lines.get()) is not None:
            program.stdin.write(line)
            program.stdin.flush()


def _end(program: "subprocess.Popen[bytes]", lines: Lines) -> None:
    """End a program as the protocol says: close its input, then ask, then force it, and those that it has started."""
    lines.end()
    for force in (False, True):
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(END_S)
            break
        _stop(program, force=force)
    _stop(program, force=True)  # what it has started may be left
    program.wait()
    _running.discard(program)


def _stop(program: "subprocess.Popen[bytes]", *, force: bool) -> None:
    with contextlib.suppress(OSError):  # it has ended
        if sys.platform == "win32":
            program.kill()
        else:
            os.killpg(program.pid, signal.SIGKILL if force else signal.SIGTERM)


_running: set["subprocess.Popen[bytes]"] = set()  # programs of open WebSockets


@atexit.register
def _stop_all() -> None:
    """End the programs with this process, whose threads do not end in order."""
    for program in list(_running):
        _stop(program, force=False)


class Answer(http.client.HTTPResponse):
    """The answer of a server. Its head has an end."""

    def begin(self) -> None:
        """Read the head. Raises HTTPException."""
        whole = self.fp
        self.fp = BoundedHead(whole)  # type: ignore[assignment]
        try:
            super().begin()
        finally:
            if self.fp is not None:  # else the head had no status line, and the file is closed
                self.fp = whole


class BoundedHead:
    """The lines of a head, MAX_HEAD bytes at most."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAX_HEAD

    def readline(self, limit: int) -> bytes:
        """Read a line."""
        line: bytes = self._file.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.HTTPException("its headers are too long")
        return line

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class HttpRelay:
    """A request to a server over HTTP. Its answer is passed on piece by piece; redirects are not followed."""

    def __init__(self, address: Address) -> None:
        url = urlsplit(address.url)
        self._headers = address.headers
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self.host = url.netloc
        self._path = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
        self._server = kind(url.netloc, timeout=CONNECT_S)
        self._server.response_class = Answer
        self._over = threading.Event()

    def ask(self, client: BaseHTTPRequestHandler, body: bytes) -> http.client.HTTPResponse:
        """Send the request of a page; return the head of the answer. Raises OSError and HTTPException."""
        try:
            return self._ask(client, body)
        except (ValueError, TypeError, LookupError) as error:  # of the parser, which is one of mail
            raise http.client.HTTPException(f"its headers cannot be read: {error}") from error

    def _ask(self, client: BaseHTTPRequestHandler, body: bytes) -> http.client.HTTPResponse:
        self._server.connect()
        self._socket = self._server.sock  # http.client forgets it where the server closes after its answer
        self._socket.settimeout(None)  # it may be silent for long
        threading.Thread(target=self._watch, args=(client.connection,), daemon=True).start()
        headers = {name: value for name, value in client.headers.items() if name.lower().startswith(SENT)}
        self._server.request(client.command, self._path, body or None, headers | self._headers)
        return self._server.getresponse()

    def close(self) -> None:
        """End the request. To a server, that cancels it."""
        self._over.set()
        self._server.close()

    def _watch(self, page: socket.socket) -> None:
        """End the request when the page has closed its connection."""
        while not self._over.wait(POLL_S):
            if is_closed(page):
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                return


def received(answer: http.client.HTTPResponse) -> dict[str, str]:
    """The headers of an answer that pages read."""
    named = ((name.lower(), value) for name, value in answer.headers.items())
    return {name: value for name, value in named if name.startswith(RECEIVED)}
