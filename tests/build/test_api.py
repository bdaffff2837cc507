"""The API of `serve --api` over real sockets: which requests it takes. test_api_tabs.py has the tabs that answer."""

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import ask, code, receive, send, serving, tab
from tests.support.waiting import HANG_S
from tools.api import ApiServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with serving(tmp_path) as running:
        yield running


def test_the_api_also_serves_the_page(server: ApiServer) -> None:
    status, headers, body = ask(server, "/")
    assert (status, body) == (200, b"<!doctype html>")
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert ask(server, "/", method="POST", body=b"{}")[0] == 405


@pytest.mark.parametrize(
    ("headers", "status", "why"),
    [
        ({"Host": "example.org"}, 403, "forbidden_host"),
        ({"Host": "127.0.0.1:1"}, 403, "forbidden_host"),
        ({"Origin": "https://example.org"}, 403, "forbidden_origin"),
        ({"Origin": "null"}, 403, "forbidden_origin"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "forbidden_origin"),
        ({"Authorization": ""}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Basic {key}"}, 401, "invalid_api_key"),
        ({}, 503, "no_engine"),
    ],
)
def test_a_request_that_is_not_allowed_gets_an_openai_error(
    server: ApiServer, headers: dict[str, str], status: int, why: str
) -> None:
    given: dict[str, Any] = {name: text.replace("{key}", server.key) for name, text in headers.items()}
    found, answer, text = ask(server, **given)
    assert (found, code(text)) == (status, why)
    assert not [name for name in answer if name.lower().startswith("access-control-")]
    preflight: dict[str, Any] = {"Origin": "https://example.org", "Access_Control_Request_Method": "POST"}
    found, answer, _ = ask(server, method="OPTIONS", **preflight)
    assert found == 403
    assert not [name for name in answer if name.lower().startswith("access-control-")]


def test_a_request_that_is_not_allowed_gets_anthropics_error(server: ApiServer) -> None:
    for headers, body, expected, kind, why in (
        ({"X_Api_Key": "wrong", "Authorization": ""}, b"{}", 401, "authentication_error", "invalid_api_key"),
        ({"Origin": "https://example.org"}, b"{}", 403, "permission_error", "forbidden_origin"),
        ({}, b" " * 10_001, 413, "request_too_large", "request_too_large"),
    ):
        given: dict[str, Any] = headers
        status, _, text = ask(server, "/v1/messages", "POST", body, **given)
        answer = json.loads(text)
        assert (status, answer["type"]) == (expected, "error")
        assert (answer["error"]["type"], answer["error"]["code"]) == (kind, why)


def test_the_files_too_answer_for_this_host_alone(server: ApiServer) -> None:
    assert ask(server, "/", Host="example.org")[0] == 403


def test_large_and_slow_and_unmeasured_bodies(server: ApiServer) -> None:
    status, _, text = ask(server, "/v1/completions", "POST", b" " * 10_001)
    assert (status, code(text)) == (413, "request_too_large")
    status, _, text = ask(server, "/v1/completions", "POST", None, Transfer_Encoding="chunked")
    assert (status, code(text)) == (411, "length_required")
    server.request_s = 1.0
    start = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n"
    whole = f"{start}Authorization: Bearer {server.key}\r\nContent-Length: 10000\r\n\r\n"
    for sent in (start, whole):  # a header that never ends, a body that drips
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=HANG_S) as slow:
            slow.sendall(sent.encode())
            answer = b""
            with contextlib.suppress(ConnectionError):  # a drop that comes after the server has closed
                while not select.select([slow], [], [], 0.05)[0]:
                    slow.sendall(b"x")
                while piece := slow.recv(1 << 16):
                    answer += piece
            assert answer.startswith(b"HTTP/1.1 408 "), answer
            assert b'"request_timeout"' in answer
            assert time.monotonic() - begun > server.request_s  # not sooner


def test_head_has_no_body_and_numbers_are_checked(server: ApiServer) -> None:
    with tab(server) as page:
        start = f"HEAD /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n"
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=HANG_S) as raw:
            raw.sendall(f"{start}Authorization: Bearer {server.key}\r\n\r\n{start}\r\n".encode())
            number = receive(page, "request")["id"]
            passed = [["content-type", "application/json"], ["retry-after", "30"], ["x-other", "a"]]
            send(page, id=number, kind="head", status=405, headers=passed)
            receive(page, "pull")
            send(page, id=number, kind="piece", text="{}")
            receive(page, "pull")
            send(page, id=number, kind="end")
            answers = raw.makefile("rb").read()
    heads = answers.split(b"\r\n\r\n")
    assert heads[0].startswith(b"HTTP/1.1 405 ")
    assert b"Content-Length: 2" in heads[0]
    assert b"Retry-After: 30" in heads[0]
    assert b"X-Other" not in heads[0]
    assert heads[1].startswith(b"HTTP/1.1 401 ")
    assert heads[2] == b""
    for length in ("9" * 5000, "-1", "1e3", "٣".encode().decode("latin-1")):
        status, _, text = ask(server, "/v1/completions", "POST", None, Content_Length=length)
        assert (status, code(text)) == (400, "invalid_value"), length


@pytest.mark.parametrize("request_", [b"POST /v1/models HTTP/x", b"GET /v1/models HTTP/1.1\r\n" + b"X: a\r\n" * 200])
def test_what_is_no_request_of_http_1_gets_an_openai_error(server: ApiServer, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=HANG_S) as raw:
        raw.sendall(request_ + b"\r\n\r\n")
        head, _, body = raw.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert code(body) == "invalid_value"
