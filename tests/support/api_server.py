"""A server of `serve --api`, its clients, and a stand-in for the tab at the WebSocket's other end."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
from websockets.sync.client import ClientConnection, connect

from tests.support.served_api import served_api
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer

CHAT: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": "Hi"}]}


@contextmanager
def serving(folder: Path) -> Iterator[ApiServer]:
    """A server of a folder with a page."""
    (folder / "index.html").write_text("<!doctype html>")
    with served_api(folder) as running:
        running.tab_s, running.request_s, running.body_limit = 0.5, HANG_S, 10_000
        yield running


@contextmanager
def tab(server: ApiServer, **more: Any) -> Iterator[ClientConnection]:
    """A tab's end of the bridge."""
    url = f"{server.url.replace('http', 'ws')}v1/bridge?ticket={server.tickets.offered}"
    given: dict[str, Any] = {"origin": server.url.rstrip("/"), **more}
    before = server.tab
    with connect(url, **given) as connection:
        wait_for(lambda: server.tab is not before)
        yield connection


def bridge(server: ApiServer, ticket: str) -> str:
    """The address of the bridge."""
    return f"{server.url.replace('http', 'ws')}v1/bridge?ticket={ticket}"


def receive(connection: ClientConnection, kind: str) -> dict[str, Any]:
    """The next message of this kind."""
    while True:
        message: dict[str, Any] = json.loads(connection.recv(timeout=HANG_S))
        if message["kind"] == kind:
            return message


def send(connection: ClientConnection, **message: Any) -> None:
    connection.send(json.dumps(message))


def client(server: ApiServer, key: str | None = None) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}v1", api_key=key or server.key, max_retries=0, timeout=HANG_S)


def ask(server: ApiServer, path: str = "/v1/models", method: str = "GET", body: bytes | None = None, **headers: Any):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANG_S)
    given = {"Authorization": f"Bearer {server.key}"} | {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request(method, path, body=body, headers={name: text for name, text in given.items() if text})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def code(text: bytes) -> str:
    """The code of an OpenAI error, whose other fields must be there."""
    error = json.loads(text)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    found: str = error["code"]
    return found
