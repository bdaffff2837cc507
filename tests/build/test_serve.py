"""The server of `build.py serve`, over real sockets."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import HANG_S, wait_for
from tools.dist import MADE
from tools.failure import Failure, plain
from tools.paths import ROOT
from tools.serve import Server, UnsatisfiableRange, open_port, parse_range

DATA = bytes(range(256)) * 40


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "root" / "assets").mkdir(parents=True)
    (tmp_path / "root" / "index.html").write_text("<!doctype html>")
    (tmp_path / "root" / "assets" / "a b.gguf").write_bytes(DATA)
    (tmp_path / "root" / "assets" / "x.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret.txt").write_text("secret")
    server = Server(tmp_path / "root", 0).start()
    yield server
    server.shutdown()
    server.server_close()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=HANG_S)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def test_page_is_isolated_and_checked_for_news_each_time(site: Server) -> None:
    status, headers, body = ask(site, "/")
    assert (status, body) == (200, b"<!doctype html>")
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["cache-control"] == "no-cache"
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy
    status, _, body = ask(site, "/", If_None_Match=headers["etag"])
    assert (status, body) == (304, b"")


def test_hashed_assets_may_be_cached_for_ever(site: Server) -> None:
    _, headers, body = ask(site, "/assets/a%20b.gguf?x#y")
    assert body == DATA
    assert "immutable" in headers["cache-control"]
    assert ask(site, "/assets/x.wasm")[1]["content-type"] == "application/wasm"


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [("bytes=0-0", 0, 1), ("bytes=5-9", 5, 10), ("bytes=10000-", 10000, None), ("bytes=-3", -3, None),
     ("bytes=100-99999999", 100, None)],
)  # fmt: skip
def test_ranges(site: Server, asked: str, start: int, end: int | None) -> None:
    status, headers, body = ask(site, "/assets/a%20b.gguf", Range=asked)
    assert (status, body) == (206, DATA[start:end])
    first = start % len(DATA)
    assert headers["content-range"] == f"bytes {first}-{first + len(body) - 1}/{len(DATA)}"


def test_unsatisfiable_ranges(site: Server) -> None:
    status, headers, _ = ask(site, "/assets/a%20b.gguf", Range=f"bytes={len(DATA)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(DATA)}")
    assert ask(site, "/assets/a%20b.gguf", Range="lines=1-2")[0] == 200
    assert ask(site, "/assets/a%20b.gguf", Range="bytes=0-1", If_Range='"other"')[2] == DATA
    with pytest.raises(UnsatisfiableRange):
        parse_range("bytes=-0", 10)


def test_compressed_files_go_to_those_who_accept_them(site: Server) -> None:
    folder = site.root / "assets"
    (folder / "x.js").write_text("text")
    for suffix in ("br", "gz"):
        (folder / f"x.js.{suffix}").write_text(suffix)

    def sent(accepted: str, **headers: str) -> tuple[str | None, bytes]:
        _, answer, body = ask(site, "/assets/x.js", Accept_Encoding=accepted, **headers)
        assert (answer["vary"], answer["content-type"]) == ("Accept-Encoding", "text/javascript; charset=utf-8")
        assert int(answer["content-length"]) == len(body)
        return answer.get("content-encoding"), body

    assert sent("gzip, deflate, br") == ("br", b"br")
    assert sent("gzip, br;q=0") == ("gzip", b"gz")
    assert sent("identity") == (None, b"text")
    assert sent("br", Range="bytes=0-1") == (None, b"te")
    tags = {ask(site, "/assets/x.js", Accept_Encoding=name)[1]["etag"] for name in ("br", "gzip", "identity")}
    assert len(tags) == 3
    os.utime(folder / "x.js.br", (0, 0))  # x.js was changed after it
    assert sent("br") == (None, b"text")


def test_nothing_outside_the_folder(site: Server) -> None:
    for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt", "/nope", "/assets"):
        status, headers, body = ask(site, path)
        assert status == 404, path
        assert b"secret" not in body.replace(b"Not", b"")
        assert headers["cross-origin-embedder-policy"] == "require-corp"


def test_one_connection_serves_many_requests(site: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.server_address[1], timeout=HANG_S)
    connection.connect()
    socket = connection.sock
    for method, path in [("GET", "/"), ("HEAD", "/assets/a%20b.gguf"), ("GET", "/nope"), ("GET", "/assets/x.wasm")]:
        connection.request(method, path)
        answer = connection.getresponse()
        length = int(answer.headers["Content-Length"])
        assert len(answer.read()) == (0 if method == "HEAD" else length)
        assert connection.sock is socket
    connection.close()


def raw(site: Server, request: bytes) -> bytes:
    """The answer to bytes that no client sends."""
    with socket.create_connection(("127.0.0.1", site.server_address[1]), timeout=HANG_S) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


@pytest.mark.parametrize(
    "path", ["/%00", "/a%00b", "/%0a", "/" + "a" * 300, "/" + "a/" * 4000, "/" + "%e2%82%ac" * 90, "http://["]
)
def test_paths_that_no_file_has(site: Server, path: str) -> None:
    answer = raw(site, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    head, _, body = raw(site, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert body == b""


def test_numbers_and_lines_that_are_too_long(site: Server) -> None:
    for spans in ("0-" + "9" * 5000, "9" * 5000 + "-", "-" + "9" * 5000):
        assert ask(site, "/", Range=f"bytes={spans}")[0] == 400
    assert raw(site, b"GET /" + b"a" * 70_000).startswith(b"HTTP/1.1 414 ")
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    for more in (b"X: " + b"a" * 70_000 + b"\r\n\r\n", b"X: a\r\n" * 200 + b"\r\n"):
        answer = raw(site, head + more)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"text/plain" in answer


@pytest.mark.parametrize("line", ["GET / HTTP/9.999999999999", "GET / HTTP/x", "PRI * HTTP/2.0", "a b c d", "x"])
def test_what_is_no_request_of_http_1_gets_an_error_in_its_form(site: Server, line: str) -> None:
    head, _, body = raw(site, f"{line}\r\n\r\n".encode()).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 505 "))
    assert body.count(b"\n") == 1  # no page of the standard library


def test_a_body_of_a_file_s_request_is_no_request(site: Server) -> None:
    inner = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(site, inner[:-2] + b"Content-Length: %d\r\n\r\n" % len(inner) + inner)
    assert answer.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 0\r\nContent-Length: 40",
        "Host: localhost",
        "Content-Length : 40",
        "Content-Length: 0\r\nx",
        "x\r\nY: z",
        "X: y\r\n folded",
        "X: a\0b",
        "X\u00e9: y",
    ],
)
def test_headers_that_others_may_read_differently_are_refused(site: Server, lines: str) -> None:
    inner = "GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(site, f"GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n{inner}".encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "multipart/form-data", "message/rfc822"])
def test_a_body_in_parts_is_no_wrong_header(site: Server, kind: str) -> None:
    request = f"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    assert raw(site, request.encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ('multipart/x; a="' + ";" * 60_000, 200),
        ('multipart/x; a="' + (";" * 60_000 + "\r\n ") * 50, 400),  # Python's parser of headers would take hours
        ("multipart/x; boundary*" + "9" * 5000 + "=b", 200),  # it raises ValueError
        ("multipart/x; boundary*=a; boundary*0=b", 200),  # it raises TypeError
    ],
    ids=["long", "folded", "digits", "kinds"],
)
def test_a_type_that_the_parser_of_headers_does_not_like(site: Server, kind: str, status: int) -> None:
    request = f"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
    started = time.process_time()
    assert raw(site, request.encode()).startswith(b"HTTP/1.1 %d " % status)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("method", ["G\u00c9T", "G\1T", "GET\0", "G(T"])
def test_a_method_that_is_none(site: Server, method: str) -> None:
    assert raw(site, f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()).startswith(b"HTTP/1.1 400 ")


def test_only_names_of_this_machine_are_answered(site: Server) -> None:
    for host in ("127.0.0.1", "localhost:8000", f"127.0.0.1:{site.server_address[1]}"):
        assert ask(site, "/", Host=host)[0] == 200
    for host in (
        "example.org",
        "example.org:8000",
        "127.0.0.1.example.org",
        "localhost.example.org:80",
        "0.0.0.0",
        "127.0.0.1:80@x",
    ):
        assert ask(site, "/", Host=host)[0] == 403
    assert raw(site, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 403 ")


def test_many_connections_that_come_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    """The system's queue had five places: of thirty requests at once, half were reset."""
    site = Server(tmp_path, 0)  # nobody takes connections out of the queue
    opened: list[socket.socket] = []
    try:
        opened += (socket.create_connection(("127.0.0.1", site.server_address[1]), timeout=HANG_S) for _ in range(64))
    finally:
        for connection in opened:
            connection.close()
        site.server_close()


