"""The API of the Hugging Face Hub as its documentation describes it, over files of this machine.

GET /api/models?filter=gguf&search=...&sort=...&limit=...   a page of repositories; the header Link has the next
GET /api/models/OWNER/NAME?blobs=true                       one repository with the sizes and hashes of its files
GET /OWNER/NAME/resolve/main/FILE                           redirects to another host, which sends the file
"""

import hashlib
import http.server
import json
import re
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from tests.support.faulty_server import FaultyServer, File
from tests.support.waiting import HANG_S

TOKEN = "hf_good"


@dataclass
class Repository:
    """One repository and its files."""

    id: str
    files: dict[str, bytes] = field(default_factory=dict)
    license: str = "apache-2.0"
    task: str = "text-generation"
    downloads: int = 0
    likes: int = 0
    created: str = "2026-01-01T00:00:00.000Z"
    parameters: int = 1_000_000
    gated: bool = False

    def described(self, *, blobs: bool) -> dict[str, Any]:
        """As the API has it."""
        siblings = [
            {
                "rfilename": name,
                "size": len(data),
                "blobId": hashlib.sha1(data).hexdigest(),
                "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134},
            }
            for name, data in self.files.items()
        ]
        return {
            "_id": hashlib.sha256(self.id.encode()).hexdigest()[:24],
            "id": self.id,
            "downloads": self.downloads,
            "likes": self.likes,
            "tags": ["gguf", f"license:{self.license}", "region:us"],
            "pipeline_tag": self.task,
            "gated": "manual" if self.gated else False,
            "createdAt": self.created,
            "gguf": {"total": self.parameters, "architecture": "llama", "context_length": 2048},
            **({"siblings": [{"rfilename": "README.md", "size": 10}, *siblings]} if blobs else {}),
        }


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "FakeHub"

    def do_OPTIONS(self) -> None:
        self._send(HTTPStatus.NO_CONTENT, b"", {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        hub, path = self.server, unquote(url.path)
        hold = hub.hold  # a test may set it to None at any time
        hub.requests.append((self.path, self.headers.get("Authorization")))
        if hold is not None and url.path == "/api/models":
            hold.wait(HANG_S)
        if url.path == "/api/models":
            self._search(dict(parse_qsl(url.query)), parse_qs(url.query))
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)", path):
            found = hub.repositories.get(match[1])
            if found is None:  # as the hub answers, which does not say what exists
                self._send(HTTPStatus.UNAUTHORIZED, b'{"error":"Invalid username or password."}', {})
            else:
                self._json(found.described(blobs="blobs=true" in url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path):
            self._resolve(match[1], match[2])
        else:
            self._send(HTTPStatus.NOT_FOUND, b"", {})

    def _search(self, one: dict[str, str], all_of: dict[str, list[str]]) -> None:
        words, sort = one.get("search", "").lower(), one.get("sort", "downloads")
        licenses = [value for value in all_of.get("filter", []) if value.startswith("license:")]
        limits = dict(part.split(":") for part in one.get("num_parameters", "").split(",") if part)
        found = [
            repository
            for repository in self.server.repositories.values()
            if words in repository.id.lower()
            and one.get("pipeline_tag", repository.task) == repository.task
            and all(value == f"license:{repository.license}" for value in licenses)
            and int(limits.get("min", 0)) <= repository.parameters <= int(limits.get("max", 1 << 60))
        ]
        key = {"createdAt": lambda r: r.created, "likes": lambda r: r.likes}.get(sort, lambda r: r.downloads)
        found.sort(key=key, reverse=one.get("direction") == "-1")
        start, limit = int(one.get("cursor", 0)), int(one.get("limit", 1000))
        headers = {}
        if start + limit < len(found):
            rest = [(name, value) for name, value in parse_qsl(urlsplit(self.path).query) if name != "cursor"]
            query = urlencode([*rest, ("cursor", str(start + limit))])
            headers["Link"] = f'<https://hub.invalid/api/models?{query}>; rel="next"'
        self._json([repository.described(blobs=False) for repository in found[start : start + limit]], headers)

    def _resolve(self, name: str, file: str) -> None:
        repository = self.server.repositories.get(name)
        if repository is None or file not in repository.files:
            self._send(HTTPStatus.NOT_FOUND, b"", {})
        elif repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(HTTPStatus.UNAUTHORIZED, b"", {})
        else:
            digest = hashlib.sha256(repository.files[file]).hexdigest()
            location = self.server.cdn.url(f"{name}/{file}")
            self._send(HTTPStatus.FOUND, b"", {"Location": location, "X-Linked-ETag": f'"{digest}"'})

    def _json(self, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(HTTPStatus.OK, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        cors = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "authorization, range",
            "Access-Control-Expose-Headers": "Link, ETag, X-Linked-ETag, Content-Range",
            "Content-Length": str(len(body)),
        }
        for name, value in {**cors, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class FakeHub(http.server.ThreadingHTTPServer):
    """Serves `repositories`; `cdn` has their files. `requests`: (path, Authorization) of every GET.

    `hold`: searches are answered once it is set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.hold: threading.Event | None = None
        self.cdn = FaultyServer()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def add(self, repository: Repository) -> None:
        """Publish a repository."""
        self.repositories[repository.id] = repository
        for name, data in repository.files.items():
            digest = hashlib.sha256(data).hexdigest()
            self.cdn.files[f"{repository.id}/{name}"] = File(data, etag=f'"{digest}"')

    def close(self) -> None:
        """End both servers."""
        for server in (self.cdn, self):
            server.shutdown()
            server.server_close()

    def handle_error(self, *_: object) -> None:
        pass
