"""The API of `serve --api` over real sockets, with a stand-in for the tab at the WebSocket's other end."""

import base64
import contextlib
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from pathlib import Path
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.fuzz.web_sockets import HANDSHAKE
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer
from tools.web_socket import WebSocket

CHAT: dict[str, Any] = {"model": "x", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    (tmp_path / "index.html").write_text("<!doctype html>")
    running = ApiServer(tmp_path, 0)
    running.tab_s, running.request_s, running.body_limit = 0.5, HANG_S, 10_000
    running.start()
    yield running
    running.shutdown()
    running.server_close()


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


def test_only_a_page_with_a_ticket_may_lend_its_engine(server: ApiServer) -> None:
    for origin in ("https://example.org", None):
        with pytest.raises(InvalidStatus), tab(server, origin=origin):
            pass
    for ticket in ("", "other"):
        with pytest.raises(InvalidStatus):
            connect(bridge(server, ticket), origin=Origin(server.url.rstrip("/")))
    assert server.tab is None


def test_a_ticket_works_once_and_a_page_that_used_one_gets_the_next(server: ApiServer) -> None:
    told: list[str] = []
    server.say = told.append
    origin = Origin(server.url.rstrip("/"))
    first = server.tickets.offered
    with tab(server) as page:
        following = receive(page, "ticket")["ticket"]
        assert server.tickets.offered not in (first, following)
        said = [
            "A tab of your browser answers now.",
            f"To let another tab of your browser answer, open {server.lending_url}",
        ]
        wait_for(lambda: told == said)  # it is said once the tab is there
        with pytest.raises(InvalidStatus):
            connect(bridge(server, first), origin=origin)
    wait_for(lambda: server.tab is None)
    with connect(bridge(server, following), origin=origin) as page:
        assert receive(page, "ticket")["ticket"] != following
        wait_for(lambda: server.tab is not None)
        with tab(server):
            pass
        wait_for(lambda: told[-2] == "Another tab of your browser answers now.")
    with pytest.raises(InvalidStatus):
        connect(bridge(server, following), origin=origin)
    offered = server.tickets.offered
    for _ in range(100):  # forgotten ones do not pile up, and the user's stays
        server.tickets.issue("tab")
    assert server.tickets.redeem(offered) == "tab"


NONSENSE = [
    "",
    "x",
    "[" * 30_000,
    "[]",
    "null",
    '{"id": [1]}',
    '{"id": 1}',
    '{"id": 1, "kind": "lost"}',
    '{"id": 1, "kind": "piece", "text": "x"}',
    '{"id": 1, "kind": "end"}',
    '{"id": 1, "kind": "head"}',
    '{"id": 1, "kind": "head", "status": "200", "headers": []}',
    '{"id": 1, "kind": "head", "status": 99, "headers": []}',
    '{"id": 1, "kind": "head", "status": 200, "headers": [["content-type", "a\\r\\nSet-Cookie: b"]]}',
    '{"id": 1, "kind": "head", "status": 200, "headers": [["content-type"]]}',
    b"\xff\xfe",
]


@pytest.mark.parametrize("said", NONSENSE)
def test_a_tab_that_sends_nonsense_is_dropped_and_its_requests_end(server: ApiServer, said: str | bytes) -> None:
    with tab(server) as page:
        page.send('{"kind": "pong"}')

        def answer() -> None:
            receive(page, "request")
            page.send(said, text=True)
            if said in ("", '{"id": [1]}'):  # no message, or not about this request: closing ends it
                page.close()

        thread = threading.Thread(target=answer)
        thread.start()
        status, _, text = ask(server, "/v1/completions", "POST", b"{}")
        assert (status, code(text)) == (503, "engine_gone")
        thread.join(HANG_S)
    wait_for(lambda: server.tab is None)


def test_a_tab_that_floods_is_dropped(server: ApiServer) -> None:
    with tab(server) as page:

        def answer() -> None:
            number = receive(page, "request")["id"]
            send(page, id=number, kind="head", status=200, headers=[])
            with contextlib.suppress(ConnectionClosed):
                for _ in range(1000):
                    send(page, id=number, kind="piece", text="x" * 10_000)

        thread = threading.Thread(target=answer)
        thread.start()
        status, _, text = ask(server, "/v1/completions", "POST", b"{}")
        assert (status, code(text)) == (503, "engine_gone")
        thread.join(HANG_S)


def test_a_request_to_a_tab_that_was_lost_ends(server: ApiServer) -> None:
    with tab(server):
        lost = server.tab
        assert lost
    wait_for(lambda: server.tab is None)
    assert lost.ask("GET", "/v1/models", None).next(lambda: False) == {"kind": "lost"}


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


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"a":\r\n\t"\xc3\xbc"}', "body"),
        (b"\1" * 3000, "base64"),  # in JSON, six times as long
        (b"\xff", "base64"),
    ],
)
def test_a_body_is_not_much_longer_on_its_way(server: ApiServer, body: bytes, field: str) -> None:
    with tab(server) as page:
        thread = threading.Thread(target=ask, args=(server, "/v1/completions", "POST", body), daemon=True)
        thread.start()
        asked = receive(page, "request")
        send(page, id=asked["id"], kind="head", status=200, headers=[])
        receive(page, "pull")
        send(page, id=asked["id"], kind="end")
        thread.join(HANG_S)
    assert (asked[field].encode() if field == "body" else base64.b64decode(asked[field])) == body
    assert len(json.dumps(asked, ensure_ascii=False).encode()) < 2 * len(body) + 200


