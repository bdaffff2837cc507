# ruff: noqa: E501
"""The official openai client on real pages, with only a baseURL: the service worker is the server."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

from app.openai.endpoints import ENDPOINTS
from tests.support.browser import new_profile
from tests.support.openai_client import open_client_page as open_page
from tests.support.openai_client import run, settled
from tests.support.slow_engine import slowed
from tests.support.waiting import wait_for
from tools.serve import Server

SERVICE_WORKER = True

HOST = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create();
  await engine.load({ backend: "cpu" });
}"""
ITALY = "What is the capital of Italy?"
STORY = "Write a short story about a dragon named Ember who finds a silver key."


@pytest.fixture(scope="module")
def asker(context: BrowserContext, server: Server) -> Page:
    """A page without an engine."""
    return open_page(context, server)


@pytest.fixture(scope="module")
def hosts(context: BrowserContext, server: Server) -> list[Page]:
    """The pages that `host` has opened."""
    return []


@pytest.fixture
def host(asker: Page, context: BrowserContext, server: Server, hosts: list[Page]) -> Page:
    """Another tab, with an engine and a model. Reopened if a test closed it."""
    if not hosts or hosts[-1].is_closed():
        page = open_page(context, server)
        page.evaluate(HOST)
        hosts.append(page)
    return hosts[-1]


def test_without_an_engine_the_answer_says_what_to_do(
    chromium: Callable[[str | None], Browser], server: Server
) -> None:
    alone = new_profile(chromium(None))  # no other test's tab has an engine in it
    page = open_page(alone, server)
    # As a page of another application below this origin would: its engine is not waited for, which takes half a minute.
    held = """() => new Promise((held) => {
        navigator.locks.request("wisp.page https://example.org/", () => (held(), new Promise(() => {})));
    })"""
    page.evaluate(held)
    begun = time.monotonic()
    error = run(page, "return failure(openai.chat.completions.create(ask('Hi')));")
    assert time.monotonic() - begun < 25
    alone.close()
    assert (error["status"], error["code"], error["type"]) == (503, "no_engine", "server_error")
    assert "open one in a tab" in error["message"]


def test_chat_from_another_tab(asker: Page, host: Page) -> None:
    whole, chunks = run(
        asker,
        """const whole = await openai.chat.completions.create(ask(question));
        return [whole, await read(await openai.chat.completions.create(ask(question, { stream: true })))];""",
        question=ITALY,
    )
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert "Rome" in text
    assert text == whole["choices"][0]["message"]["content"]
    assert len(chunks) > 2


VARYING = (  # in answers: ids, times, and what the KV cache had
    r'"(id|item_id|response_id)":"[a-z]+[-_][^"]*"',
    r'"(created|created_at|cached_tokens|tokens_cached|input_tokens|cache_read_input_tokens|[a-z_]+_duration)":[0-9.]+',
    r'"created_at":"[^"]*"',
    r'"load_time_seconds":[0-9.e-]+',
    r'"(timings|stats)":{[^}]*}',
    r"(?<=\nllamacpp:\w+) .*",
)


