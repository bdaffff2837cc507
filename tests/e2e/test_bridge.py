"""The official packages of Python against a page's engine: `serve --api`, its bridge, and a real tab."""

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ollama
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.browser import new_profile, watch
from tests.support.pdf_file import pdf
from tests.support.served_api import served_api
from tests.support.slow_engine import slowed
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
GREEDY = {"temperature": 0}


@pytest.fixture(scope="module")
def api(dist: Path) -> Iterator[ApiServer]:
    with served_api(dist) as running:
        running.tab_s = HANG_S  # a busy machine boots a page more slowly than a user's
        yield running


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


def test_pdf_files_pass_the_bridge(client: openai.OpenAI) -> None:
    line = "The Lumo Lamp costs 12 euros."

    def tokens(kind: str, data: bytes) -> int:
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        content: Any = [{"type": "file", "file": {"filename": "prices", "file_data": url}}]
        asked: list[ChatCompletionMessageParam] = [{"role": "user", "content": content}]
        answer = client.chat.completions.create(model=MODEL, messages=asked, max_tokens=1)
        assert answer.usage is not None
        return answer.usage.prompt_tokens

    assert tokens("application/pdf", pdf([[(line, 11, 80)]])) == tokens("text/plain", line.encode())


def test_errors_reach_the_client_with_their_status(client: openai.OpenAI, api: ApiServer) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=ITALY, temperature=9)
    assert (caught.value.param, caught.value.status_code) == ("temperature", 400)
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{api.url}v1", api_key="wrong", max_retries=0).models.list()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /v1/models", 200),  # with a body, which a page's GET cannot have
        ("TRACE /v1/models", 400),
        ("GET http://127.0.0.1:99999/v1/models", 400),
        ("M-SEARCH /v1/models", 405),
    ],
)
def test_requests_that_no_page_can_make_get_answers(page: Page, api: ApiServer, line: str, status: int) -> None:
    """And the tab stays connected: an end without a beginning would be nonsense."""
    before = api.tab
    head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1:{api.server_address[1]}\r\nAuthorization: Bearer {api.key}\r\n"
    with socket.create_connection(("127.0.0.1", api.server_address[1]), timeout=HANG_S) as connection:
        connection.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 %d " % status)
    assert api.tab is before


def test_anthropics_client(api: ApiServer, page: Page) -> None:
    import anthropic  # which takes two seconds in every process that collects the tests

    client = anthropic.Anthropic(base_url=api.url, api_key=api.key, max_retries=0, timeout=HANG_S)
    asked: list[Any] = [{"role": "user", "content": "What is the capital of Italy?"}]
    whole = client.messages.create(model=MODEL, max_tokens=40, messages=asked, extra_body=GREEDY)
    assert whole.stop_reason == "end_turn"
    assert isinstance(whole.content[0], anthropic.types.TextBlock)
    assert "Rome" in whole.content[0].text
    with client.messages.stream(model=MODEL, max_tokens=40, messages=asked, extra_body=GREEDY) as stream:
        assert "".join(stream.text_stream) == whole.content[0].text
        assert stream.get_final_message().usage.output_tokens == whole.usage.output_tokens
    counted = client.messages.count_tokens(model=MODEL, messages=asked).input_tokens
    assert counted == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)

    def tokens(source: dict[str, str]) -> int:
        asked: list[Any] = [{"role": "user", "content": [{"type": "document", "source": source}]}]
        return client.messages.count_tokens(model=MODEL, messages=asked).input_tokens

    in_base64 = base64.b64encode(pdf([[("The Lumo Lamp costs 12 euros.", 11, 100)]])).decode()
    read = tokens({"type": "base64", "media_type": "application/pdf", "data": in_base64})
    assert read == tokens({"type": "text", "media_type": "text/plain", "data": "The Lumo Lamp costs 12 euros."})
    function = TOOL["function"]
    tool: Any = {"name": function["name"], "input_schema": function["parameters"]}
    weather: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    called = client.messages.create(model=MODEL, max_tokens=60, messages=weather, tools=[tool], extra_body=GREEDY)
    assert called.stop_reason == "tool_use"
    assert [block.input for block in called.content if block.type == "tool_use"] == [{"city": "Paris"}]
    runner_tool = anthropic.beta_tool(
        lambda city: "", name=tool["name"], description="The weather.", input_schema=tool["input_schema"]
    )
    runner = client.beta.messages.tool_runner(  # begins with a thread
        model=MODEL, max_tokens=60, messages=weather, tools=[runner_tool], max_iterations=1, extra_body=GREEDY
    )
    assert runner.until_done().stop_reason == "tool_use"
    with pytest.raises(anthropic.BadRequestError, match="temperature"):
        client.messages.create(model=MODEL, max_tokens=40, messages=asked, extra_body={"temperature": 9})
    with pytest.raises(anthropic.AuthenticationError, match="API key"):
        client.with_options(api_key="wrong").messages.create(model=MODEL, max_tokens=4, messages=asked)


