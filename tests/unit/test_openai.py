"""Requests checked field by field against OpenAI's reference."""

import base64
from typing import Any

import pytest

from app.openai.media import parts_of, with_markers
from app.openai.messages import PromptWithMedia
from app.openai.requests import ChatRequest, chat_request, completion_request
from app.openai.responses import responses_request
from py_engine.errors import CODES, WispError
from py_engine.plan.sampling import Sampling

HI = [{"role": "user", "content": "Hi"}]
SOUND = {"data": "YWJj", "format": "wav"}


def image(url: str, **more: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def file(content: bytes = b"", data: Any = None, **fields: Any) -> dict[str, Any]:
    """A part with a file."""
    encoded = f"data:text/plain;base64,{base64.b64encode(content).decode()}"
    return {"type": "file", "file": {"file_data": encoded if data is None else data, **fields}}


def test_defaults() -> None:
    request = chat_request({"messages": HI})
    assert request.sampling == Sampling()
    assert (request.max_tokens, request.stop, request.stream, request.include_usage) == (None, (), False, False)
    assert completion_request({"prompt": "x"}).max_tokens == 16


def test_the_highest_effort_is_the_templates_highest() -> None:
    asked = chat_request({"messages": HI, "reasoning_effort": "max"})
    assert asked.template_variables == {"enable_thinking": True, "reasoning_effort": "high"}


def test_refusals_and_original_pictures_come_back_from_clients() -> None:
    said = {"role": "assistant", "content": [{"type": "text", "text": "So:"}, {"type": "refusal", "refusal": "No."}]}
    seen = {"role": "user", "content": [image("data:,x", detail="original")]}
    want = [{"type": "text", "text": "So:"}, {"type": "text", "text": "No."}]
    assert [m["content"] for m in chat_request({"messages": [said, seen]}).messages] == [want, seen["content"]]
    asked = responses_request({"input": [said]}).request
    assert isinstance(asked, ChatRequest)
    assert asked.messages[0]["content"] == want


def test_everything_supported() -> None:
    request = chat_request(
        {
            "model": "any", "messages": HI, "stream": True, "stream_options": {"include_usage": True},
            "max_tokens": 5.0, "stop": ["a", "b"], "temperature": 0, "top_p": 0.5, "top_k": 40, "min_p": 0.1,
            "seed": 7, "n": 3, "presence_penalty": 0.5, "frequency_penalty": -1, "logit_bias": {"5": -100, "6": 1.5},
            "logprobs": True, "top_logprobs": 3, "typical_p": 0.9, "repeat_penalty": 1.1, "repeat_last_n": -1,
            "dry_multiplier": 0.8, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 100,
            "dry_sequence_breakers": ["x"], "xtc_probability": 0.5, "xtc_threshold": 0.2, "ignore_eos": True,
            "cache_prompt": False, "truncation": "auto", "user": "me", "metadata": {"a": "b"}, "store": False,
            "reasoning_effort": "none", "chat_template_kwargs": {"x": 1}, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "response_format": {"type": "text"}, "verbosity": "medium",
            "prompt_cache_options": {"mode": "implicit"},
        }
    )  # fmt: skip
    assert request.sampling == Sampling(
        temperature=0, top_p=0.5, top_k=40, min_p=0.1, seed=7, presence_penalty=0.5, frequency_penalty=-1.0,
        logit_bias=((5, -100.0), (6, 1.5)), logprobs=3, typical_p=0.9, repeat_penalty=1.1, repeat_last_n=-1,
        dry_multiplier=0.8, dry_base=2, dry_allowed_length=3, dry_penalty_last_n=100, xtc_probability=0.5,
        xtc_threshold=0.2,
    )  # fmt: skip
    assert request.text_parameters.dry_breakers == ("x",)
    assert (request.max_tokens, request.stop, request.stream, request.include_usage) == (5, ("a", "b"), True, True)
    assert (request.n, request.ignore_eos, request.cache_prompt, request.truncate) == (3, True, False, True)
    assert request.template_variables == {"enable_thinking": False, "reasoning_effort": "low", "x": 1}


def test_llama_cpps_parameters() -> None:
    request = chat_request({"messages": HI, "logit_bias": [[5, 1], ["no", False]], "n_probs": 4, "dry_multiplier": 1})
    assert request.sampling.logit_bias == ((5, 1.0),)
    assert request.text_parameters.logit_bias == (("no", -100.0),)
    assert request.text_parameters.dry_breakers == ("\n", ":", '"', "*")
    assert request.sampling.logprobs == 4
    assert completion_request({"prompt": "x", "logprobs": 0}).sampling.logprobs == 0
    assert completion_request({"prompt": "x", "n": 2, "best_of": 2, "echo": True}).echo
    assert chat_request({"messages": HI, "json_schema": {"type": "null"}}).format.kind == "json_schema"  # type: ignore[union-attr]


def test_forms() -> None:
    schema = {"type": "object"}
    for given, kind, value, strict in (
        ({"type": "json_object"}, "json_object", None, False),
        ({"type": "json_object", "schema": schema}, "json_schema", schema, False),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
            "json_schema",
            schema,
            True,
        ),
        ({"type": "regex", "pattern": "a+"}, "regex", "a+", False),
        ({"type": "grammar", "grammar": "root ::= x"}, "grammar", "root ::= x", False),
        ({"type": "structural_tag", "format": {"type": "any_text"}}, "structural_tag", {"type": "any_text"}, False),
    ):
        form = chat_request({"messages": HI, "response_format": given}).format
        assert form is not None
        assert (form.kind, form.value, form.strict) == (kind, value, strict)


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "other"}}


