"""Requests that are rejected: each error names the field and says what kind of error it is."""

from typing import Any

import pytest

from app.openai.requests import chat_request, completion_request
from app.openai.responses import responses_request
from py_engine.errors import CODES, WispError
from tests.support.openai_requests import HI, OTHER, TOOL, T, U, V, allowed, file, image, param_of

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
    ({"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]}, U, f"{PART}.file"),
    ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, T, f"{PART}.file"),
    ({"messages": [{"role": "user", "content": [file(data=5)]}]}, T, f"{PART}.file.file_data"),
    ({"messages": [{"role": "user", "content": [file(data="%")]}]}, V, f"{PART}.file.file_data"),
    ({"messages": [{"role": "user", "content": [file(b"%PDF-1.7")]}]}, U, f"{PART}.file"),
    ({"messages": [{"role": "user", "content": [file(b"\x89PNG\0")]}]}, U, f"{PART}.file"),
    ({"messages": [{"role": "system", "content": [file(b"x")]}]}, V, PART),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, T, f"{PART}.image_url.url"),
    ({"messages": [{"role": "user", "content": [image("ftp://x/y.png")]}]}, V, f"{PART}.image_url.url"),
    ({"messages": [{"role": "user", "content": [image("data:image/png;base64,%")]}]}, V, f"{PART}.image_url.url"),
    ({"messages": [{"role": "user", "content": [image("data:,x", detail="most")]}]}, V, f"{PART}.image_url.detail"),
    ({"messages": [{"role": "assistant", "content": [image("data:,x")]}]}, V, PART),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, T, f"{PART}.input_audio.data"),
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
    ("n", 0, V),
    ("n", 129, V),
    ("n", "1", T),
    ("n", True, T),
    ("presence_penalty", 3, V),
    ("presence_penalty", "x", T),
    ("frequency_penalty", -2.1, V),
    ("logit_bias", {"-1": 1}, V),
    ("logit_bias", {"5": 101}, V),
    ("logit_bias", {"5": "1"}, T),
    ("logit_bias", {"x": True}, T),
    ("logit_bias", [5], T),
    ("logprobs", 3, T),
    ("top_logprobs", 2, V),
    ("top_logprobs", 21, V),
    ("n_probs", 21, V),
    ("typical_p", 2, V),
    ("repeat_penalty", 0, V),
    ("repeat_last_n", -2, V),
    ("dry_multiplier", -1, V),
    ("dry_base", 0.5, V),
    ("dry_allowed_length", 0, V),
    ("dry_sequence_breakers", "x", T),
    ("dry_sequence_breakers", ["x" * 41], V),
    ("samplers", ["mirostat"], V),
    ("samplers", "kt", T),
    ("n_predict", -2, V),
    ("n_predict", "5", T),
    ("n_cmpl", 0, V),
    ("min_keep", 2, U),
    ("post_sampling_probs", True, U),
    ("add_generation_prompt", False, U),
    ("add_generation_prompt", 1, T),
    ("xtc_probability", 1.1, V),
    ("xtc_threshold", "x", T),
    ("ignore_eos", 1, T),
    ("cache_prompt", "no", T),
    ("truncation", "always", V),
    ("reasoning_effort", "huge", V),
    ("reasoning_effort", 1, T),
    ("tools", {}, T),
    ("tool_choice", "required", V),
    ("tool_choice", "any", V),
    ("tool_choice", 5, T),
    ("parallel_tool_calls", 1, T),
    ("response_format", "json", T),
    ("grammar", 5, T),
    ("regex", [], T),
    ("functions", [{}], U),
    ("modalities", ["audio"], U),
    ("mirostat", 2, U),
    ("mirostat", False, U),
    ("tfs_z", True, U),
    ("web_search_options", {}, U),
    ("temprature", 1, U),
    ("chat_template_kwargs", [], T),
    ("suffix", "x", U),
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


def test_an_answer_begins_or_continues() -> None:
    both = {"continue_final_message": True, "add_generation_prompt": True}
    said = {"messages": [*HI, {"role": "assistant", "content": "He"}]}
    assert param_of(chat_request, said | both) == (V, "add_generation_prompt")
    given = {"continue_final_message": True, "tools": [TOOL]}
    assert param_of(chat_request, said | given) == (U, "continue_final_message")


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


def test_bad_forms_and_tools_name_the_field() -> None:
    for body, code, param in (
        ({"response_format": {}}, T, "response_format.type"),
        ({"response_format": {"type": "xml"}}, V, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, T, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, T, "response_format.json_schema.schema"),
        ({"response_format": {"type": "regex"}}, T, "response_format.pattern"),
        ({"response_format": {"type": "json_object"}, "grammar": "x"}, V, "grammar"),
        ({"tools": [{"type": "web_search"}]}, V, "tools[0].type"),
        ({"tools": [TOOL, {"type": "function"}]}, T, "tools[1].function"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, V, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": 1}}]},
            T,
            "tools[0].function.parameters",
        ),
        ({"tools": [TOOL, TOOL]}, V, "tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "b"}}}, V, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {}}, T, "tool_choice.function.name"),
        ({"tools": [TOOL], "tool_choice": allowed("look")}, T, "tool_choice.allowed_tools.tools[0]"),
        ({"tools": [TOOL], "tool_choice": allowed(OTHER)}, V, "tool_choice.allowed_tools"),
        ({"tools": [TOOL], "tool_choice": "required", "regex": "a"}, V, "regex"),
    ):
        assert param_of(chat_request, {"messages": HI, **body}) == (code, param), body
    bad: list[tuple[Any, str, str]] = [
        ({"best_of": 3}, U, "best_of"),
        ({"echo": True, "logprobs": 1}, U, "echo"),
        ({"logprobs": True}, T, "logprobs"),
        ({"suffix": "x", "echo": True}, U, "echo"),
        ({"suffix": 5}, T, "suffix"),
    ]
    for body, code, param in bad:
        assert param_of(completion_request, {"prompt": "x", **body}) == (code, param), body


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (5, ""),
        ("x", ""),
        ({"text": "x"}, ""),
        (["x"], "[0]"),
        ([{"text": 5}], "[0].text"),
        ([{"text": []}], "[0].text"),
    ],
)
def test_reasoning_of_responses_is_checked(content: Any, param: str) -> None:
    with pytest.raises(WispError) as error:
        responses_request({"input": [{"type": "reasoning", "content": content}, {"role": "user", "content": "Hi"}]})
    assert (error.value.code, error.value.param) == ("invalid_type", f"input[0].content{param}")


@pytest.mark.parametrize("part", [None, "x", 5, [], True])
def test_a_part_of_an_item_that_is_no_object_is_named(part: Any) -> None:
    with pytest.raises(WispError, match="must be an object") as error:
        responses_request({"input": [{"role": "user", "content": [part]}]})
    assert (error.value.code, error.value.param) == ("invalid_type", "input[0].content[0]")
