"""Anthropic's and Ollama's endpoints: what their requests become, their answers and their errors."""

from typing import Any

import pytest

from app.compatible import anthropic, ollama
from app.openai.fields import Json, parsed
from app.openai.requests import ChatRequest, CompletionRequest
from py_engine.errors import WispError
from tests.support.worker_page import HELLO, HI, Page

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}
TIMINGS = {"prompt_ms": 1.0, "predicted_ms": 2.0}
MESSAGE: dict[str, Any] = {"max_tokens": 60, "messages": HI}


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    return page


def chat_of(request: Json, read: Any) -> ChatRequest:
    made = read(request).request
    assert isinstance(made, ChatRequest)
    return made


# -- Anthropic


async def test_a_message_of_anthropic(page: Page) -> None:
    answer = await page.call("messages", request=MESSAGE)
    assert answer["content"] == [{"type": "text", "text": HELLO}]
    assert (answer["role"], answer["stop_reason"], answer["stop_sequence"]) == ("assistant", "end_turn", None)
    usage = answer["usage"]
    assert usage["cache_read_input_tokens"] == 3
    counted = await page.call("messages.countTokens", request={"messages": HI})
    assert usage["input_tokens"] + 3 == counted["input_tokens"]
    assert await page.code("messages.countTokens", request=MESSAGE | {"stream": True}) == "unsupported_parameter"
    short = await page.call("messages", request=MESSAGE | {"max_tokens": 2})
    assert (short["stop_reason"], short["usage"]["output_tokens"]) == ("max_tokens", 2)
    ended = await page.call("messages", request=MESSAGE | {"stop_sequences": [" can"]})
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", " can")


async def test_the_events_of_anthropic(page: Page) -> None:
    events = await page.stream("messages", **MESSAGE)
    assert [event["type"] for event in events[:2]] == ["message_start", "content_block_start"]
    counted = await page.call("messages.countTokens", request={"messages": HI})
    assert events[0]["message"]["usage"]["input_tokens"] == counted["input_tokens"]
    assert [event["type"] for event in events[-3:]] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta") == HELLO
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"]["output_tokens"] > 0


def test_events_of_thinking_and_of_calls() -> None:
    events: list[dict[str, Any]] = []
    made = anthropic.messages_request(MESSAGE)
    answer = made.answer("mini", events.append, _identity())
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    for delta in (
        {"reasoning_content": "Hm"},
        {"content": "Well"},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": "Rome"}'}}]},
    ):
        answer.chunk({"choices": [{"delta": delta, "finish_reason": None}]})
    answer.chunk({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    answer.chunk({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})
    assert answer.body["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Well"},
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Rome"}},
    ]
    assert answer.body["stop_reason"] == "tool_use"
    indices = [event["index"] for event in events if event["type"] == "content_block_start"]
    assert indices == [0, 1, 2]
    assert [event["index"] for event in events if event["type"] == "content_block_stop"] == indices


def test_a_conversation_of_anthropic_becomes_a_chat() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "Sunny"}]}
    request = chat_of(
        {
            "max_tokens": 9,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm", "signature": "x"},
                        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Rome"}},
                    ],
                },
                {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
            ],
            "tools": [{"name": "get_weather", "description": "The weather", "input_schema": PARAMETERS}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "thinking": {"type": "disabled"},
            "stop_sequences": [],
            "metadata": {"user_id": "me"},
        },
        anthropic.messages_request,
    )
    roles = [message["role"] for message in request.messages]
    assert roles == ["system", "user", "assistant", "tool", "user"]
    assert request.messages[1]["content"][1]["image_url"]["url"] == "data:image/png;base64,eA=="
    assert request.messages[2]["reasoning_content"] == "Hm"
    assert request.messages[2]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
    assert request.tools.required
    assert not request.tools.parallel
    assert (request.max_tokens, request.template_variables) == (9, {"enable_thinking": False})


def test_a_model_thinks_only_where_a_request_of_anthropic_says_so() -> None:
    def variables(**more: Json) -> dict[str, Json]:
        return chat_of(MESSAGE | more, anthropic.messages_request).template_variables

    assert variables() == {"enable_thinking": False}
    assert variables(thinking={"type": "enabled", "budget_tokens": 1024}) == {"enable_thinking": True}
    adaptive = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}
    assert variables(**adaptive) == {"enable_thinking": True, "reasoning_effort": "high"}
    assert variables(output_config={"effort": "low"}) == {"enable_thinking": False, "reasoning_effort": "low"}