def test_the_same_answers_as_the_engines_own_fetch(host: Page) -> None:
    """Good and bad requests give equal status, type and bytes, except for the request's id and time."""
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    chat = {"messages": [{"role": "user", "content": ITALY}], "temperature": 0, "max_tokens": 40}
    one = {**chat, "max_tokens": 1}  # a longer stream may come in other chunks
    wanted: list[tuple[str, str, Any]] = [
        ("GET", "v1/models", None),
        ("GET", "v1/models/no-such-model", None),
        ("GET", "v1/chat/completions", None),
        ("GET", "v1/nothing", None),
        ("POST", "v1/chat/completions", {**chat, "response_format": form}),
        ("POST", "v1/chat/completions", {**one, "stream": True, "stream_options": {"include_usage": True}}),
        ("POST", "v1/chat/completions", {**chat, "temperature": 9}),
        ("POST", "v1/completions", {"prompt": "Once", "max_tokens": 3, "temperature": 0, "logprobs": 1}),
        ("POST", "v1/responses", {"input": ITALY, "temperature": 0, "stream": True, "max_output_tokens": 1}),
        ("POST", "v1/embeddings", {"input": ["Once upon a time"], "dimensions": 4}),
        ("POST", "v1/embeddings", {"input": ""}),
        ("POST", "v1/rerank", {"query": "a", "documents": ["b", "c"]}),
        ("POST", "v1/tokenize", {"content": "Once upon a time", "with_pieces": True}),
        ("POST", "v1/tokenize", {"content": 5}),
        ("POST", "v1/messages", {**one, "stream": True}),
        ("POST", "v1/messages", {**chat, "max_tokens": None}),
        ("POST", "v1/messages/count_tokens", {"messages": chat["messages"]}),
        ("POST", "api/chat", {"messages": chat["messages"], "options": {"temperature": 0, "num_predict": 1}}),
        ("POST", "api/chat", {"messages": 5}),
        ("POST", "api/generate", {"prompt": ITALY, "stream": False, "options": {"temperature": 0}}),
        ("POST", "api/embed", {"input": "Once upon a time"}),
        ("POST", "api/embeddings", {"prompt": "Once upon a time"}),
        ("POST", "api/show", {"model": "wisp-mini-q4_0"}),
        ("GET", "api/tags", None),
        ("GET", "api/ps", None),
        ("GET", "api/version", None),
        ("POST", "api/v0/chat/completions", one),
        ("POST", "api/v0/chat/completions", {**one, "stream": True}),
        ("POST", "api/v0/completions", {"prompt": ITALY, "max_tokens": 1, "temperature": 0}),
        ("POST", "api/v0/embeddings", {"input": "Once upon a time"}),
        ("GET", "api/v0/models", None),
        ("GET", "api/v0/models/wisp-mini-q4_0", None),
        ("GET", "api/v0/models/none", None),
        ("GET", "api/v1/models", None),
        ("POST", "api/v1/models/load", {"model": "wisp-mini-q4_0", "echo_load_config": True}),
        ("POST", "api/v1/models/unload", {"instance_id": "none"}),
        ("POST", "api/v1/chat", {"input": ITALY, "temperature": 0, "max_output_tokens": 40, "store": False}),
        ("POST", "api/v1/chat", {"input": ITALY, "temperature": 0, "max_output_tokens": 1, "stream": True}),
        ("POST", "v1/chat/completions/input_tokens", {"messages": chat["messages"]}),
        ("POST", "v1/responses/input_tokens", {"input": ITALY}),
        ("POST", "infill", {"input_prefix": "a", "input_suffix": "b"}),
        ("POST", "embeddings", {"content": "Once upon a time"}),
        ("POST", "completion", {"prompt": "Once", "n_predict": 1, "temperature": 0, "stream": True}),
        ("POST", "tokenize", {"content": "Once"}),
        ("POST", "detokenize", {"tokens": [50, 51]}),
        ("POST", "apply-template", {"messages": chat["messages"]}),
        ("GET", "lora-adapters", None),
        ("GET", "props", None),
        ("GET", "slots", None),
        ("GET", "metrics", None),
        ("GET", "health", None),
        ("POST", "v1/audio/transcriptions", {"file": "no form"}),
        ("POST", "v1/audio/translations", {"file": "no form"}),
    ]
    assert {endpoint.path for endpoint in ENDPOINTS.values()} <= {path for _, path, _ in wanted}
    pairs = run(
        host,
        """const seen = async (response) => [response.status, response.headers.get("content-type"),
            (await response.text()).replaceAll(new RegExp(varying, "g"), "")];
        const both = [];
        for (const [method, path, body] of wanted) {
          const init = body ? { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } } : { method };
          both.push([await seen(await engine.fetch(`/${path}`, init)), await seen(await fetch(`/${path}`, init))]);
        }
        return both;""",
        wanted=[list(item) for item in wanted],
        varying="|".join(VARYING),
    )
    for request, (direct, served) in zip(wanted, pairs, strict=True):
        assert served == direct, request
    got = [direct[0] for direct, _ in pairs]
    assert got[:14] == [200, 404, 405, 404, 200, 200, 400, 200, 200, 200, 400, got[11], 200, 400]  # a model may rank
    assert [status for status in got[14:] if status != 200] == [400, 400, 404, 404, 400, 400, 400]
    assert r'"content":"{\"city\":\"Rome\"}"' in pairs[4][1][2].replace(" ", "")


def test_errors_have_their_status(asker: Page, host: Page) -> None:
    for code, name, status, param in (
        ("openai.chat.completions.create(ask('Hi', { temperature: 9 }))", "BadRequestError", 400, "temperature"),
        ("openai.chat.completions.create(ask('Hi', { stream: true, n: 0 }))", "BadRequestError", 400, "n"),
        ("openai.embeddings.create({ model: 'x', input: '' })", "BadRequestError", 400, "input"),
        ("openai.models.retrieve('no-such-model')", "NotFoundError", 404, "model"),
    ):
        error = run(asker, f"return failure({code});")
        assert (error["name"], error["status"], error["param"]) == (name, status, param), code


def test_abort_stops_the_engine(asker: Page, host: Page) -> None:
    """Aborts before the answer's headers and in mid-stream: the engine generates only a part of the long story."""
    end = run(host, "return (await engine.tokenize('<|im_end|>', { parseSpecial: true })).at(-1);")
    long = {"max_tokens": 4000, "logit_bias": {str(end): -100}}  # some 2,000 tokens, to the end of the context

    def assert_stopped() -> None:
        wait_for(lambda: run(host, "return (await engine.stats()).models.every(({ requests }) => requests === 0);"))
        assert run(host, "return (await engine.stats()).last.completion_tokens;") < 1000

    def assert_answers() -> None:
        answer = run(asker, "return openai.chat.completions.create(ask(question, { max_tokens: 8 }));", question=ITALY)
        assert "capital" in answer["choices"][0]["message"]["content"]

    with slowed(host):
        name = run(
            asker,
            """const controller = new AbortController();
            setTimeout(() => controller.abort(), 150);
            const { signal } = controller;
            return (await failure(openai.chat.completions.create(ask(story, long), { signal }))).name;""",
            story=STORY,
            long=long,
        )
        assert name == "APIUserAbortError"
        assert_stopped()
    assert_answers()
    with slowed(host):
        count = run(
            asker,
            """let count = 0;
            const stream = await openai.chat.completions.create(ask(story, { ...long, stream: true }));
            for await (const { choices: [{ delta }] } of stream)
                if (delta.content && ++count === 3) stream.controller.abort();
            return count;""",
            story=STORY,
            long=long,
        )
        assert count == 3
        assert_stopped()
    assert_answers()


