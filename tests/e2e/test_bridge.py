"""The official openai package of Python against a page's engine: `serve --api`, its bridge, and a real tab."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.browser import watch
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer
from tools.paths import ROOT

ITALY: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of Italy?"}]
STORY: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Write a short story about a dragon."}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
MODEL = "wisp-mini-q4_0"


@pytest.fixture(scope="module")
def api(dist: Path) -> Iterator[ApiServer]:
    running = ApiServer(dist, 0)
    running.tab_s = HANG_S  # a busy machine boots a page more slowly than a user's
    running.start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def page(context: BrowserContext, api: ApiServer) -> Page:
    """The page itself, opened at the address that `serve --api` prints."""
    page = context.new_page()
    errors = watch(page)
    page.goto(api.lending_url)
    assert api.wait_for_tab(HANG_S), errors
    assert page.evaluate("location.hash") == ""
    assert not errors
    return page


@pytest.fixture
def client(page: Page, api: ApiServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{api.url}v1", api_key=api.key, max_retries=0, timeout=HANG_S)


def test_a_streamed_chat_equals_the_whole_one(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0)
    stream = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert "Rome" in text
    assert text == whole.choices[0].message.content
    assert MODEL in [model.id for model in client.models.list()]


def test_tools_schemas_embeddings_and_responses_pass_the_bridge(client: openai.OpenAI) -> None:
    asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = client.chat.completions.create(model=MODEL, messages=asked, temperature=0, tools=[TOOL])
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    schema = TOOL["function"]["parameters"]
    form: Any = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    text = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0, response_format=form)
    assert set(json.loads(text.choices[0].message.content or "")) == {"city"}
    vectors = client.embeddings.create(model=MODEL, input=["Once upon a time", "Rome"])
    assert all(abs(sum(x * x for x in entry.embedding) - 1) < 1e-4 for entry in vectors.data)
    response = client.responses.create(model=MODEL, input="What is the capital of Italy?", temperature=0)
    assert "Rome" in response.output_text


def test_errors_reach_the_client_with_their_status(client: openai.OpenAI, api: ApiServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ITALY, temperature=9)
    assert (caught.value.param, caught.value.status_code) == ("temperature", 400)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{api.url}v1", api_key="wrong", max_retries=0).models.list()


def test_a_client_that_leaves_stops_the_engine(client: openai.OpenAI, page: Page) -> None:
    """The engine stops when a client leaves, whether the client has read part of the answer or nothing."""

    def engine(expression: str) -> Any:
        code = f"async () => {{ const engine = await (await import('/wisp.js')).Wisp.create(); return {expression}; }}"
        return page.evaluate(code)

    def assert_stopped() -> None:
        wait_for(lambda: engine("(await engine.stats()).models.every(({ requests }) => requests === 0)"))
        assert engine("(await engine.stats()).last.completion_tokens") < 1000  # unstopped: about 2,000

    end = engine("(await engine.tokenize('<|im_end|>', { parseSpecial: true })).at(-1)")
    long: dict[str, Any] = {"model": MODEL, "messages": STORY, "max_tokens": 4000, "logit_bias": {str(end): -100}}
    stream = client.chat.completions.create(**long, stream=True)
    for count, _ in enumerate(stream):
        if count == 3:
            break
    stream.close()
    assert_stopped()
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3).chat.completions.create(**long)
    assert_stopped()
    assert client.completions.create(model=MODEL, prompt="Once", max_tokens=2).choices


def test_a_tab_that_reloads_in_mid_stream_is_an_error_until_it_is_back(client: openai.OpenAI, page: Page) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=STORY, max_tokens=2000, stream=True)
    next(stream)
    page.reload()
    with pytest.raises(openai.APIError) as caught:  # within the client's timeout
        list(stream)
    assert caught.value.code == "engine_gone"
    answer = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0)  # waits for the tab
    assert "Rome" in (answer.choices[0].message.content or "")


def test_a_page_of_another_origin_gets_nothing(chromium: Callable[[str | None], Browser], server, api, page) -> None:
    lending = api.wait_for_tab()
    assert lending
    context = chromium(None).new_context()
    other = context.new_page()
    other.goto(f"{server.url}tests/blank.html")  # another port: another origin, allowed to connect by its own policy
    found = other.evaluate(
        """async ({ url, key, ticket }) => {
          const headers = { authorization: `Bearer ${key}` };
          const told = await fetch(`${url}v1/models`, { headers }).then((r) => r.status, (error) => error.name);
          const opaque = await fetch(`${url}v1/models`, { mode: "no-cors" }).then((r) => r.type, (error) => error.name);
          const socket = await new Promise((resolve) => {
            const made = new WebSocket(`${url.replace("http", "ws")}v1/bridge?ticket=${ticket}`);
            made.onopen = () => resolve("open");
            made.onerror = () => resolve("refused");
          }).catch((error) => error.name);
          return [told, opaque, socket];
        }""",
        {"url": api.url, "key": api.key, "ticket": api.tickets.offered},
    )
    context.close()
    assert found[0] == "TypeError"
    assert found[1] in ("TypeError", "opaque")  # a page may see no more of the answer
    assert found[2] in ("refused", "SecurityError")
    assert api.tab is lending


def test_the_command_lends_a_browser_of_its_own(dist: Path) -> None:
    command = [sys.executable, "build.py", "serve", "--api", "--no-open"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **pipes) as running:
        assert running.stdout
        try:
            lines = [running.stdout.readline() for _ in range(5)]
            url = re.fullmatch(r"Serving (http://127\.0\.0\.1:\d+/)\n", lines[0])
            key = re.fullmatch(r"API key: (\S+)\n", lines[2])
            assert url, lines
            assert key, lines
            assert lines[1] == f"API: {url[1]}v1\n"
            assert lines[4].startswith("Ready")
            client = openai.OpenAI(base_url=f"{url[1]}v1", api_key=key[1], max_retries=0, timeout=HANG_S)
            assert client.completions.create(model=MODEL, prompt="Once", max_tokens=2).choices
        finally:
            os.killpg(running.pid, signal.SIGINT)
            try:
                running.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
