"""The MCP servers that `serve --api --mcp` relays to its pages, over real sockets."""

import http.client
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_server
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.support.mcp_servers import STDIO, mcp_server
from tests.support.waiting import HANG_S, wait_for
from tools import mcp_relay
from tools.api import ApiServer
from tools.failure import Failure
from tools.mcp_relay import RELAY_KEY, TOO_BIG
from tools.mcp_servers import Address, Program, servers_of

ECHO = "import os, sys\nprint(os.getpid(), flush=True)\nfor line in sys.stdin: print(line.strip(), flush=True)"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with mcp_server() as url:
        yield url


@pytest.fixture
def server(tmp_path: Path, shop: str) -> Iterator[ApiServer]:
    (tmp_path / "index.html").write_text("<!doctype html>")
    running = ApiServer(tmp_path, 0)
    programs = {"echo": Program([sys.executable, "-c", ECHO]), "stdio": Program(STDIO)}
    running.relay.servers = {"shop": Address(shop), **programs, "absent": Address("http://127.0.0.1:9/mcp")}
    running.start()
    yield running
    running.shutdown()
    running.server_close()


def own(server: ApiServer) -> Origin:
    """The origin of the server's pages."""
    return Origin(server.url.rstrip("/"))


def relays(server: ApiServer) -> dict[str, dict[str, Any]]:
    """What a page that the server has opened learns of them."""
    url = f"{server.url.replace('http', 'ws')}v1/bridge?ticket={server.tickets.offered}"
    with connect(url, origin=own(server)) as bridge:
        while (message := json.loads(bridge.recv(timeout=HANG_S)))["kind"] != "relay":
            pass
    return {described["name"]: described for described in message["servers"]}


def ask(url: str, body: Any, **headers: str) -> tuple[int, dict[str, str], str]:
    split = urlsplit(url)
    connection = http.client.HTTPConnection(split.netloc, timeout=HANG_S)
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    connection.request("POST", split.path, json.dumps(body), sent)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def ask_relay(server: ApiServer, name: str) -> tuple[int, dict[str, str], str]:
    """What a page gets from a server."""
    described = relays(server)[name]
    return ask(described["url"], INITIALIZE, **described["headers"])