BEGIN = """async () => {
  const messages = [{ role: "user", content: "Write a short story about a dragon." }];
  const body = JSON.stringify({ stream: true, ignore_eos: true, max_tokens: 1700, messages });
  const response = await fetch("/v1/chat/completions", { method: "POST", body });
  globalThis.reader = response.body.getReader();
  await reader.read();
  void (async () => { while (!(await reader.read()).done); })();
}"""


@pytest.mark.parametrize("how", ["closed", "reloaded", "left", "crashed", "cancelled"])
def test_a_page_that_goes_away_stops_its_answer(
    asker: Page, host: Page, context: BrowserContext, server: Server, how: str
) -> None:
    page = open_page(context, server)
    with slowed(host):
        page.evaluate(BEGIN)
        assert run(host, "return (await engine.stats()).models[0].requests;") == 1
        if how == "closed":
            page.close()
        elif how == "reloaded":
            page.reload()
        elif how == "left":
            page.goto("about:blank")
        elif how == "cancelled":
            page.evaluate("reader.cancel()")
        else:
            with contextlib.suppress(Error):
                page.goto("chrome://crash", timeout=3000)
        wait_for(lambda: run(host, "return (await engine.stats()).models[0].requests;") == 0)
    assert run(host, "return (await engine.stats()).last?.completion_tokens ?? 0;") < 1000
    if not page.is_closed():
        page.close()


def test_a_service_worker_that_was_stopped_finds_the_engine_again(
    asker: Page, host: Page, context: BrowserContext
) -> None:
    session = context.new_cdp_session(asker)
    session.send("ServiceWorker.enable")
    asker.evaluate(
        """(request) => { globalThis.cut = (async () => {
            const stream = await openai.chat.completions.create(request);
            globalThis.begun = 0;
            for await (const chunk of stream) begun++;
        })().then(() => null, (error) => `${error}`); }""",
        {
            "model": "wisp-mini-q4_0",
            "messages": [{"role": "user", "content": STORY}],
            "stream": True,
            "max_tokens": 400,
        },
    )
    run(asker, "while (!(globalThis.begun > 2)) await new Promise((resolve) => setTimeout(resolve, 10));")
    session.send("ServiceWorker.stopAllWorkers")
    settled(asker, "cut")  # the stream ends, or gives an error
    answer = run(asker, "return openai.chat.completions.create(ask(question));", question=ITALY)
    assert "Rome" in answer["choices"][0]["message"]["content"]
    session.detach()


def test_it_answers_without_a_network(asker: Page, host: Page, context: BrowserContext) -> None:
    context.set_offline(True)
    answer = run(asker, "return openai.chat.completions.create(ask(question));", question=ITALY)
    context.set_offline(False)
    assert "Rome" in answer["choices"][0]["message"]["content"]


# Computes for longer than pages without an engine are waited for (FIND_MS), before the page answers the service worker.
COMPUTES = """() => {
  const { postMessage } = MessagePort.prototype;
  MessagePort.prototype.postMessage = function (data, ...rest) {
    if (data.kind === "coming") {
      MessagePort.prototype.postMessage = postMessage;
      for (const end = performance.now() + 4_000; performance.now() < end;);
    }
    return postMessage.call(this, data, ...rest);
  };
}"""


def test_an_engines_tab_that_is_busy_is_waited_for(asker: Page, host: Page) -> None:
    host.evaluate(COMPUTES)
    answer = run(asker, "return openai.chat.completions.create(ask(question));", question=ITALY)
    assert "Rome" in answer["choices"][0]["message"]["content"]


def test_closing_the_engines_tab_ends_the_stream_with_an_error(asker: Page, host: Page) -> None:
    asker.evaluate(
        """(request) => { globalThis.begun = 0; globalThis.cut = failure((async () => {
            for await (const chunk of await openai.chat.completions.create(request)) begun++;
        })()); }""",
        {
            "model": "wisp-mini-q4_0",
            "messages": [{"role": "user", "content": STORY}],
            "stream": True,
            "max_tokens": 4000,
            "ignore_eos": True,  # it ends after the tab is closed
        },
    )
    run(asker, "while (!(begun > 2)) await new Promise((resolve) => setTimeout(resolve, 10));")
    host.close()
    error = settled(asker, "cut")
    assert error
    assert (error["name"], error["code"]) == ("APIError", "engine_gone")
    assert run(asker, "return failure(openai.chat.completions.create(ask('Hi')));")["code"] == "no_engine"
