"""The tabs that lend their engines to `serve --api`, over real WebSockets."""

import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.fuzz.web_sockets import HANDSHAKE
from tests.support.api_server import CHAT, ask, bridge, client, code, receive, send, serving, tab
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer
from tools.web_socket import WebSocket


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with serving(tmp_path) as running:
        yield running


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


def test_a_tab_that_says_nothing_counts_as_disconnected(server: ApiServer) -> None:
    server.silent_s = 0.1
    origin = Origin(server.url.rstrip("/"))
    with connect(bridge(server, server.tickets.offered), origin=origin) as page:
        assert receive(page, "ticket")
        with pytest.raises(ConnectionClosed):
            receive(page, "nothing more")
    wait_for(lambda: server.tab is None)


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
