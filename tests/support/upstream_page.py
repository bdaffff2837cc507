"""A page with other servers, which a stand-in for the browser answers for."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from app.handlers import Worker
from tests.support.worker_page import HI, Page, Platform

BASE = "http://127.0.0.1:9000/v1"
KEY = "sk-secret-0123456789"
CHAT = {"model": "office/org/big", "messages": HI, "temperature": 0.5, "unheard_of": [1]}


class Reply:
    """A response with the body `pieces`: None is a lost connection, a number is seconds of silence."""

    def __init__(
        self, *pieces: Any, status: int = 200, type: str = "application/json", wait_s: float | None = None
    ) -> None:
        self.pieces = [p if isinstance(p, bytes | float | None) else json.dumps(p).encode() for p in pieces]
        self.status, self.type, self.wait_s = status, type, wait_s
        self.closed = False

    async def piece(self) -> bytes:
        while self.pieces:
            piece = self.pieces.pop(0)
            if piece is None:
                raise ConnectionError("lost")
            if isinstance(piece, bytes):
                return piece
            await asyncio.sleep(piece)
        return b""

    def close(self) -> None:
        self.closed = True


def stream(*events: Any, end: bytes = b"data: [DONE]\n\n") -> Reply:
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return Reply(data[:7], data[7:], end, type="text/event-stream")


class OtherServers(Platform):
    """A stand-in for a browser with other servers. Records every request to them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.answers: dict[str, Callable[[], Reply]] = {
            f"{BASE}/models": lambda: Reply({"object": "list", "data": [{"id": "org/big"}, {"id": "vectors"}, 7]})
        }

    async def request(self, method: str, url: str, headers: dict[str, str], body: str | None) -> Reply:
        self.asked.append((method, url, headers, json.loads(body) if body else None))
        if url not in self.answers:
            raise ConnectionError("Failed to fetch")
        return self.answers[url]()


class UpstreamPage(Page):
    """A page with an OtherServers browser and a loaded model."""

    def __init__(self) -> None:
        super().__init__()
        self.servers = OtherServers()
        self.platform = self.servers
        self.worker = Worker(self.servers)
        self.client = self.worker.connect(self.servers.post)


def answer(page: UpstreamPage, path: str, reply: Callable[[], Reply]) -> None:
    page.servers.answers[f"{BASE}/{path}"] = reply


async def refused(page: UpstreamPage, kind: str = "chat.completions", **fields: Any) -> dict[str, Any]:
    number, task = page.send(kind, **fields)
    await task
    (message,) = [m for m in page.answers(number) if m["kind"] != "chunk"]
    assert message["kind"] == "error"
    error: dict[str, Any] = message["error"]
    return error
