# ruff: noqa: E501
"""The official openai client, unmodified, on a page whose engine is its server."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.openai_client import client_path
from tools.serve import Server

SET_UP = """async (client) => {
  const { Wisp } = await import("/wisp.js");
  const { default: OpenAI } = await import(client);
  const engine = await Wisp.create();
  await engine.load({ backend: "cpu" });
  const options = { baseURL: `${location.origin}/v1`, apiKey: "none", dangerouslyAllowBrowser: true, maxRetries: 0 };
  const openai = new OpenAI({ ...options, fetch: engine.fetch });
  const ask = (content, more = {}) => ({ model: "wisp-mini-q4_0", temperature: 0, messages: [{ role: "user", content }], ...more });
  const failure = async (promise) => {
    try { await promise; return null; }
    catch (error) {
      const { status, code, param, type } = error;
      const name = Object.keys(OpenAI).find((key) => OpenAI[key] === error.constructor);
      return { name, status, code, param, type };
    }
  };
  const read = async (stream) => { const all = []; for await (const chunk of stream) all.push(chunk); return all; };
  Object.assign(globalThis, { engine, openai, ask, failure, read });
}"""
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 30}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather of a city", "parameters": WEATHER},
    }
]
PARIS = "What is the weather in Paris?"
ITALY = "What is the capital of Italy?"
STORY = "Write a short story about a dragon named Ember who finds a silver key."


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with `openai`, the client, and `ask`, which makes greedy requests, on the CPU."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP, client_path())
    yield page
    context.close()


def run(page: Page, code: str, **given: Any) -> Any:
    """The value of an async function body; `given` are its variables."""
    return page.evaluate(f"async ({{{', '.join(given)}}}) => {{ {code} }}", given)


def test_chat_whole_and_streamed(page: Page) -> None:
    whole, chunks = run(
        page,
        """const whole = await openai.chat.completions.create(ask(question));
        const stream = await openai.chat.completions.create(
            ask(question, { stream: true, stream_options: { include_usage: true } }));
        return [whole, await read(stream)];""",
        question=ITALY,
    )
    assert "Rome" in whole["choices"][0]["message"]["content"]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "stop"


def test_tools_round_trip(page: Page) -> None:
    first, last = run(
        page,
        """const request = ask(question, { tools });
        const first = await openai.chat.completions.create(request);
        const [call] = first.choices[0].message.tool_calls;
        request.messages.push(first.choices[0].message,
            { role: "tool", tool_call_id: call.id, content: JSON.stringify({ temperature: 21, sky: "clear" }) });
        return [first, await openai.chat.completions.create({ ...request, max_tokens: 60 })];""",
        question=PARIS,
        tools=TOOLS,
    )
    choice = first["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert json.loads(call["function"]["arguments"]) == {"city": "Paris"}
    assert last["choices"][0]["finish_reason"] in ("stop", "length")
    assert last["choices"][0]["message"]["content"]


def test_tool_calls_streamed(page: Page) -> None:
    """The deltas that the client accumulates equal the whole answer."""
    snapshot, pieces = run(
        page,
        """const stream = openai.chat.completions.stream(ask(question, { tools, tool_choice: "required" }));
        let pieces = 0;
        stream.on("tool_calls.function.arguments.delta", () => pieces++);
        const chunks = await read(stream);
        const parts = chunks.filter((c) => c.choices[0]?.delta?.tool_calls).length;
        return [await stream.finalChatCompletion(), parts];""",
        question=PARIS,
        tools=TOOLS,
    )
    assert json.loads(snapshot["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}
    assert pieces > 2  # the name, and arguments in several pieces


def test_json_schema(page: Page) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"},
            "kind": {"enum": ["city", "country", "river"]},
            "sizes": {
                "type": "array",
                "items": {"type": "integer", "minimum": 1, "maximum": 9},
                "minItems": 2,
                "maxItems": 3,
            },
        },
        "required": ["name", "kind", "sizes"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": schema}}
    answers = run(
        page,
        """const whole = await openai.chat.completions.create(ask(question, { response_format: form }));
        const hot = await openai.chat.completions.create(
            ask(question, { response_format: form, temperature: 2, seed: 3, n: 3, max_tokens: 200 }));
        return [whole, hot];""",
        question=ITALY,
        form=form,
    )
    from jsonschema import Draft202012Validator

    judge = Draft202012Validator(schema)
    choices = [choice for answer in answers for choice in answer["choices"]]
    assert len(choices) == 4
    for choice in choices:
        judge.validate(json.loads(choice["message"]["content"]))
        assert choice["finish_reason"] == "stop"
    assert len({choice["message"]["content"] for choice in choices[1:]}) > 1
    text = choices[0]["message"]["content"]
    held = run(page, "return engine.validate({ response_format: form }, text);", form=form, text=text)
    assert held == {"accepted": True, "complete": True}
    part = run(page, "return engine.validate({ response_format: form }, text);", form=form, text=text[:12])
    assert part == {"accepted": True, "complete": False}
    other = run(page, "return engine.validate({ response_format: form }, text);", form=form, text=text + "!")
    assert other == {"accepted": False, "complete": False}


def test_an_answer_in_a_form_continues_its_beginning(page: Page) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    rest, error = run(
        page,
        """const messages = (content) => [{ role: "user", content: question }, { role: "assistant", content }];
        const begun = (content) => ask(question, { messages: messages(content), continue_final_message: true,
                                                   response_format: form });
        return [await openai.chat.completions.create(begun('{"city": ')),
                await failure(openai.chat.completions.create(begun("The capital")))];""",
        question=ITALY,
        form=form,
    )
    assert json.loads('{"city": ' + rest["choices"][0]["message"]["content"]) == {"city": "Rome"}
    assert (error["status"], error["param"]) == (400, "continue_final_message")


def test_regex_and_grammar(page: Page) -> None:
    answers = run(
        page,
        """const text = async (more) => (await openai.chat.completions.create(ask(question, more))).choices[0].message.content;
        return [await text({ regex: "(Rome|Paris), [0-9]{4}" }), await text({ grammar: 'root ::= "It is " [A-Z] [a-z]+ "!"' }),
            (await openai.completions.create({ prompt: "Once", max_tokens: 30, temperature: 0, regex: "[a-c]{5}" })).choices[0]];""",
        question=ITALY,
    )
    assert answers[0][:6] in ("Rome, ", "Paris,")
    assert answers[1].startswith("It is ")
    assert answers[1].endswith("!")
    assert len(answers[2]["text"]) == 5
    assert answers[2]["finish_reason"] == "stop"


def test_logprobs_bias_and_several_answers(page: Page) -> None:
    banned, several, again, stopped = run(
        page,
        """const create = (more) => openai.chat.completions.create(ask(question, more));
        const [token] = await engine.tokenize("The");
        const sampled = { n: 2, seed: 5, temperature: 2, max_tokens: 16, messages: [{ role: "user", content: story }] };
        return [await create({ logit_bias: { [token]: -100 }, logprobs: true, top_logprobs: 2, max_tokens: 6 }),
            await create(sampled), await create(sampled), await create({ stop: [" is"], logprobs: true })];""",
        question=ITALY,
        story=STORY,
    )
    entries = banned["choices"][0]["logprobs"]["content"]
    assert not banned["choices"][0]["message"]["content"].startswith("The")
    assert "".join(e["token"] for e in entries) == banned["choices"][0]["message"]["content"]
    assert all(
        len(e["top_logprobs"]) == 2 and e["logprob"] <= 0 and bytes(e["bytes"]).decode() == e["token"] for e in entries
    )
    assert [choice["index"] for choice in several["choices"]] == [0, 1]
    texts = [choice["message"]["content"] for choice in several["choices"]]
    assert texts == [choice["message"]["content"] for choice in again["choices"]]
    assert texts[0] != texts[1]
    said = stopped["choices"][0]
    assert (
        "".join(e["token"] for e in said["logprobs"]["content"]) == said["message"]["content"] == "The capital of Italy"
    )


def test_errors_are_the_clients_own_classes(page: Page) -> None:
    for code, name, status, param in (
        ("openai.chat.completions.create(ask('Hi', { temperature: 9 }))", "BadRequestError", 400, "temperature"),
        ("openai.chat.completions.create(ask('Hi', { stream: true, n: 0 }))", "BadRequestError", 400, "n"),
        ("openai.chat.completions.create({ model: 'x', messages: [] })", "BadRequestError", 400, "messages"),
        ("openai.models.retrieve('no-such-model')", "NotFoundError", 404, "model"),
        ("openai.images.generate({ prompt: 'x' })", "NotFoundError", 404, None),
    ):
        error = run(page, f"return failure({code});")
        assert (error["name"], error["status"], error["param"]) == (name, status, param), code
    unique = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}
    error = run(
        page, "return failure(openai.chat.completions.create(ask('Hi', { response_format })));", response_format=unique
    )
    assert (error["status"], error["param"]) == (400, "response_format.json_schema.schema.uniqueItems")
    assert run(page, "return (await engine.fetch('/v1/chat/completions')).status;") == 405
    assert (
        run(page, "return (await engine.fetch('/v1/chat/completions', { method: 'POST', body: '{' })).status;") == 400
    )


def test_an_abort_ends_the_answer_and_the_engine_goes_on(page: Page) -> None:
    name, count, then = run(
        page,
        """const controller = new AbortController();
        setTimeout(() => controller.abort(), 50);
        const long = { max_tokens: 1500, ignore_eos: true }; // a busy page may be late
        const failed = await failure(openai.chat.completions.create(ask(story, long), { signal: controller.signal }));
        const stream = await openai.chat.completions.create(ask(story, { ...long, stream: true }));
        let count = 0;
        for await (const chunk of stream) if (chunk.choices[0].delta.content && ++count === 3) stream.controller.abort();
        const answer = await openai.chat.completions.create(ask(question));
        return [failed.name, count, answer.choices[0].message.content];""",
        story=STORY,
        question=ITALY,
    )
    assert (name, count) == ("APIUserAbortError", 3)
    assert "Rome" in then


def test_responses(page: Page) -> None:
    whole, events, calls, back = run(
        page,
        """const input = question, model = "wisp-mini-q4_0", temperature = 0;
        const whole = await openai.responses.create({ model, input, temperature });
        const events = await read(await openai.responses.create({ model, input, temperature, stream: true }));
        const tool = { type: "function", name: "get_weather", parameters: weather, strict: true };
        const asked = [{ role: "user", content: paris }];
        const calls = await openai.responses.create({ model, input: asked, temperature, tools: [tool] });
        const [call] = calls.output;
        const back = await openai.responses.create({ model, temperature, tools: [tool], max_output_tokens: 20, input: [
            ...asked, call, { type: "function_call_output", call_id: call.call_id, output: "sunny" }] });
        return [whole, events, calls, back];""",
        question=ITALY,
        paris=PARIS,
        weather=WEATHER,
    )
    assert "Rome" in whole["output_text"]
    assert whole["status"] == "completed"
    kinds = [event["type"] for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == whole["output_text"] == events[-1]["response"]["output"][0]["content"][0]["text"]
    (call,) = calls["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "get_weather",
        {"city": "Paris"},
    )
    assert back["output"]
    assert back["usage"]["output_tokens"] <= 20


def test_completions_and_models(page: Page) -> None:
    answer, models = run(
        page,
        """const prompt = ["Once upon a time", "The"];
        const answer = await openai.completions.create({ model: "wisp-mini-q4_0", prompt, n: 2, max_tokens: 4, echo: true, temperature: 1, seed: 1 });
        return [answer, (await openai.models.list()).data.map((model) => model.id)];""",
    )
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [choice["text"][:4] for choice in answer["choices"]] == ["Once", "Once", "The ", "The "] or all(
        choice["text"].startswith(("Once upon a time", "The")) for choice in answer["choices"]
    )
    assert "wisp-mini-q4_0" in models


def test_forms_and_tools_on_webgpu(chromium: Callable[[str | None], Browser], server: Server) -> None:
    """With masks, the GPU's sampler gives the greedy answers of the CPU."""
    context = new_profile(chromium("lavapipe-optimized"))  # Wisp Mini answers: it runs more than it compiles
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{server.url}tests/blank.html")
    call, text, held = page.evaluate(
        """async ([question, paris, tools]) => {
            const engine = await (await import("/wisp.js")).Wisp.create();
            await engine.load({ backend: "webgpu", contextLength: 512 });
            const ask = async (content, more) => (await engine.chat.completions.create(
                { messages: [{ role: "user", content }], temperature: 0, ...more })).choices[0];
            const called = await ask(paris, { tools, tool_choice: "required" });
            const regex = "(Rome|Paris), [0-9]{2}";
            const hot = await ask(question, { regex, temperature: 1.5, seed: 2, logprobs: true });
            return [called.message.tool_calls[0].function, hot.message.content, hot.logprobs.content.length];
        }""",
        [ITALY, PARIS, TOOLS],
    )
    context.close()
    assert json.loads(call["arguments"]) == {"city": "Paris"}
    assert len(text) == len("Rome, 12") + (text[0] == "P")
    assert held > 2


