"""Serve dist/ on 127.0.0.1: cross-origin isolated, with the page's security policy, byte ranges and keep-alive."""

import http.server
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
from urllib.parse import unquote, urlsplit

from tools.failure import Failure

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
CSP = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self' https: http://127.0.0.1:* http://localhost:*; worker-src 'self'; manifest-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
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


class Handler(http.server.BaseHTTPRequestHandler):
    """Answer GET and HEAD for the files under `server.root`."""

    protocol_version = "HTTP/1.1"
    server: "Server"

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
        status = path.stat()
        # a name with a hash always means the same content, so a rebuild must not change the tag
        hashed = path.is_relative_to(self.server.root / "assets")
        etag = f'"{path.name}"' if hashed else f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
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
        self.send_header("Content-Type", MIME.get(path.suffix) or mimetypes.guess_type(path.name)[0] or BYTES)
        self.send_header("Content-Length", str(end - start))
        self.send_header("Last-Modified", formatdate(status.st_mtime, usegmt=True))
        self.end_headers()
        if body:
            with path.open("rb") as file:
                file.seek(start)
                _copy(file, self.wfile, end - start)

    def _file(self) -> Path | None:
        """Return the requested file; None if it does not exist or is outside the root."""
        root, name = self.server.root, unquote(urlsplit(self.path).path).lstrip("/")
        for prefix, folder in self.server.mounts.items():
            if name.startswith(prefix):
                root, name = folder, name.removeprefix(prefix)
        path = (root / name).resolve()
        if path.is_dir():
            path /= "index.html"
        return path if path.is_file() and path.is_relative_to(root) else None

    def _common(self, path: Path, etag: str) -> None:
        """Send the headers of answers about a file. Files in assets/ have a hash in their name and never change."""
        for name, value in {**HEADERS, **self.server.headers}.items():
            self.send_header(name, value)
        hashed = path.is_relative_to(self.server.root / "assets")
        self.send_header("Cache-Control", "public, max-age=31536000, immutable" if hashed else "no-cache")
        self.send_header("ETag", etag)
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

    def log_message(self, *_: object) -> None:
        """Print nothing: the terminal shows the address alone."""


class UnsatisfiableRange(Exception):
    """A range that starts after the file's end."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return (start, end) of a Range header, end exclusive; None if there is none or it is not understood."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header.strip()) if header else None
    if not match or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
    else:  # the last match[2] bytes
        start, end = max(0, size - int(match[2])), size
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


class Server(http.server.ThreadingHTTPServer):
    """A file server with a thread for each connection.

    `headers` override or add to HEADERS; `mounts` map prefixes such as "tests/" to other folders.
    """

    handler: type[Handler] = Handler
    daemon_threads = True
    allow_reuse_address = True

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

    def handle_error(self, *_: object) -> None:
        """Ignore connections that the browser closes early."""


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
