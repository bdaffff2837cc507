"""Requests checked field by field, as OpenAI's reference has them."""

from typing import Any

import pytest

from app.openai import Answer, Usage, chat_request, completion_request
from py_engine.errors import CODES, WispError
from py_engine.sampling import Sampling

HI = [{"role": "user", "content": "Hi"}]


def test_defaults() -> None:
    request = chat_request({"messages": HI})
    assert request.sampling == Sampling()
    assert (request.max_tokens, request.stop, request.stream, request.include_usage) == (None, (), False, False)
    assert completion_request({"prompt": "x"}).max_tokens == 16


def test_everything_supported() -> None:
    request = chat_request(
        {
            "model": "any", "messages": HI, "stream": True, "stream_options": {"include_usage": True},
            "max_tokens": 5.0, "stop": ["a", "b"], "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.1,
            "seed": 7, "n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "logprobs": False,
            "tools": [], "response_format": {"type": "text"}, "user": "me", "metadata": {"a": "b"},
            "store": False, "chat_template_kwargs": {"enable_thinking": False}, "parallel_tool_calls": True,
            "tool_choice": "auto",
        }
    )  # fmt: skip
    assert request.sampling == Sampling(temperature=0, top_p=0.5, top_k=40, min_p=0.1, seed=7)
    assert (request.max_tokens, request.stop, request.stream, request.include_usage) == (5, ("a", "b"), True, True)
    assert request.template_variables == {"enable_thinking": False}


def test_nulls_are_absent() -> None:
    names = ["stop", "seed", "max_tokens", "temperature", "top_p", "tools", "response_format", "n", "stream_options"]
    assert chat_request({"messages": HI, **dict.fromkeys(names)}).sampling == Sampling()


def test_the_newer_limit_wins() -> None:
    assert chat_request({"messages": HI, "max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


T, V, U = "invalid_type", "invalid_value", "unsupported_parameter"
PART = "messages[0].content[0]"
BAD: list[tuple[Any, str, str | None]] = [
    (None, T, None),
    ([], T, None),
    ("hi", T, None),
    ({}, T, "messages"),
    ({"messages": "hi"}, T, "messages"),
    ({"messages": {}}, T, "messages"),
    ({"messages": []}, "empty_messages", "messages"),
    ({"messages": ["hi"]}, T, "messages[0]"),
    ({"messages": [{}]}, T, "messages[0].role"),
    ({"messages": [{"role": 3}]}, T, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": ""}]}, V, "messages[0].role"),
    ({"messages": [*HI, {"role": "user"}]}, T, "messages[1].content"),
    ({"messages": [{"role": "user", "content": 5}]}, T, "messages[0].content"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, T, PART),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, T, f"{PART}.text"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, V, f"{PART}.type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, U, PART),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": 1}]}, T, "messages[0].tool_calls"),
]
FIELDS: list[tuple[str, Any, str]] = [
    ("temperature", "hot", T),
    ("temperature", True, T),
    ("temperature", -0.1, V),
    ("temperature", 2.1, V),
    ("temperature", float("nan"), V),
    ("top_p", "1", T),
    ("top_p", 1.5, V),
    ("top_p", -1, V),
    ("top_k", 1.5, T),
    ("top_k", -2, V),
    ("min_p", 2, V),
    ("min_p", [], T),
    ("seed", "x", T),
    ("seed", 1.5, T),
    ("seed", 1 << 70, V),
    ("max_tokens", 0, V),
    ("max_tokens", -5, V),
    ("max_tokens", "5", T),
    ("max_tokens", 1.5, T),
    ("max_tokens", float("inf"), T),
    ("max_tokens", True, T),
    ("max_completion_tokens", 0, V),
    ("stop", 5, T),
    ("stop", ["a", 5], T),
    ("stop", "", V),
    ("stop", ["a", "b", "c", "d", "e"], V),
    ("stream", "yes", T),
    ("stream", 1, T),
    ("stream_options", {"include_usage": True}, V),
    ("n", 2, U),
    ("n", 0, V),
    ("n", "1", T),
    ("n", True, T),
    ("presence_penalty", 0.5, U),
    ("presence_penalty", 3, V),
    ("presence_penalty", "x", T),
    ("frequency_penalty", -1, U),
    ("logit_bias", {"5": 1}, U),
    ("logprobs", True, U),
    ("top_logprobs", 2, U),
    ("tools", [{"type": "function"}], U),
    ("tool_choice", "required", U),
    ("response_format", {"type": "json_object"}, U),
    ("functions", [{}], U),
    ("modalities", ["audio"], U),
    ("reasoning_effort", "low", U),
    ("repeat_penalty", 1.1, U),
    ("grammar", "root ::= x", U),
    ("typical_p", 0.5, U),
    ("ignore_eos", True, U),
    ("temprature", 1, U),
    ("chat_template_kwargs", [], T),
]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [*BAD, *[({"messages": HI, name: value}, code, name) for name, value, code in FIELDS]],
    ids=str,
)
def test_bad_chat_requests(body: Any, code: str, param: str | None) -> None:
    with pytest.raises(WispError) as error:
        chat_request(body)
    assert (error.value.code, error.value.param, error.value.type) == (code, param, "invalid_request_error")
    assert code in CODES
    assert error.value.as_dict()["error"]["message"]