def test_pieces_are_pulled_one_by_one_and_passed_on_at_once(server: ApiServer) -> None:
    with tab(server) as page:

        def answer() -> None:
            asked = receive(page, "request")
            assert (asked["method"], asked["path"]) == ("POST", "/v1/chat/completions")
            number = asked["id"]
            send(page, id=number, kind="head", status=200, headers=[["content-type", "text/event-stream"]])
            for count in range(3):
                receive(page, "pull")
                chunk = {"choices": [{"index": 0, "delta": {"content": f"ü{count}"}}]}
                send(page, id=number, kind="piece", text=f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n")
            receive(page, "pull")
            send(page, id=number, kind="end")

        thread = threading.Thread(target=answer)
        thread.start()
        stream = client(server).chat.completions.create(**CHAT, stream=True)
        assert [chunk.choices[0].delta.content for chunk in stream] == ["ü0", "ü1", "ü2"]
        thread.join(HANG_S)


def test_a_client_that_leaves_aborts(server: ApiServer) -> None:
    with tab(server) as page:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANG_S)
        connection.request("POST", "/v1/completions", b"{}", {"Authorization": f"Bearer {server.key}"})
        number = receive(page, "request")["id"]
        connection.close()
        assert receive(page, "abort")["id"] == number  # before the tab has sent anything


def test_a_tab_that_closes_during_an_answer(server: ApiServer) -> None:
    """Streamed: an error event. Whole: 503. The next request finds the tab that came back."""
    for stream in (True, False):
        with tab(server) as page:

            def go(page: ClientConnection = page, stream: bool = stream) -> None:
                number = receive(page, "request")["id"]
                kind = "text/event-stream" if stream else "application/json"
                send(page, id=number, kind="head", status=200, headers=[["content-type", kind]])
                receive(page, "pull")
                page.socket.shutdown(socket.SHUT_RDWR)

            threading.Thread(target=go, daemon=True).start()
            with pytest.raises(openai.APIError) as caught:
                list(client(server).chat.completions.create(**CHAT, stream=stream))
            assert caught.value.code == "engine_gone"
        wait_for(lambda: server.tab is None)


@pytest.mark.parametrize("sending", [True, False])
def test_a_tab_that_reads_nothing_is_closed_at_once(monkeypatch: pytest.MonkeyPatch, sending: bool) -> None:
    """Its successor waits for that. `sending`: a request is being sent to it."""
    monkeypatch.setattr("tools.web_socket.SEND_S", 10 * HANG_S)
    here, there = socket.socketpair()
    with here, there:
        tab, headers = WebSocket(here), Message()
        for name, value in (line.split(": ") for line in HANDSHAKE):
            headers[name] = value
        headers["Host"] = "127.0.0.1"
        assert tab.accept("GET / HTTP/1.1", headers)
        here.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                here.send(bytes(1 << 16))
        here.settimeout(10 * HANG_S)
        threads = [threading.Thread(target=tab.send, args=(b"x",), daemon=True)] if sending else []
        threads.append(threading.Thread(target=tab.close, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        assert not any(thread.is_alive() for thread in threads)


def test_the_last_tab_answers(server: ApiServer) -> None:
    with tab(server) as first:
        before = server.tab
        with tab(server) as second:
            with pytest.raises(ConnectionClosed) as caught:
                receive(first, "request")
            assert caught.value.rcvd
            assert caught.value.rcvd.code == 4001
            assert server.tab is not before
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANG_S)
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {server.key}"})
            assert receive(second, "request")["path"] == "/v1/models"
            connection.close()