def allowed(*tools: Any) -> dict[str, Any]:
    """A choice among some of the tools."""
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": list(tools)}}


def test_tool_choices() -> None:
    for choice, names, required, parallel in (
        (None, ["look", "other"], False, True),
        ("auto", ["look", "other"], False, True),
        ("required", ["look", "other"], True, True),
        ("none", [], False, True),
        ({"type": "function", "function": {"name": "other"}}, ["other"], True, False),
        (allowed(TOOL), ["look"], True, True),
    ):
        tools = chat_request({"messages": HI, "tools": [TOOL, OTHER], "tool_choice": choice}).tools
        assert ([t.name for t in tools.tools], tools.required, tools.parallel) == (names, required, parallel), choice
        assert [t.name for t in tools.shown] == ["look", "other"]
    assert tools.shown[1].definition["function"]["parameters"] == {"type": "object", "properties": {}}
    assert tools.shown[1].parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_nulls_are_absent() -> None:
    names = ["stop", "seed", "max_tokens", "temperature", "top_p", "tools", "response_format", "n", "stream_options"]
    assert chat_request({"messages": HI, **dict.fromkeys(names)}).sampling == Sampling()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Größe".encode(), "Größe"),
        (b"\xef\xbb\xbfa\r\nb\rc", "a\nb\nc"),
        (b"\xff\xfeG\0r\0\xf6\0", "Grö"),
        (b"Gr\xf6\xdfe", "Größe"),
    ],
)
def test_the_text_of_a_file(content: bytes, text: str) -> None:
    """It follows the file's name, and its special tokens are to be broken."""
    given = file(content, filename="notes.txt")
    got = chat_request({"messages": [{"role": "user", "content": [given, {"type": "text", "text": "Sum up."}]}]})
    assert got.messages[0]["content"][0] == {"type": "text", "text": f"notes.txt:\n{text}", "untrusted": True}
    part = {"type": "input_file", "filename": "notes.txt", "file_data": given["file"]["file_data"]}
    responses = responses_request({"input": [{"role": "user", "content": [part]}]}).request
    assert isinstance(responses, ChatRequest)
    assert responses.messages[0]["content"] == got.messages[0]["content"][:1]
    bare = file(data=base64.b64encode(content).decode())
    assert chat_request({"messages": [{"role": "user", "content": [bare]}]}).messages[0]["content"][0]["text"] == text


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
    ("logit_bias", {"x": 1}, V),
    ("logit_bias", {"5": 101}, V),
    ("logit_bias", {"5": "1"}, T),
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


def param_of(call: Any, body: Any) -> tuple[str, str | None]:
    with pytest.raises(WispError) as error:
        call(body)
    return error.value.code, error.value.param


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
        ({"suffix": "x"}, U, "suffix"),
    ]
    for body, code, param in bad:
        assert param_of(completion_request, {"prompt": "x", **body}) == (code, param), body


def test_completion_prompts() -> None:
    assert completion_request({"prompt": "x"}).prompts == ["x"]
    assert completion_request({"prompt": ["x", "y"]}).prompts == ["x", "y"]
    assert completion_request({"prompt": [1, 2.0]}).prompts == [[1, 2]]
    assert completion_request({"prompt": [[1, 2], [3]]}).prompts == [[1, 2], [3]]
    for prompt, code in ((None, T), (5, T), ([], V), ([-1], T), ([1.5], T), ([True], T)):
        assert param_of(completion_request, {"prompt": prompt}) == (code, "prompt"), prompt
    assert param_of(completion_request, {"prompt": "x", "messages": HI})[1] == "messages"
    assert len(completion_request({"prompt": ["x"] * 16, "n": 128}).prompts) == 16
    assert param_of(completion_request, {"prompt": ["x"] * 17, "n": 128}) == (V, "prompt")
    assert param_of(completion_request, {"prompt": [[]] * 2049}) == (V, "prompt")


def test_completion_prompts_with_media() -> None:
    """llama.cpp's form: a marker in the text for each file in Base64."""
    prompt = {"prompt_string": "a<__media__>b", "multimodal_data": ["eA=="]}
    for given in (prompt, [prompt]):
        (found,) = completion_request({"prompt": given}).prompts
        assert isinstance(found, PromptWithMedia)
        assert (found.text, found.media[0].data) == ("a<__media__>b", b"x")
    for wrong, code, param in (
        ({}, T, "prompt.prompt_string"),
        ({**prompt, "multimodal_data": []}, V, "prompt"),
        ({**prompt, "multimodal_data": ["?"]}, V, "prompt.multimodal_data[0]"),
        ({**prompt, "multimodal_data": [5]}, T, "prompt.multimodal_data"),
    ):
        assert param_of(completion_request, {"prompt": wrong}) == (code, param), wrong


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


def test_media_in_messages() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [image("data:image/png;base64,eHl6"), {"type": "text", "text": "What is it?"}]},
        {"role": "user", "content": [image("blob:https://wisp/1"), {"type": "input_audio", "input_audio": SOUND}]},
    ]
    request = chat_request({"messages": messages})
    parts = parts_of(request.messages)
    assert [(part.data, part.address) for part in parts] == [(b"xyz", ""), (b"", "blob:https://wisp/1"), (b"abc", "")]
    assert parts[2].path == "messages[2].content[1]"
    placed = with_markers(request.messages, ["<1>", "<2>", "<3>"])
    texts = [part["text"] for message in placed[1:] for part in message["content"]]
    assert texts == ["<1>", "What is it?", "<2>", "<3>"]
    body = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}]}
    response = responses_request(body).request
    assert isinstance(response, ChatRequest)
    assert parts_of(response.messages)[0].data == b"x"
