"""Serve dist/ on 127.0.0.1: cross-origin isolated, with the page's security policy, byte ranges and keep-alive.

Where dist/ has FILE.br or FILE.gz beside FILE, clients that accept the encoding get that.
"""

import mimetypes
import os
import re
import sys
import threading
import webbrowser
from email.utils import formatdate
from http import HTTPStatus
from io import BufferedIOBase
from pathlib import Path

from tools.connections import WRITE_S, BadRequest, BoundedServer, RequestHandler, number
from tools.failure import Failure
from tools.headers import HEADERS, IMMUTABLE, REVALIDATED, headers_of

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
BYTES = "application/octet-stream"
MIME = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".wasm": "application/wasm",
    ".zip": "application/zip",
    ".svg": "image/svg+xml",
}
ENCODINGS = {"br": ".br", "gzip": ".gz"}  # as in Accept-Encoding -> suffix in dist/; the first is the smallest


class Handler(RequestHandler):
    """Answer GET and HEAD for the files under `server.root`."""

    server: "Server"

    def route(self) -> None:
        """Answer for this machine's names only."""
        self.connection.settimeout(WRITE_S)
        self.ignore_body()
        if not self.host_is_this_machine():
            self.reject(HTTPStatus.FORBIDDEN, "forbidden_host", "")
        elif self.command == "GET":
            self.do_GET()
        elif self.command == "HEAD":
            self.do_HEAD()
        else:
            self.reject(HTTPStatus.METHOD_NOT_ALLOWED, "not_found", "")

    def reject(self, status: HTTPStatus, code: str, message: str) -> None:
        """Answer with the status alone, then close the connection."""
        self.close_connection = True
        try:
            self.connection.settimeout(WRITE_S)
            self._fail(status, {"Connection": "close"})
            self.linger()
        except OSError:
            pass  # the client has left

    def do_GET(self) -> None:
        """Send a file, or the requested range of it."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Send the headers of do_GET."""
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self._file()
        if path is None:
            self._fail(HTTPStatus.NOT_FOUND)
            return
        encoding, sent = self._encoded(path)
        status = sent.stat()
        # a name with a hash always means the same content, so a rebuild must not change the tag
        hashed = path.is_relative_to(self.server.root / "assets")
        etag = f'"{sent.name}"' if hashed else f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
        if self.headers.get("If-None-Match") == etag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self._common(path, etag)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        wanted = self.headers.get("Range") if self.headers.get("If-Range", etag) == etag else None
        try:
            span = parse_range(wanted, status.st_size)
        except UnsatisfiableRange:
            self._fail(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{status.st_size}"})
            return
        start, end = span or (0, status.st_size)
        self.send_response(HTTPStatus.PARTIAL_CONTENT if span else HTTPStatus.OK)
        self._common(path, etag)
        if span:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{status.st_size}")
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Type", MIME.get(path.suffix) or mimetypes.guess_type(path.name)[0] or BYTES)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Last-Modified", formatdate(status.st_mtime, usegmt=True))
        self.end_headers()
        if body:
            with sent.open("rb") as file:
                file.seek(start)
                _copy(file, self.wfile, end - start)

    def _encoded(self, path: Path) -> tuple[str, Path]:
        """Return the encoding to send and the file that has it; ranges are of the file as it is.

        A compressed file older than its original was not made of it: somebody has changed dist/ by hand.
        """
        accepted = accepted_encodings(self.headers.get("Accept-Encoding", ""))
        for encoding, suffix in ENCODINGS.items():
            packed = path.with_name(path.name + suffix)
            usable = encoding in accepted and "Range" not in self.headers and packed.is_file()
            if usable and packed.stat().st_mtime_ns >= path.stat().st_mtime_ns:
                return encoding, packed
        return "", path

    def _file(self) -> Path | None:
        """Return the requested file; None if it does not exist or is outside the root."""
        root, name = self.server.root, self.decoded_path().lstrip("/")
        for prefix, folder in self.server.mounts.items():
            if name.startswith(prefix):
                root, name = folder, name.removeprefix(prefix)
        try:
            path = (root / name).resolve()
            if path.is_dir():
                path /= "index.html"
            return path if path.is_file() and path.is_relative_to(root) else None
        except (OSError, ValueError):  # no file system has such a name
            raise BadRequest("The request's path is no path of a file.") from None

    def _common(self, path: Path, etag: str) -> None:
        """Send the headers of answers about a file. Files in assets/ have a hash in their name and never change."""
        for name, value in {**headers_of(path.name), **self.server.headers}.items():
            self.send_header(name, value)
        hashed = path.is_relative_to(self.server.root / "assets")
        self.send_header("Cache-Control", IMMUTABLE if hashed else REVALIDATED)
        self.send_header("ETag", etag)
        self.send_header("Vary", "Accept-Encoding")
        self.send_header("Accept-Ranges", "bytes")

    def _fail(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        text = f"{status.value} {status.phrase}\n".encode()
        self.send_response(status)
        for name, value in {**HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)


def accepted_encodings(header: str) -> set[str]:
    """Return the encodings that an Accept-Encoding header names, without those of quality 0."""
    named = [part.strip().lower().partition(";") for part in header.split(",")]
    return {name.strip() for name, _, quality in named if not re.fullmatch(r"q=0(\.0*)?", quality.replace(" ", ""))}


class UnsatisfiableRange(Exception):
    """A range that starts after the file's end."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return (start, end) of a Range header, end exclusive; None if there is none or it is not understood."""
    match = re.fullmatch(r"bytes=([0-9]*)-([0-9]*)", header.strip()) if header else None
    if not match or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = number(match[1]), min(number(match[2]) + 1 if match[2] else size, size)
    else:  # the last match[2] bytes
        start, end = max(0, size - number(match[2])), size
    if start >= end:
        raise UnsatisfiableRange
    return start, end


def _copy(source: BufferedIOBase, target: BufferedIOBase, length: int) -> None:
    while length:
        piece = source.read(min(length, 1 << 20))
        if not piece:
            break
        target.write(piece)
        length -= len(piece)


class Server(BoundedServer):
    """A file server.

    `headers` override or add to HEADERS; `mounts` map prefixes such as "tests/" to other folders.
    """

    handler: type[RequestHandler] = Handler

    def __init__(
        self, root: Path, port: int, *, headers: dict[str, str] | None = None, mounts: dict[str, Path] | None = None
    ) -> None:
        self.root = root.resolve()
        self.headers = headers or {}
        self.mounts = {prefix: folder.resolve() for prefix, folder in (mounts or {}).items()}
        super().__init__((HOST, port), self.handler)

    @property
    def url(self) -> str:
        """The address of the root, with a slash at its end."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def start(self) -> "Server":
        """Serve in a background thread."""
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self


def open_port(root: Path, port: int | None, kind: type[Server] = Server) -> Server:
    """Open a server on `port`; without one, on the first free port from DEFAULT_PORT on."""
    candidates = [port] if port is not None else [*range(DEFAULT_PORT, DEFAULT_PORT + 20), 0]
    for candidate in candidates:
        try:
            return kind(root, candidate)
        except OSError:
            continue
        except OverflowError:
            raise Failure(f"{candidate} is no port; give one between 1 and 65535 with --port") from None
    raise Failure(f"Port {port} is taken or not allowed; stop what uses it, or give another one with --port")


def serve(root: Path, port: int | None, *, open_browser: bool) -> None:
    """Serve until interrupted. Prints the address on a line of its own once the server accepts requests."""
    server = open_port(root, port)
    print(f"Serving {server.url}", flush=True)
    if open_browser and has_desktop():
        threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


def has_desktop() -> bool:
    """Return whether this machine can show a browser."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