def runs(pid: int) -> bool:
    """Whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def http_answer(text: str) -> Iterator[str]:
    """The address of a server that answers one request, with any text."""

    def answer() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):  # the other side has had enough
            connection.recv(1 << 16)
            connection.sendall(text.encode())

    with create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"


def test_a_page_speaks_with_a_server_that_allows_no_pages(server: ApiServer) -> None:
    shop = relays(server)["shop"]
    status, headers, text = ask(shop["url"], INITIALIZE, **shop["headers"], Origin=own(server))
    assert status == 200
    assert headers["mcp-session-id"]
    assert "access-control-allow-origin" not in headers
    assert '"name":"Shop"' in text


def test_a_page_speaks_with_a_program(server: ApiServer) -> None:
    with connect(relays(server)["stdio"]["url"], origin=own(server)) as socket:
        socket.send(json.dumps(INITIALIZE))
        answer = json.loads(socket.recv(timeout=HANG_S))
    assert answer["result"]["serverInfo"]["name"] == "Shop"


def test_a_program_ends_with_its_page(server: ApiServer) -> None:
    with connect(relays(server)["echo"]["url"], origin=own(server)) as socket:
        pid = int(socket.recv(timeout=HANG_S))
        socket.send('{"two":\n"lines"}')
        assert socket.recv(timeout=HANG_S) == '{"two": "lines"}'
        assert runs(pid)
    wait_for(lambda: not runs(pid))


SILENT = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(1000)"


def test_a_program_that_reads_nothing_ends_with_its_page(server: ApiServer) -> None:
    server.relay.servers["silent"] = Program([sys.executable, "-c", SILENT])
    with connect(relays(server)["silent"]["url"], origin=own(server)) as socket:
        pid = int(socket.recv(timeout=HANG_S))
        socket.send("x" * 1_000_000)  # more than its pipe holds
    wait_for(lambda: not runs(pid))


def test_messages_for_a_program_that_reads_nothing_are_bounded(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_relay, "MAX_UNREAD", 1_000_000)
    server.relay.servers["silent"] = Program([sys.executable, "-c", SILENT])
    with connect(relays(server)["silent"]["url"], origin=own(server)) as socket:
        pid = int(socket.recv(timeout=HANG_S))
        with suppress(ConnectionClosed):
            for _ in range(100):
                socket.send("x" * 100_000)
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=HANG_S)
    wait_for(lambda: not runs(pid))


SLOW = "import sys, time\nprint(flush=True)\ntime.sleep(0.5)\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_many_messages_wait_for_a_program_that_is_slow_to_start(server: ApiServer) -> None:
    """They come at once, and are more than its pipe holds."""
    server.relay.servers["slow"] = Program([sys.executable, "-c", SLOW])
    sent = [f'{{"id":{i},"x":"{"x" * 500}"}}' for i in range(500)]
    with connect(relays(server)["slow"]["url"], origin=own(server)) as socket:
        for text in sent:
            socket.send(text)
        assert [socket.recv(timeout=HANG_S) for _ in sent] == sent


def test_a_line_of_a_program_has_an_end(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_relay, "MAX_MESSAGE", 1000)
    code = "import sys, time\nsys.stdout.write('x' * 2000)\nsys.stdout.flush()\ntime.sleep(1000)"
    server.relay.servers["endless"] = Program([sys.executable, "-c", code])
    with connect(relays(server)["endless"]["url"], origin=own(server)) as socket:
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=HANG_S)
        assert socket.close_code == TOO_BIG


def test_a_line_of_a_program_that_is_no_text_becomes_one(server: ApiServer) -> None:
    code = "import sys\nsys.stdout.buffer.write(b'a\\xff\\n')\nsys.stdout.flush()\nsys.stdin.read()"
    server.relay.servers["odd"] = Program([sys.executable, "-c", code])
    with connect(relays(server)["odd"]["url"], origin=own(server)) as socket:
        assert socket.recv(timeout=HANG_S) == "a\ufffd"


@pytest.mark.parametrize(
    "head",
    [
        'Content-Type: multipart/x; a="' + (";" * 60_000 + "\r\n ") * 50,
        "Content-Type: multipart/x; boundary*" + "9" * 5000 + "=b",
        "Content-Type: multipart/x; boundary*=a; boundary*0=b",
        "X: y\r\n" * 5000,
    ],
    ids=["folded", "digits", "kinds", "long"],
)
def test_an_answer_whose_headers_no_parser_likes_is_an_error(server: ApiServer, head: str) -> None:
    """Python's parser of headers takes hours for the first, and fails in other ways for the next two."""
    with http_answer(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n") as url:
        server.relay.servers["odd"] = Address(url)
        started = time.process_time()
        status, _, text = ask_relay(server, "odd")
        assert time.process_time() - started < 1
    assert (status, json.loads(text)["error"]["code"]) == (502, "mcp_unreachable")


def test_the_error_says_what_was_wrong_with_an_answer(server: ApiServer) -> None:
    for answer, what in (("ICY 200 OK\r\n\r\n", "ICY 200 OK"), ("", "closed connection")):
        with http_answer(answer) as url:
            server.relay.servers["odd"] = Address(url)
            status, _, text = ask_relay(server, "odd")
        assert (status, what in json.loads(text)["error"]["message"]) == (502, True), text


def test_a_length_that_no_answer_has(server: ApiServer) -> None:
    with http_answer(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {'9' * 30}\r\n\r\nhello") as url:
        server.relay.servers["odd"] = Address(url)
        status, _, text = ask_relay(server, "odd")
    assert (status, text) == (200, "hello")


def test_answers_that_only_say_continue_have_an_end(server: ApiServer) -> None:
    with http_answer("HTTP/1.1 100 Continue\r\n\r\n" * 5000) as url:
        server.relay.servers["odd"] = Address(url)
        status, *_ = ask_relay(server, "odd")
    assert status == 502


@pytest.mark.parametrize("address", ["http://[", "http://a..b/", "http://127.0.0.1:x/", "http://\ud800/"])
def test_an_address_that_is_none_is_an_error(server: ApiServer, address: str) -> None:
    server.relay.servers["odd"] = Address(address)
    status, _, text = ask_relay(server, "odd")
    assert (status, json.loads(text)["error"]["code"]) == (502, "mcp_unreachable")


def test_only_pages_of_this_server_with_its_key_are_relayed(server: ApiServer) -> None:
    described = relays(server)
    shop, echo = described["shop"], described["echo"]
    assert ask(shop["url"], INITIALIZE, Origin=own(server))[0] == 403
    assert ask(shop["url"], INITIALIZE, **{RELAY_KEY: server.key})[0] == 403
    assert ask(shop["url"], INITIALIZE, **shop["headers"], Origin="https://example.org")[0] == 403
    assert ask(shop["url"], INITIALIZE, **shop["headers"], Host="example.org")[0] == 403
    assert ask(shop["url"].replace("shop", "other"), INITIALIZE, **shop["headers"])[0] == 404
    for url, origin in (
        (echo["url"], None),
        (echo["url"], Origin("https://example.org")),
        (echo["url"][:-1], own(server)),
    ):
        with pytest.raises(InvalidStatus) as caught, connect(url, origin=origin):
            pass
        assert caught.value.response.status_code == 403


def test_a_server_that_does_not_run_is_an_error(server: ApiServer) -> None:
    absent = relays(server)["absent"]
    status, _, text = ask(absent["url"], INITIALIZE, **absent["headers"])
    assert (status, json.loads(text)["error"]["code"]) == (502, "mcp_unreachable")


def test_a_file_names_servers(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"

    def read(text: Any) -> Any:
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return servers_of([str(file)])

    program = {"command": sys.executable, "args": ["-m", "shop"], "env": {"KEY": "x"}}
    docs = {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer x"}}
    assert read({"mcpServers": {"shop": program, "docs": docs}}) == {
        "shop": Program([sys.executable, "-m", "shop"], {"KEY": "x"}),
        "docs": Address("https://example.org/mcp", {"Authorization": "Bearer x"}),
    }
    for wrong, why in (
        ("{", "no JSON"),
        ([], "mcpServers"),
        ({"mcpServers": {"a": 1}}, '"command"'),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, '"url"'),
        ({"mcpServers": {"a": {"command": sys.executable, "env": {"A": 1}}}}, '"env"'),
        ({"mcpServers": {"a": {"command": "no-such-program"}}}, "no program"),
    ):
        with pytest.raises(Failure, match=why):
            read(wrong)


def test_the_command_line_names_servers() -> None:
    found = servers_of(["docs=https://example.org/mcp?a=b", f"shop='{sys.executable}' -m shop --flag 'a b'"])
    shop = Program([sys.executable, "-m", "shop", "--flag", "a b"])
    assert found == {"docs": Address("https://example.org/mcp?a=b"), "shop": shop}
    for wrong, why in (
        (["docs"], "NAME=ADDRESS"),
        (["=https://a"], "a name has letters"),
        (["a b=x"], "a name has letters"),
        (["x=no-such-program --flag"], "no program no-such-program"),
        (["x='"], "no command"),
        (["x=https://a", "x=https://b"], "Two MCP servers"),
    ):
        with pytest.raises(Failure, match=why):
            servers_of(wrong)