def test_slow_and_idle_and_too_many_connections(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("x")

    class Small(Server):
        request_s = 0.5
        max_connections = 2

    site = Small(tmp_path, 0)
    site.start()
    try:
        answer = raw(site, b"GET / HTTP/1.1\r\nHost: localhost\r\n")  # its header never ends
        assert answer.startswith(b"HTTP/1.1 408 ")
        wait_for(lambda: site._free._value == 2)  # that connection's thread has ended
        site.request_s = 60  # else a busy machine is too slow for the next ones
        address = ("127.0.0.1", site.server_address[1])
        held = [socket.create_connection(address, timeout=HANG_S) for _ in range(2)]
        for connection in held:  # both have their threads
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(address, timeout=HANG_S) as third:
            assert third.recv(1) == b""
        for connection in held:
            connection.close()
        wait_for(lambda: _answers(site))
    finally:
        site.shutdown()
        site.server_close()


def _answers(site: Server) -> bool:
    try:
        return ask(site, "/")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def test_what_goes_to_the_terminal_has_no_control_characters() -> None:
    assert plain("a\x1b[2J\x07b\r\nc\td\x9b1m\u202eé🦩") == "a[2Jb\nc\td1mé🦩"


def test_port_that_is_taken(site: Server, tmp_path: Path) -> None:
    port = site.server_address[1]
    with pytest.raises(Failure, match=f"Port {port} is taken.*--port"):
        open_port(tmp_path, port)
    with pytest.raises(Failure, match="no port"):
        open_port(tmp_path, 1 << 20)
    free = open_port(tmp_path, None)
    assert free.url.startswith("http://127.0.0.1:")
    free.server_close()


def test_the_command_says_where_it_serves_once_it_does(dist: Path) -> None:
    """It makes dist/ first."""
    command = [sys.executable, "build.py", "serve", "--no-open"]
    env = {name: value for name, value in os.environ.items() if name != MADE}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **options) as running:
        assert running.stdout
        line = running.stdout.readline()
        try:
            match = re.fullmatch(r"Serving (http://127\.0\.0\.1:\d+/)\n", line)
            assert match, line
            with urllib.request.urlopen(f"{match[1]}wisp.js", timeout=HANG_S) as answer:
                assert answer.read() == (dist / "wisp.js").read_bytes()
        finally:
            os.killpg(running.pid, signal.SIGINT)  # as Ctrl-C does: the command and what it has started
        assert running.wait(HANG_S) in (0, 130)
