"""A diffusion model through the SDK and the HTTP endpoints: streams, seeds, aborts and refusals.

On the CPU; engine/test_parity.py has logits and what is filled in on WebGPU.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import new_profile
from tests.support.chat_page import ask, last_answer, new_chat, open_page, wait_ready
from tests.support.diffusion_cases import MODELS, runs
from tools.serve import Server

RUN = runs(next(path for path in MODELS if path.name == "llada.F16.gguf"))[1]  # in blocks of four tokens
SCRIPT = """async ({ prompt, options }) => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    await engine.load({ model: "/repo/tests/golden/diffusion/llada.F16.gguf", backend: "cpu" });
    const ask = { prompt, max_tokens: 12, temperature: 0, ...options };
    const whole = await engine.completions.create(ask);
    const streamed = { pieces: [] };
    const stream = { ...ask, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await engine.completions.create(stream)) {
        if (chunk.choices[0]?.text) streamed.pieces.push(chunk.choices[0].text);
        streamed.reason = chunk.choices[0]?.finish_reason ?? streamed.reason;
        streamed.usage = chunk.usage ?? streamed.usage;
    }
    const chat = { messages: [{ role: "user", content: "Hi" }], seed: 5, diffusion_steps: 8 };
    const texts = [];
    let usage;
    for (let i = 0; i < 2; i++) {
        const answer = await engine.chat.completions.create(chat);
        texts.push(answer.choices[0].message.content);
        ({ usage } = answer);
    }
    const stop = whole.choices[0].text.slice(3, 5);
    const stopped = await engine.completions.create({ ...ask, stop });
    const controller = new AbortController();
    const long = { ...ask, max_tokens: 200, diffusion_steps: 200, diffusion_block_length: 1, stream: true };
    const aborted = { pieces: 0, after: 0, again: undefined };
    for await (const chunk of await engine.completions.create({ ...long, signal: controller.signal })) {
        if (controller.signal.aborted) aborted.after++;
        if (chunk.choices[0]?.text && ++aborted.pieces === 2) controller.abort();
    }
    aborted.again = (await engine.completions.create(ask)).choices[0].text;
    const refused = async (body) => {
        const response = await engine.fetch("/v1/chat/completions", {
            method: "POST",
            body: JSON.stringify({ ...chat, model: undefined, ...body }),
        });
        const { error } = await response.json();
        return [response.status, error?.param, error?.code];
    };
    const tool = { type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } };
    const schema = { type: "json_schema", json_schema: { name: "n", schema: { type: "object" } } };
    const found = { whole, streamed, texts, usage, stop, stopped, aborted, refusals: {
        tools: await refused({ tools: [tool], tool_choice: "required" }),
        response_format: await refused({ response_format: schema }),
        grammar: await refused({ grammar: 'root ::= "a"' }),
        logprobs: await refused({ logprobs: true }),
        presence_penalty: await refused({ presence_penalty: 1 }),
        diffusion_steps: await refused({ diffusion_steps: 0 }),
    } };
    await engine.unload();
    return found;
}"""


@pytest.fixture(scope="module")
def answers(chromium: Callable[[str | None], Browser], server: Server) -> Any:
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    found = page.evaluate(SCRIPT, {"prompt": RUN.prompt, "options": RUN.options})
    context.close()
    return found


def test_completions(answers: Any) -> None:
    """The stream is the whole text, in pieces of final tokens; counts are those of the tokens."""
    whole, streamed = answers["whole"], answers["streamed"]
    assert whole["usage"]["prompt_tokens"] == len(RUN.prompt)
    assert whole["usage"]["completion_tokens"] == len(RUN.ids)
    assert whole["choices"][0]["finish_reason"] == streamed["reason"] == "length"
    assert "".join(streamed["pieces"]) == whole["choices"][0]["text"]
    assert 1 < len(streamed["pieces"]) <= len(RUN.ids)
    assert streamed["usage"]["completion_tokens"] == len(RUN.ids)


def test_stop_strings(answers: Any) -> None:
    choice, text = answers["stopped"]["choices"][0], answers["whole"]["choices"][0]["text"]
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == text[: text.index(answers["stop"])]


def test_chats(answers: Any) -> None:
    """A seed gives the same text; a request without a limit has the usual one."""
    first, second = answers["texts"]
    assert first == second
    assert first
    assert 0 < answers["usage"]["completion_tokens"] <= 128


def test_an_abort(answers: Any) -> None:
    """The stream ends, and the next request has the device."""
    assert answers["aborted"] == {"pieces": 2, "after": 0, "again": answers["whole"]["choices"][0]["text"]}


def test_refusals(answers: Any) -> None:
    """A 400 that names the parameter."""
    for param, (status, named, code) in answers["refusals"].items():
        assert status == 400
        assert named.startswith(param)
        assert code == ("invalid_value" if param == "diffusion_steps" else "unsupported_parameter")


def test_a_chat_in_the_page(chromium: Callable[[str | None], Browser], server: Server) -> None:
    """With the settings of other models; the same seed gives the same answer in a second chat."""
    context = new_profile(chromium("swiftshader"))
    page = open_page(context, server.url, settings={"seed": 7, "temperature": 0.8, "max_tokens": 24, "top_k": 40})
    page.click("#model-button")
    page.fill("#url-input", "/repo/tests/golden/diffusion/dream.F16.gguf")
    page.press("#url-input", "Enter")
    expect(page.locator("#model-name")).to_have_text("dream.F16")
    wait_ready(page)
    texts = []
    for _ in range(2):
        new_chat(page)
        texts.append(ask(page, "Hello"))
        expect(page.locator(".answer-error")).to_have_count(0)
        expect(last_answer(page)).to_be_visible()
    assert texts[0] == texts[1] != ""
    context.close()
