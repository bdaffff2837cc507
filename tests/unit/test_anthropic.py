"""Anthropic's endpoints: what their requests become, their answers and their errors."""

from typing import Any

import pytest

from app.compatible import anthropic, ollama
from app.openai.fields import Json, parsed
from app.openai.requests import ChatRequest
from py_engine.errors import WispError
from tests.support.worker_page import HELLO, HI, Page

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}
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


def test_a_tool_of_anthropic_has_its_fields_in_the_usual_order() -> None:
    """As OpenAI's clients send them: templates write a tool as it is, and models have learned this order."""
    tool = {"input_schema": PARAMETERS, "strict": True, "name": "look", "description": "Looks"}
    request = chat_of(MESSAGE | {"tools": [tool]}, anthropic.messages_request)
    function = {"name": "look", "description": "Looks", "parameters": PARAMETERS, "strict": True}
    assert list(request.tools.shown[0].definition["function"].items()) == list(function.items())


def test_a_model_thinks_only_where_a_request_of_anthropic_says_so() -> None:
    def variables(**more: Json) -> dict[str, Json]:
        return chat_of(MESSAGE | more, anthropic.messages_request).template_variables

    assert variables() == {"enable_thinking": False}
    assert variables(thinking={"type": "enabled", "budget_tokens": 1024}) == {"enable_thinking": True}
    adaptive = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}
    assert variables(**adaptive) == {"enable_thinking": True, "reasoning_effort": "max"}
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
        (TEXT, {"title": 5}, "title"),
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
        ({"thinking": {"type": 5}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"effort": 5}}, "output_config.effort"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
        ({"tool_choice": {"type": 5}}, "tool_choice.type"),
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


def _identity() -> Any:
    from app.openai.answers import Identity

    return Identity.new()
