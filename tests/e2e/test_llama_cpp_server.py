"""llama.cpp's real server as the page's upstream, with the page's own model: chat, tools, errors, a full context."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.chat_page import ask, last_answer, open_page, send, wait_answer
from tests.support.llama_server import llama_server
from tests.support.weather_tool import WEATHER_TOOL
from tools.paths import ROOT, STATIC
from tools.serve import Server

MODEL = STATIC / "models" / "wisp-mini-q4_0.gguf"
KEY = "sk-of-the-test"
CONTEXT = 256
ENGINE = "const engine = await (await import('/wisp.js')).Wisp.create();"
ASK = f"""async (request) => {{
  {ENGINE}
  const create = (more) => engine.chat.completions.create({{ temperature: 0, max_tokens: 40, ...request, ...more }});
  const whole = await create({{}});
  let text = "", usage, finish;
  const calls = [];
  const stream = await create({{ stream: true, stream_options: {{ include_usage: true }} }});
  for await (const {{ choices, usage: counted }} of stream) {{
    text += choices[0]?.delta.content ?? "";
    finish ??= choices[0]?.finish_reason ?? undefined;
    usage = counted ?? usage;
    for (const call of choices[0]?.delta.tool_calls ?? []) calls.push(call.function);
  }}
  return {{ whole, text, usage, finish, calls }};
}}"""
FAILURE = f"""async (request) => {{
  {ENGINE}
  const error = await engine.chat.completions.create(request).then(() => null, (error) => error);
  return error.error;
}}"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with llama_server(MODEL, CONTEXT, KEY) as url:
        yield url


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server, address: str) -> Page:
    """A page with the server as the upstream "llama", and its own copy of the model."""
    page = open_page(context, server.url)
    fields = {"name": "llama", "baseURL": address, "apiKey": KEY}
    about = page.evaluate(f"async (fields) => {{ {ENGINE} return engine.upstreams.set(fields); }}", fields)
    assert about["models"] == [f"llama/{MODEL.stem}"]
    return page


def question(text: str, model: str = f"llama/{MODEL.stem}") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}]}


def test_it_answers_as_the_pages_own_model_does(page: Page) -> None:
    there = page.evaluate(ASK, question("What is the capital of Italy?"))
    here = page.evaluate(ASK, question("What is the capital of Italy?", MODEL.stem))
    assert there["text"] == there["whole"]["choices"][0]["message"]["content"] == here["text"]
    assert "Rome" in there["text"]
    assert (there["finish"], there["usage"]["completion_tokens"]) == ("stop", here["usage"]["completion_tokens"])
    assert there["whole"]["model"] == f"llama/{MODEL.stem}"


def test_it_calls_functions(page: Page) -> None:
    got = page.evaluate(ASK, question("What is the weather in Paris?") | {"tools": [WEATHER_TOOL]})
    (call,) = got["whole"]["choices"][0]["message"]["tool_calls"]
    streamed = {name: "".join(part.get(name) or "" for part in got["calls"]) for name in ("name", "arguments")}
    for function in (call["function"], streamed):
        assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"city": "Paris"})
    assert got["finish"] == "tool_calls"


def test_its_errors_keep_their_meaning(page: Page, address: str) -> None:
    long = page.evaluate(FAILURE, question("Hi there. " * CONTEXT))
    assert long["type"] == "invalid_request_error"
    assert re.match(r"llama: .* exceeds the available context size", long["message"])
    assert (long["code"], long["n_ctx"]) == ("context_length_exceeded", CONTEXT)
    assert long["n_prompt_tokens"] > CONTEXT
    fields = {"name": "locked", "baseURL": address, "apiKey": "wrong"}
    page.evaluate(f"async (fields) => {{ {ENGINE} return engine.upstreams.set(fields); }}", fields)
    refused = page.evaluate(FAILURE, question("Hi", f"locked/{MODEL.stem}"))
    assert refused["type"] == "authentication_error"
    page.evaluate(f"async () => {{ {ENGINE} return engine.upstreams.remove('locked'); }}")


def test_a_chat_longer_than_its_context_goes_on(page: Page) -> None:
    """The page does not know the context: it leaves out older turns when the server refuses."""
    page.click("#model-button")
    page.locator("#upstream-list .model").click()
    expect(page.locator("#model-badge")).to_have_text("llama")
    assert "Rome" in ask(page, "What is the capital of Italy?")
    for _ in range(4):
        send(page, "Write a short story about a dragon named Ember who finds a silver key.")
        wait_answer(page)
    expect(page.locator("#thread .answer-error")).to_have_count(0)
    expect(page.locator("#thread .not-sent")).to_have_count(1)
    expect(last_answer(page).locator(".badge.away")).to_contain_text("llama")


def test_the_bench_measures_it_beside_wisp(dist: Path, address: str, tmp_path: Path) -> None:
    tiny = ["--prompts", "16", "--tokens", "8", "--requests", "2", "--runs", "1", "--backend", "cpu"]
    server = ["--server", address.removesuffix("/v1"), "--model", str(MODEL)]
    command = [sys.executable, "-m", "bench.native", *server, *tiny]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert refused.returncode == 1
    assert "bench.native: The server answered 401" in refused.stderr
    figures = tmp_path / "figures.json"
    command += ["--key", KEY, "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    cases = ["prefill 16", "decode at 16", "2 requests"]
    assert [line.rsplit(maxsplit=3)[0] for line in done.stdout.splitlines()[4:]] == cases
    speeds = json.loads(figures.read_text())["tokens_per_second"]  # the table rounds: a ratio may be 0.00
    assert list(speeds) == cases
    assert all(speeds[case][side] > 0 for case in cases for side in ("native", "wisp"))