def test_stream_options() -> None:
    body = {"messages": HI, "stream": True}
    for options, code, param in (
        (1, T, "stream_options"),
        ({"include_usage": 1}, T, "stream_options.include_usage"),
        ({"x": 1}, U, "stream_options.x"),
    ):
        with pytest.raises(WispError) as error:
            chat_request({**body, "stream_options": options})
        assert (error.value.code, error.value.param) == (code, param)


def test_completion_prompts() -> None:
    assert completion_request({"prompt": "x"}).prompt == "x"
    assert completion_request({"prompt": ["x"]}).prompt == "x"
    assert completion_request({"prompt": [1, 2.0]}).prompt == [1, 2]
    assert completion_request({"prompt": [[1, 2]]}).prompt == [1, 2]
    for prompt, code in (
        (None, T), (5, T), ({}, T), ([], V), ([-1], T), ([1.5], T), ([True], T), (["a", "b"], U), ([[1], [2]], U),
    ):  # fmt: skip
        with pytest.raises(WispError) as error:
            completion_request({"prompt": prompt})
        assert (error.value.code, error.value.param) == (code, "prompt"), prompt
    with pytest.raises(WispError) as error:
        completion_request({"prompt": "x", "messages": HI})
    assert error.value.param == "messages"


def test_answers_have_the_shapes_of_openai() -> None:
    from openai.types import Completion
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    usage = Usage(10, 5, cached_tokens=4, prompt_ms=12.0, predicted_ms=50.0, ttft_ms=13.0)
    answer = Answer("wisp", chat=True)
    whole = ChatCompletion.model_validate(answer.whole("Hello", "stop", usage), strict=True)
    assert whole.choices[0].message.content == "Hello"
    assert whole.usage is not None
    assert (whole.usage.total_tokens, whole.usage.prompt_tokens_details.cached_tokens) == (15, 4)  # type: ignore[union-attr]
    opening = answer.opening()
    chunks = [opening, answer.piece("He"), answer.closing("length", usage), answer.usage(usage)]
    parsed = [ChatCompletionChunk.model_validate(c, strict=True) for c in chunks]
    assert {c.id for c in parsed} == {whole.id}
    assert [c.choices[0].delta.content for c in parsed[:3]] == ["", "He", None]
    assert [c.choices[0].finish_reason for c in parsed[:3]] == [None, None, "length"]
    assert parsed[3].choices == []
    assert chunks[2]["timings"]["prompt_n"] == 6  # type: ignore[index]
    assert chunks[2]["timings"]["predicted_per_second"] == 80.0  # type: ignore[index]
    assert Usage(10, 3, prompt_ms=100.0, first_tokens=3).timings()["predicted_per_second"] == 30.0
    answer = Answer("wisp", chat=False)
    assert answer.opening() is None
    for c in (answer.whole("x", "stop", usage), answer.closing("stop", usage), answer.usage(usage)):
        Completion.model_validate(c)
    assert answer.piece("x")["choices"][0]["text"] == "x"
