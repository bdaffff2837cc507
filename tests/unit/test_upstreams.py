"""Requests that the worker sends to upstreams, and requests that must stay local. The tests emulate the upstreams."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from app.upstreams import registry
from app.upstreams.server import masked
from py_engine.errors import CODES, WispError
from tests.support.upstream_page import BASE, CHAT, KEY, Reply, UpstreamPage, answer, refused, stream
from tests.support.worker_page import HELLO, HI, Page, settle


@pytest.fixture
async def page() -> UpstreamPage:
    page = UpstreamPage()
    await page.call("load", model="mini")
    await page.call("upstreams.set", name="office", baseURL=f"{BASE}/", apiKey=KEY)
    page.servers.asked.clear()
    return page


async def test_upstreams_are_listed_without_their_keys(page: UpstreamPage) -> None:
    (about,) = (await page.call("upstreams.list"))["data"]
    assert about["models"] == ["office/org/big", "office/vectors"]
    assert (about["key"], about["base_url"], about["requests"]) == ("…6789", BASE, 0)
    assert KEY not in json.dumps(page.platform.messages)
    models = (await page.call("models"))["data"]
    assert [(m["id"], m["owned_by"]) for m in models[-2:]] == [
        ("office/org/big", "office"),
        ("office/vectors", "office"),
    ]
    assert page.servers.asked == []  # listing sends no request


ONE = [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]


async def test_a_request_is_forwarded_with_only_its_model_changed(page: UpstreamPage) -> None:
    answer(page, "chat/completions", lambda: Reply({"object": "chat.completion", "model": "org/big", "choices": ONE}))
    result = await page.call("chat.completions", request=CHAT)
    assert result == {"object": "chat.completion", "model": "office/org/big", "choices": ONE}
    ((method, url, headers, body),) = page.servers.asked
    assert (method, url) == ("POST", f"{BASE}/chat/completions")
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {**CHAT, "model": "org/big"}
    assert (await page.call("upstreams.list"))["data"][0]["requests"] == 1
    assert [m["text"] for m in page.platform.messages if m["kind"] == "log"] == ["office: chat/completions"]


@pytest.mark.parametrize("model", [None, "mini", "office", "gpt-5", "Office/org/big", "other/office/org/big", 7])
async def test_requests_for_local_models_are_not_forwarded(page: UpstreamPage, model: Any) -> None:
    number, task = page.send("chat.completions", request={"messages": HI, "model": model})
    await task
    assert page.answers(number)[-1]["kind"] in ("result", "error")
    assert page.servers.asked == []


async def test_a_local_model_takes_precedence_over_an_upstream_s(page: UpstreamPage) -> None:
    await page.call("load", model="https://wisp/models/mini.gguf", name="office/mine")
    answer = await page.call("chat.completions", request={"messages": HI, "model": "office/mine"})
    assert answer["choices"][0]["message"]["content"] == HELLO
    assert page.servers.asked == []


@pytest.mark.parametrize("kind", ["completions", "responses", "embeddings", "rerank"])
async def test_all_endpoints(page: UpstreamPage, kind: str) -> None:
    answer(page, kind, lambda: Reply({"object": "list", "model": "vectors", "data": [], "choices": []}))
    assert (await page.call(kind, request={"model": "office/vectors", "x": 1}))["model"] == "office/vectors"
    assert page.servers.asked[0][3] == {"model": "vectors", "x": 1}


async def test_only_rankings_may_be_lists(page: UpstreamPage) -> None:
    for kind in ("rerank", "embeddings"):
        answer(page, kind, lambda: Reply([{"index": 0, "score": 1.5}]))
    request = {"model": "office/vectors", "query": "a", "texts": ["b"]}
    assert await page.call("rerank", request=request) == [{"index": 0, "score": 1.5}]
    assert await page.code("embeddings", request=request) == "upstream_error"


async def test_a_stream_is_passed_on(page: UpstreamPage) -> None:
    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {"model": "org/big", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"ü": 1}'}}
    chunks = [
        chunk({"content": "Grüße"}),
        chunk({"tool_calls": [call]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"total_tokens": 3}},
    ]
    answer(page, "chat/completions", lambda: stream(*chunks))
    number, task = page.send("chat.completions", request={**CHAT, "stream": True})
    await task
    *got, last = page.answers(number)
    assert last["kind"] == "done"
    assert [m["chunk"] for m in got] == [{**c, "model": "office/org/big"} if "model" in c else c for c in chunks]
    answer(page, "chat/completions", lambda: stream(chunks[0], chunks[2], end=b""))  # no [DONE], and whole
    number, task = page.send("chat.completions", request={**CHAT, "stream": True})
    await task
    assert [m["kind"] for m in page.answers(number)] == ["chunk", "chunk", "done"]


async def test_a_stream_of_responses(page: UpstreamPage) -> None:
    events = [
        {"type": "response.created", "response": {"model": "org/big"}},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "response.completed", "response": {"model": "org/big"}},
    ]
    answer(page, "responses", lambda: stream(*events, end=b""))
    number, task = page.send("responses", request={"model": "office/org/big", "input": "Hi", "stream": True})
    await task
    *got, last = page.answers(number)
    assert last["kind"] == "done"
    assert [m["chunk"].get("response", {}).get("model") for m in got] == ["office/org/big", None, "office/org/big"]


HTML = b"<html><body>Welcome to nginx</body></html>"
FAILURES: dict[str, tuple[Callable[[], Reply], str, str, str]] = {
    "openai": (
        lambda: Reply({"error": {"message": "No such model", "code": "model_not_found", "param": "model"}}, status=404),
        "not_found_error", "model_not_found", "office: No such model.",
    ),
    "ollama": (lambda: Reply({"error": "boom"}, status=500), "server_error", "upstream_error", "boom. This is an"),
    "fastapi": (lambda: Reply({"detail": "No"}, status=403), "permission_error", "upstream_error", "No. Check"),
    "vllm, older": (
        lambda: Reply({"object": "error", "message": "too long", "code": 400}, status=400),
        "invalid_request_error", "upstream_error", "too long",
    ),
    "key": (
        lambda: Reply({"error": {"message": f"Wrong key {KEY}!", "code": "invalid_api_key"}}, status=401),
        "authentication_error", "invalid_api_key", "office: Wrong key …! Check its API key",
    ),
    "busy for a while": (
        lambda: Reply({"error": "slow down"}, status=429, wait_s=29.2),
        "rate_limit_error", "upstream_error", "slow down. Try again in 30 s.",
    ),
    "down for hours": (lambda: Reply(b"", status=503, wait_s=9000), "server_error", "upstream_error", "in 3 hours."),
    "down for ever": (lambda: Reply(b"", status=503, wait_s=1e30), "server_error", "upstream_error", "This is an"),
    "busy": (lambda: Reply(b"", status=429), "rate_limit_error", "upstream_error", "HTTP status 429. Wait"),
    "no api": (lambda: Reply(HTML, status=404, type="text/html"), "not_found_error", "upstream_error", "/v1"),
    "page": (lambda: Reply(HTML, type="text/html"), "server_error", "upstream_error", "did not answer with"),
    "error with status 200": (lambda: Reply({"error": {"message": "no"}}), "server_error", "upstream_error", "no"),
    "redirect": (lambda: Reply(status=0), "server_error", "upstream_error", "another address"),
    "cut": (lambda: Reply(b'{"a', None), "server_error", "upstream_error", "lost in the middle"),
    "silent": (lambda: Reply(b'{"a', 30.0), "server_error", "upstream_timeout", "did not answer for 0.1 s"),
}  # fmt: skip


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FAILURES)
async def test_failures_become_openai_errors(page: UpstreamPage, name: str, streamed: bool) -> None:
    reply, type, code, said = FAILURES[name]
    timeout = 0.1 if name == "silent" else 60  # of other failures a busy machine may learn later
    await page.call("upstreams.set", name="office", baseURL=BASE, timeout=timeout)  # the key stays
    replies: list[Reply] = []
    answer(page, "chat/completions", lambda: replies.append(reply()) or replies[-1])  # type: ignore[func-returns-value]
    error = await refused(page, request={**CHAT, "stream": streamed})
    assert (error["type"], error["code"]) == (type, code)
    assert said in error["message"]
    assert error["message"].startswith("office") or "office" in error["message"]
    assert KEY not in error["message"]
    assert replies[0].closed
    assert (await page.call("completions", request={"prompt": "Hi"}))["choices"]  # the engine stays usable


async def test_an_unreachable_server_says_what_to_do(page: UpstreamPage) -> None:
    error = await refused(page, request=CHAT)
    assert error["code"] == "upstream_unreachable"
    assert error["code"] in CODES
    for word in ("office", BASE, "CORS", "--allowed-origins", "OLLAMA_ORIGINS", page.platform.origin):
        assert word in error["message"]


CHUNK = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
BROKEN: dict[str, tuple[Callable[[], Reply], str]] = {
    "ends early": (lambda: stream(CHUNK, end=b""), "lost in the middle"),
    "ends within an event": (lambda: stream(CHUNK, end=b'data: {"choices": [{"del'), "lost in the middle"),
    "lost": (lambda: Reply(b"data: " + json.dumps(CHUNK).encode() + b"\n\n", None, type="text/event-stream"), "lost"),
    "error": (lambda: stream(CHUNK, {"error": {"message": "out of memory"}}), "office: out of memory."),
    "error of responses": (lambda: stream(CHUNK, {"type": "error", "message": "gone", "code": "x"}), "office: gone."),
    "no JSON": (lambda: stream(CHUNK, end=b"data: {oops\n\n"), "JSON in its stream"),
    "a list": (lambda: stream(CHUNK, [1]), "JSON in its stream"),
    "an endless line": (lambda: stream(CHUNK, end=b"data: " + b"x" * 100_000), "too long to be one"),
    "deep JSON": (lambda: stream(CHUNK, end=b"data: " + b"[" * 30_000 + b"\n\n"), "JSON in its stream"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_streams_that_break(page: UpstreamPage, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply, said = BROKEN[name]
    monkeypatch.setattr(registry, "MAX_EVENT", 50_000)
    answer(page, "chat/completions", reply)
    number, task = page.send("chat.completions", request={**CHAT, "stream": True})
    await task
    chunk, last = page.answers(number)
    assert (chunk["kind"], last["kind"]) == ("chunk", "error")
    assert said in last["error"]["message"]


async def test_an_endless_answer_is_given_up(page: UpstreamPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_ANSWER", 1 << 19)
    answer(page, "chat/completions", lambda: Reply(*[b"x" * (1 << 16)] * 9, 30.0))
    error = await refused(page, request=CHAT)
    assert (error["code"], "more than 0.5 MiB" in error["message"]) == ("upstream_error", True)


async def test_an_answer_of_many_lists_is_not_parsed(page: UpstreamPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_CONTAINERS", 5000)
    found = []
    for lists in (b"[]," * 4990, b"[]," * 5000):
        answer(page, "chat/completions", partial(Reply, b'{"error": [' + lists + b"[]]}"))
        found.append((await refused(page, request=CHAT))["message"])
    assert ["more than 5,000 objects and lists" in message for message in found] == [False, True]


async def test_an_answer_of_megabytes_is_quoted_without_splitting_it(page: UpstreamPage) -> None:
    text = b"no " * 1_000_000
    answer(page, "chat/completions", lambda: Reply(text))
    tracemalloc.start()
    try:
        error = await refused(page, request=CHAT)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)
    finally:
        tracemalloc.stop()
    assert "no no no" in error["message"]


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        (" " * 6000 + "no", "no"),
        ("a" + " " * 6000 + "b", "a b"),
        ("no " * 199 + "end", "no " * 199 + "end"),
        ("no " * 200 + "end", "no " * 200 + " …"),
        ("x" * 600, "x" * 600),
        ("a " + "x" * 600, "a " + "x" * 598 + " …"),
    ],
)
async def test_an_answer_is_quoted_without_repeated_blanks(page: UpstreamPage, text: str, quote: str) -> None:
    answer(page, "chat/completions", lambda: Reply(text.encode()))
    error = await refused(page, request=CHAT)
    assert error["message"].endswith(f"Its answer: {quote}")


async def test_an_abort_ends_the_upstream_s_answer_too(page: UpstreamPage) -> None:
    reply = Reply(b"data: " + json.dumps(CHUNK).encode() + b"\n\n", 60.0, type="text/event-stream")
    answer(page, "chat/completions", lambda: reply)
    number, task = page.send("chat.completions", request={**CHAT, "stream": True})
    await settle()
    _, abort = page.send("abort", target=number)
    await asyncio.gather(task, abort)
    assert page.answers(number)[-1]["error"]["code"] == "aborted"
    assert reply.closed


async def test_a_local_model_does_not_wait_for_an_upstream(page: UpstreamPage) -> None:
    answer(page, "chat/completions", lambda: Reply(0.2, {"object": "chat.completion", "choices": []}))
    _, slow = page.send("chat.completions", request=CHAT)
    await page.call("completions", request={"prompt": "Hi"})
    assert not slow.done()
    await slow


async def test_an_unreachable_server_stays_and_does_not_break_the_list(page: UpstreamPage) -> None:
    about = await page.call("upstreams.set", name="gone", baseURL="https://gone.example/v1")
    assert "cannot be reached" in about["error"]
    assert [m["id"] for m in (await page.call("models"))["data"]] == ["mini", "office/org/big", "office/vectors"]
    page.servers.answers["https://gone.example/v1/models"] = lambda: Reply({"data": [{"id": "back"}]})
    again = await page.call("upstreams.refresh", name="gone")
    assert (again["error"], again["models"]) == (None, ["gone/back"])
    await page.call("upstreams.remove", name="gone")
    assert [u["name"] for u in (await page.call("upstreams.list"))["data"]] == ["office"]
    assert (await refused(page, "upstreams.remove", name="gone"))["type"] == "not_found_error"


async def test_a_key_goes_to_no_other_server(page: UpstreamPage) -> None:
    page.servers.answers["http://127.0.0.1:9001/v1/models"] = lambda: Reply({"data": []})
    about = await page.call("upstreams.set", name="office", baseURL="http://127.0.0.1:9001/v1")
    assert about["key"] is None
    assert "Authorization" not in page.servers.asked[-1][2]
    assert KEY not in json.dumps(page.servers.kept)


async def test_configured_model_names_are_not_requested(page: UpstreamPage) -> None:
    about = await page.call("upstreams.set", name="plain", baseURL="https://plain.example", models=["a", "b"])
    assert about["models"] == ["plain/a", "plain/b"]
    assert page.servers.asked == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "wisp"}, "name"),
        ({"name": None}, "name"),
        ({"baseURL": "office:8000"}, "baseURL"),
        ({"baseURL": "ftp://example.org"}, "baseURL"),
        ({"baseURL": "https://user:word@example.org/v1"}, "baseURL"),
        ({"baseURL": "https://example.org/v1?key=1"}, "baseURL"),
        ({"baseURL": "http://gpu-box:8000/v1"}, "baseURL"),
        ({"baseURL": "https://[::1/v1"}, "baseURL"),
        ({"baseURL": 7}, "baseURL"),
        ({"apiKey": 7}, "apiKey"),
        ({"apiKey": "two\nlines"}, "apiKey"),
        ({"apiKey": "schlüssel"}, "apiKey"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": True}, "timeout"),
        ({"models": [7]}, "models"),
    ],
)
async def test_bad_configurations(page: UpstreamPage, fields: dict[str, Any], param: str) -> None:
    before = dict(page.servers.kept)
    error = await refused(page, "upstreams.set", **{"name": "new", "baseURL": BASE, **fields})
    assert error["param"] == param
    assert page.servers.kept == before


async def test_http_to_another_host_suggests_a_tunnel(page: UpstreamPage) -> None:
    error = await refused(page, "upstreams.set", name="lan", baseURL="http://gpu-box:8000/v1")
    assert "ssh -L 8000:127.0.0.1:8000 gpu-box" in error["message"]


def test_keys_are_masked() -> None:
    assert [masked(""), masked("short"), masked("sk-0123456789")] == [None, "…", "…6789"]


SOUND = {"name": "office", "base_url": BASE, "key": KEY, "timeout": 60, "models": ["org/big"], "given": True}
DAMAGED: list[Any] = [
    None, 7, "x", [], {}, {"name": "office"}, {**SOUND, "name": 3}, {**SOUND, "name": "../x"},
    {**SOUND, "base_url": None},
    {**SOUND, "base_url": "javascript:alert(1)"}, {**SOUND, "base_url": "http://example.org/v1"}, {**SOUND, "key": 5},
    {**SOUND, "key": "a\r\nHost: x"}, {**SOUND, "timeout": "x"}, {**SOUND, "timeout": -1}, {**SOUND, "models": "abc"},
    {**SOUND, "models": [{}]},
]  # fmt: skip


async def upstreams_of(page: Page) -> list[dict[str, Any]]:
    return (await page.call("upstreams.list"))["data"]


@pytest.mark.parametrize("damaged", DAMAGED, ids=str)
async def test_a_damaged_entry_is_left_out(damaged: Any) -> None:
    page = Page()
    page.platform.kept["upstreams"] = json.dumps([damaged, {**SOUND, "name": "other", "unknown": 1, "asked": 10**400}])
    (other,) = await upstreams_of(page)
    assert (other["name"], other["models"], other["asked"]) == ("other", ["other/org/big"], 0)
    listed = await page.call("models")
    assert [model["id"] for model in listed["data"]] == ["mini", "other/org/big"]
    await page.call("load", model="mini")
    answer = await page.call("chat.completions", request={"model": "mini", "messages": HI})
    assert answer["choices"][0]["message"]["content"] == HELLO


@pytest.mark.parametrize("text", ["", "{", "null", "7", '"x"', "{}", '{"name": "office"}', "[" * 5000, "\x00"])
async def test_damaged_storage_is_no_upstreams(text: str) -> None:
    page = Page()
    page.platform.kept["upstreams"] = text
    assert await upstreams_of(page) == []
    sound = {"name": "office", "baseURL": BASE, "models": ["org/big"]}
    assert (await page.call("upstreams.set", **sound))["models"] == ["office/org/big"]
    assert [upstream["name"] for upstream in await upstreams_of(page)] == ["office"]


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("kind", ["set", "remove", "refresh"])
async def test_storage_that_cannot_be_read_loses_no_upstreams(kind: str, reads: int) -> None:
    page = Page()
    fields = {"name": "office"} | ({"baseURL": BASE, "models": ["other"]} if kind == "set" else {})
    await page.call("upstreams.set", name="office", baseURL=BASE, models=["org/big"])
    await page.call("upstreams.set", name="home", baseURL=BASE, models=["org/big"])
    stored, left = page.platform.kept["upstreams"], reads

    async def read(_: str) -> str:
        nonlocal left
        left -= 1
        if left < 0:
            raise WispError("It is blocked.", "storage_unreadable")
        return stored

    page.platform.read_text = read  # type: ignore[assignment]
    found = await page.call(f"upstreams.{kind}", **fields)
    assert found["error"]["code"] == "storage_unreadable"
    assert page.platform.kept["upstreams"] == stored


async def test_an_answer_of_too_many_numbers_names_the_limit() -> None:
    page = UpstreamPage()
    await page.call("upstreams.set", name="office", baseURL=BASE, key=KEY, models=["org/big"])
    numbers = ",".join(["0.5"] * (4 << 20))
    answer(page, "chat/completions", lambda: Reply(f"[{numbers}]".encode()))
    found = await page.call("chat.completions", request={"model": "office/org/big", "messages": HI})
    assert "160 MB" in found["error"]["message"]