def test_embeddings(page: Page) -> None:
    """A text-generating model embeds with its last token. The client requests base64 and decodes it itself."""
    whole, short, error = run(
        page,
        """const model = "wisp-mini-q4_0";
        const whole = await openai.embeddings.create({ model, input: ["Once upon a time", "The capital of Italy"] });
        const short = await openai.embeddings.create({ model, input: "Once upon a time", dimensions: 4, encoding_format: "float" });
        return [whole, short, await failure(openai.embeddings.create({ model, input: "" }))];""",
    )
    first, second = (d["embedding"] for d in whole["data"])
    assert abs(sum(x * x for x in first) - 1) < 1e-4
    assert sum(a * b for a, b in zip(first, second, strict=True)) < 0.999, "they say different things"
    scale = sum(x * x for x in first[:4]) ** 0.5
    assert short["data"][0]["embedding"] == pytest.approx([x / scale for x in first[:4]], abs=1e-4)
    assert whole["usage"]["prompt_tokens"] > short["usage"]["prompt_tokens"] > 0
    assert error == {
        "name": "BadRequestError",
        "status": 400,
        "code": "invalid_value",
        "param": "input",
        "type": "invalid_request_error",
    }


def test_an_agent_of_the_sdk_calls_a_tool_and_answers(page: Page) -> None:
    found = page.evaluate(
        """async ([tool, content]) => {
          const events = [];
          const run = ({ city }) => ({ city, sky: "sunny" });
          const tools = [{ ...tool, run }], messages = [{ role: "user", content }];
          const result = await engine.agents.run(
            { messages, tools, temperature: 0, max_tokens: 60, maxTurns: 3, onEvent: (event) => events.push(event) });
          return { result, events };
        }""",
        [TOOLS[0], PARIS],
    )
    call, result = (next(e for e in found["events"] if e["type"] == kind) for kind in ("call", "result"))
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Paris"})
    assert json.loads(result["content"]) == {"city": "Paris", "sky": "sunny"}
    messages = found["result"]["messages"]
    assert [message["role"] for message in messages[:3]] == ["user", "assistant", "tool"]
    assert messages[-1]["content"]
    assert found["result"]["turns"] <= 3