def test_ollamas_client(api: ApiServer, page: Page) -> None:
    client = ollama.Client(host=api.url, headers={"Authorization": f"Bearer {api.key}"}, timeout=HANG_S)
    whole = client.chat(MODEL, messages=ITALY, options=GREEDY)
    assert "Rome" in (whole.message.content or "")
    assert (whole.done_reason, whole.model) == ("stop", MODEL)
    parts = list(client.chat(MODEL, messages=ITALY, options=GREEDY, stream=True))
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert parts[-1].eval_count == whole.eval_count
    said = client.generate(MODEL, "What is the capital of Italy?", options=GREEDY)
    assert said.response == whole.message.content
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    (call,) = client.chat(MODEL, messages=asked, tools=[TOOL], options=GREEDY).message.tool_calls or []
    assert call.function.arguments == {"city": "Paris"}
    schema = TOOL["function"]["parameters"]
    form = client.chat(MODEL, messages=ITALY, format=schema, options=GREEDY).message.content
    assert set(json.loads(form or "")) == {"city"}
    vectors = client.embed(MODEL, ["Once upon a time", "Rome"]).embeddings
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-4 for vector in vectors)
    older = client.embeddings(MODEL, "Rome").embedding
    assert older == vectors[1]
    assert client.embeddings(MODEL, "").embedding == []
    assert client.generate(MODEL, "Hi", options={"temperature": 3, "num_predict": 4, "seed": 1}).response
    for change in (client.pull, client.push, client.delete, lambda name: client.copy(name, "other")):
        with pytest.raises(ollama.ResponseError, match="models come and go in Wisp's page") as refused:
            change(MODEL)
        assert refused.value.status_code == 501
    assert MODEL in [model.model for model in client.list().models]
    assert [model.model for model in client.ps().models] == [MODEL]
    assert (client.show(MODEL).modelinfo or {})["general.architecture"] == "llama"
    with pytest.raises(ollama.ResponseError, match="API key") as refused:
        ollama.Client(host=api.url).list()
    assert refused.value.status_code == 401
    with pytest.raises(ollama.ResponseError, match="top_p") as caught:
        client.chat(MODEL, messages=ITALY, options={"top_p": 9})
    assert caught.value.status_code == 400


def test_lm_studios_paths(api: ApiServer, page: Page) -> None:
    """With OpenAI's client, whose answers these are, too."""
    client = openai.OpenAI(base_url=f"{api.url}api/v0", api_key=api.key, max_retries=0, timeout=HANG_S)
    whole = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0)
    assert "Rome" in (whole.choices[0].message.content or "")
    assert whole.to_dict()["stats"]["stop_reason"] == "eosFound"  # type: ignore[index]
    stream = client.chat.completions.create(model=MODEL, messages=ITALY, temperature=0, stream=True)
    last = list(stream)[-1].to_dict()
    assert last["model_info"] == whole.to_dict()["model_info"]
    assert last["stats"]["generation_time"] >= last["stats"]["time_to_first_token"] > 0  # type: ignore[index]
    assert client.embeddings.create(model=MODEL, input="Rome").data
    assert client.models.retrieve(MODEL).to_dict()["state"] == "loaded"
    with pytest.raises(openai.NotFoundError, match="There is no model none") as missing:
        client.models.retrieve("none")
    assert missing.value.code == "model_not_found"
    newer_client = client.with_options(base_url=f"{api.url}api/v1")
    newer = newer_client.models.list()
    assert MODEL in [model.id for model in newer.data]
    assert MODEL in [model["key"] for model in newer.to_dict()["models"]]  # type: ignore[attr-defined]
    asked = {"model": MODEL, "echo_load_config": True}
    loaded: Any = newer_client.post("/models/load", body=asked, cast_to=object)
    assert (loaded["status"], loaded["instance_id"]) == ("loaded", MODEL)
    assert loaded["load_config"]["context_length"] == whole.to_dict()["model_info"]["context_length"]  # type: ignore[index]
    with pytest.raises(openai.APIStatusError, match="models come and go in Wisp's page") as no_download:
        newer_client.post("/models/download", body={"model": MODEL}, cast_to=object)
    assert no_download.value.status_code == 501
    for path in ("api/v0", "api/v1"):
        with pytest.raises(openai.AuthenticationError) as refused:
            openai.OpenAI(base_url=f"{api.url}{path}", api_key="wrong", max_retries=0).models.retrieve("none")
        assert refused.value.code == "invalid_api_key"


def test_a_model_that_lm_studios_client_unloads_is_loaded_again_by_name(api: ApiServer, page: Page) -> None:
    client = openai.OpenAI(base_url=f"{api.url}api/v1", api_key=api.key, max_retries=0, timeout=HANG_S)

    def instances() -> list[Any]:
        listed: Any = client.models.list().to_dict()
        return next(model["loaded_instances"] for model in listed["models"] if model["key"] == MODEL)

    asked: dict[str, Any] = {"model": MODEL, "messages": ITALY, "temperature": 0}
    chats = client.with_options(base_url=f"{api.url}v1").chat.completions
    before = chats.create(**asked).choices[0].message.content
    unloaded: Any = client.post("/models/unload", body={"instance_id": MODEL}, cast_to=object)
    assert unloaded == {"instance_id": MODEL}
    assert instances() == []
    assert chats.create(**asked).choices[0].message.content == before
    assert len(instances()) == 1
    page.reload()  # slowed() looks for the compute worker among those of a page's first engine
    assert chats.create(**asked).choices[0].message.content == before  # waits for the tab


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
    with slowed(page):
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
    with slowed(page):  # the reload comes before the answer's end
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
    context = new_profile(chromium(None))
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