def test_results_of_tools_of_anthropic() -> None:
    def result(**more: Json) -> Json:
        block = {"type": "tool_result", "tool_use_id": "call_1", **more}
        calls = [{"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {}}]
        talk = [*HI, {"role": "assistant", "content": calls}, {"role": "user", "content": [block]}]
        return chat_of({"max_tokens": 9, "messages": talk}, anthropic.messages_request).messages[-1]["content"]

    assert result(content="Rain") == "Rain"
    assert result() == ""
    assert result(content="No such city", is_error=True) == "Error: No such city"
    texts = [{"type": "text", "text": "No such city"}]
    assert [part["text"] for part in result(content=texts, is_error=True)] == ["Error:", "No such city"]


def test_search_results_of_anthropic_are_read_as_texts() -> None:
    block = {"type": "search_result", "source": "https://a.example", "title": "Log", "citations": {"enabled": False}}
    content = [block | {"content": [{"type": "text", "text": "It rains."}]}, {"type": "text", "text": "Why?"}]
    request = chat_of({"max_tokens": 9, "messages": [{"role": "user", "content": content}]}, anthropic.messages_request)
    assert request.messages[0]["content"][0]["text"] == "Log\nhttps://a.example:\nIt rains."


def test_requests_of_anthropic_may_have_many_stop_sequences() -> None:
    assert len(chat_of(MESSAGE | {"stop_sequences": list("abcdef")}, anthropic.messages_request).stop) == 6


def document(source: Json, **more: Json) -> Json:
    """A request about a document of Anthropic's."""
    block = {"type": "document", "source": source, **more}
    return {"max_tokens": 9, "messages": [{"role": "user", "content": [block, {"type": "text", "text": "Why?"}]}]}


TEXT = {"type": "text", "media_type": "text/plain", "data": "It rains."}
BASE64 = {"type": "base64", "media_type": "text/plain", "data": "SXQgcmFpbnMu"}


@pytest.mark.parametrize(
    ("source", "more", "found"),
    [
        (TEXT, {"citations": {"enabled": False}}, "It rains."),
        (BASE64, {"title": "Log", "context": "Of today"}, "Log\nOf today:\nIt rains."),
        ({"type": "content", "content": "It rains."}, {"title": "Log"}, "Log:\nIt rains."),
        (
            {"type": "content", "content": [{"type": "text", "text": "It"}, {"type": "text", "text": "rains."}]},
            {"cache_control": {"type": "ephemeral"}},
            "It\n\nrains.",
        ),
    ],
)
def test_documents_of_anthropic_are_read_as_texts(source: Json, more: dict[str, Json], found: str) -> None:
    content = chat_of(document(source, **more), anthropic.messages_request).messages[0]["content"]
    assert [part["text"] for part in content] == [found, "Why?"]
    assert content[0]["untrusted"] is True


@pytest.mark.parametrize(
    ("source", "more", "field"),
    [
        (TEXT, {"citations": {"enabled": True}}, "citations"),
        (TEXT, {"colour": "red"}, "colour"),
        ({"type": "url", "url": "https://a.example/b.pdf"}, {}, "source.type"),
        (5, {}, "source.type"),
        ({"type": "text"}, {}, "source.data"),
        ({"type": "content", "content": 5}, {}, "source.content"),
        ({"type": "content", "content": [{"type": "image"}]}, {}, "source.content[0].type"),
    ],
)
def test_documents_of_anthropic_that_cannot_be_read(source: Json, more: dict[str, Json], field: str) -> None:
    with pytest.raises(WispError) as error:
        anthropic.messages_request(document(source, **more))
    assert error.value.param == f"messages[0].content[0].{field}"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "server_tool_use"}]}]}, "messages[0].content[0].type"),
        ({"thinking": {"type": "much"}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"output_format": {"type": "json"}}, "output_format.type"),
        ({"stream": 1}, "stream"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_bad_requests_of_anthropic(change: Json, param: str) -> None:
    with pytest.raises(WispError) as error:
        anthropic.messages_request(MESSAGE | change)
    assert error.value.param == param


def test_calls_that_are_cut_off_have_no_arguments() -> None:
    """max_tokens may end an answer within the arguments of a call."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": "par'}}
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 7}, "timings": {"prompt_ms": 1.0, "predicted_ms": 2.0}}
    message = anthropic.messages_request(MESSAGE).answer("mini", None, _identity())
    answer = ollama.Answer("message", "mini", None, _identity())
    for one in (message, answer):
        one.chunk({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
        one.chunk({"choices": [{"delta": {}, "finish_reason": "length"}]})
        one.chunk({"choices": [], **usage})
    assert (message.body["stop_reason"], message.body["content"][0]["input"]) == ("max_tokens", {})
    assert answer.body["done_reason"] == "length"


def test_arguments_of_calls_that_are_nested_too_deep_are_not_parsed() -> None:
    """Python's parser would overflow WebAssembly's stack, which ends the engine."""
    assert parsed('{"a": ' + "[" * 50 + "]" * 50 + "}")["a"]
    assert parsed('{"a": ' + "[" * 99_999 + "]" * 99_999 + "}") == {}


@pytest.mark.parametrize("read", [anthropic.messages_request, ollama.chat])
def test_a_last_message_of_the_assistant_is_continued(read: Any) -> None:
    body = {"messages": [*HI, {"role": "assistant", "content": "It is"}]}
    request = chat_of(body | ({"max_tokens": 9} if read is anthropic.messages_request else {}), read)
    assert request.continued == "It is"
    assert [message["role"] for message in request.messages] == ["user"]


# -- Ollama


async def test_a_chat_of_ollama(page: Page) -> None:
    answer = await page.call("ollama.chat", request={"messages": HI, "model": "mini", "stream": False})
    assert answer["message"] == {"role": "assistant", "content": HELLO}
    assert (answer["done"], answer["done_reason"], answer["model"]) == (True, "stop", "mini")
    assert (answer["prompt_eval_duration"], answer["eval_duration"]) == (8_000_000, 20_000_000)
    chunks = await page.stream("ollama.chat", messages=HI)
    assert "".join(chunk["message"]["content"] for chunk in chunks) == HELLO
    assert [chunk["done"] for chunk in chunks[-2:]] == [False, True]
    assert chunks[-1]["eval_count"] == answer["eval_count"]


async def test_prompts_of_ollama(page: Page) -> None:
    answer = await page.call("ollama.generate", request={"prompt": "Hi", "stream": False})
    assert (answer["response"], answer["done"]) == (HELLO, True)
    asked = page.engine.prompts[-1]
    short = await page.call(
        "ollama.generate", request={"prompt": "Hi", "raw": True, "stream": False, "options": {"num_predict": 2}}
    )
    assert (short["eval_count"], short["done_reason"]) == (2, "length")
    assert len(page.engine.prompts[-1]) < len(asked)  # no template around it
    whole = await page.call("ollama.generate", request={"prompt": "Hi", "raw": True, "stream": False})
    assert whole["response"].strip() == HELLO


async def test_a_request_of_ollama_without_a_prompt_loads_the_model(page: Page) -> None:
    answer = await page.call("ollama.generate", request={"model": "mini", "stream": False})
    assert (answer["response"], answer["done_reason"]) == ("", "load")
    (chunk,) = await page.stream("ollama.chat", model="mini", messages=[])
    assert (chunk["message"]["content"], chunk["done"], chunk["done_reason"]) == ("", True, "load")
    assert await page.code("ollama.generate", request={"model": "none"}) == "model_not_found"


async def test_ollama_frees_the_memory_of_a_model_until_it_is_named_again(page: Page) -> None:
    answer = await page.call("ollama.generate", request={"model": "mini", "keep_alive": 0, "stream": False})
    assert (answer["model"], answer["response"], answer["done_reason"]) == ("mini", "", "unload")
    assert (await page.call("ollama.ps"))["models"] == []
    (again,) = await page.stream("ollama.chat", model="mini", messages=[], keep_alive="0s")
    assert again["done_reason"] == "unload"
    said = await page.call(
        "ollama.chat", request={"model": "mini", "messages": HI, "keep_alive": "5m", "stream": False}
    )
    assert said["message"]["content"] == HELLO
    assert await page.code("ollama.generate", request={"model": "none", "keep_alive": 0}) == "model_not_found"


async def test_names_of_models_may_have_ollamas_tag(page: Page) -> None:
    latest = {"model": "mini:latest", "stream": False}
    for kind, body in (("chat", {"messages": HI}), ("generate", {"prompt": "Hi"}), ("show", {})):
        assert await page.call(f"ollama.{kind}", request=latest | body), kind
    assert await page.code("ollama.show", request={"model": "mini:8b"}) == "model_not_found"


def test_log_probabilities_of_ollama() -> None:
    events: list[dict[str, Any]] = []
    request = chat_of({"messages": HI, "logprobs": True, "top_logprobs": 1}, ollama.chat)
    assert request.sampling.logprobs == 1
    answer = ollama.Answer("message", "mini", events.append, _identity())
    token = {"id": 7, "token": "x", "logprob": -0.5, "bytes": [120]}
    choice = {"delta": {"content": "x"}, "logprobs": {"content": [token | {"top_logprobs": [token]}]}}
    answer.chunk({"choices": [choice | {"finish_reason": None}]})
    answer.chunk({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}, "timings": TIMINGS})
    bare = {"token": "x", "logprob": -0.5, "bytes": [120]}
    assert answer.body["logprobs"] == events[0]["logprobs"] == [bare | {"top_logprobs": [bare]}]
    assert "logprobs" not in events[1]
    raw = ollama.generate({"prompt": "Hi", "raw": True, "logprobs": True}).request
    assert (raw.sampling.logprobs, isinstance(raw, CompletionRequest) and raw.detailed) == (0, True)


def test_options_of_ollama_that_change_nothing() -> None:
    options = {"mirostat": 0, "mirostat_tau": 5.0, "tfs_z": 1.0, "f16_kv": True, "penalize_newline": False, "seed": -1}
    request = chat_of({"messages": HI, "options": options | {"stop": list("abcdef")}, "shift": True}, ollama.chat)
    assert request.sampling == chat_of({"messages": HI}, ollama.chat).sampling
    assert (len(request.stop), request.truncate) == (6, True)
    assert not chat_of({"messages": HI, "truncate": False}, ollama.chat).truncate


async def test_the_models_of_ollama(page: Page) -> None:
    assert [model["name"] for model in (await page.call("ollama.tags"))["models"]] == ["mini"]
    assert [model["name"] for model in (await page.call("ollama.ps"))["models"]] == ["mini"]
    shown = await page.call("ollama.show", request={"model": "mini"})
    assert shown["model_info"]["general.architecture"] == "llama"
    assert shown["capabilities"] == ["completion", "tools"]
    assert shown["details"] == (await page.call("ollama.tags"))["models"][0]["details"]
    assert (shown["details"]["family"], shown["details"]["parameter_size"]) == ("llama", "8.92M")
    assert shown["model_info"]["general.parameter_count"] == 8_918_272
    assert "messages" in shown["template"]
    assert (await page.call("ollama.version"))["version"] == ollama.VERSION
    assert await page.code("ollama.show", request={"model": "none"}) == "model_not_found"


def test_a_conversation_of_ollama_becomes_a_chat() -> None:
    calls = [{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]
    request = chat_of(
        {
            "messages": [
                {"role": "user", "content": "What is it?", "images": ["eA=="]},
                {"role": "assistant", "content": "", "tool_calls": calls, "thinking": "Hm"},
                {"role": "tool", "content": "Sunny", "tool_name": "get_weather"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
            "format": PARAMETERS,
            "options": {"temperature": 0, "num_predict": -1, "num_ctx": 4096, "stop": ["x"]},
            "think": "low",
            "keep_alive": "5m",
        },
        ollama.chat,
    )
    assert request.messages[0]["content"][0]["image_url"]["url"] == "data:;base64,eA=="
    assert request.messages[1]["tool_calls"][0]["function"] == calls[0]["function"]
    assert (request.sampling.temperature, request.sampling.top_k, request.max_tokens) == (0, 40, None)
    assert request.format is not None
    assert request.template_variables == {"enable_thinking": True, "reasoning_effort": "low"}


def test_calls_of_ollama_have_their_arguments_as_objects() -> None:
    answer = ollama.Answer("message", "mini", None, _identity())
    call = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    answer.chunk({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
    answer.chunk({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    answer.chunk({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}, "timings": TIMINGS})
    called = {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Rome"}}}
    assert answer.body["message"]["tool_calls"] == [called]
    back = {"role": "assistant", "content": "", "tool_calls": [called]}
    said = {"role": "tool", "content": "Sunny", "tool_name": "get_weather", "tool_call_id": "call_1"}
    request = chat_of({"messages": [*HI, back, said]}, ollama.chat)
    (call,) = request.messages[1]["tool_calls"]
    assert (call["id"], call["function"]) == ("call_1", {"name": "get_weather", "arguments": {"city": "Rome"}})
    assert (request.messages[2]["name"], request.messages[2]["tool_call_id"]) == ("get_weather", "call_1")
    assert answer.body["total_duration"] == 3_000_000


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"messages": "Hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": HI, "options": {"mirostat": 1}}, "options.mirostat"),
        ({"messages": HI, "options": {"num_predict": "x"}}, "options.num_predict"),
        ({"messages": HI, "think": "much"}, "think"),
        ({"messages": HI, "format": "xml"}, "format"),
        ({"messages": HI, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HI, "options": {"nothing": 1}}, "options.nothing"),
        ({"messages": [{"role": "user", "content": "x", "images": "eA=="}]}, "messages[0].images"),
        ({"messages": HI, "prompt": "x"}, "prompt"),
    ],
)
def test_bad_chats_of_ollama(request_: Json, param: str) -> None:
    with pytest.raises(WispError) as error:
        ollama.chat(request_)
    assert error.value.param == param


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "raw": True, "system": "y"}, "raw"),
    ],
)
def test_bad_prompts_of_ollama(request_: Json, param: str) -> None:
    with pytest.raises(WispError) as error:
        ollama.generate(request_)
    assert error.value.param == param


def _identity() -> Any:
    from app.openai.answers import Identity

    return Identity.new()
