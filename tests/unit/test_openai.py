"""Requests checked field by field against OpenAI's reference."""

import base64
from typing import Any

import pytest

from app.openai.llama_parameters import UNLIMITED
from app.openai.media import parts_of, with_markers
from app.openai.messages import PromptWithMedia
from app.openai.requests import ChatRequest, chat_request, completion_request
from app.openai.responses import responses_request
from py_engine.errors import WispError
from py_engine.plan.sampling import Sampling
from tests.support.openai_requests import HI, OTHER, TOOL, T, V, allowed, file, image, param_of

SOUND = {"data": "YWJj", "format": "wav"}


def test_defaults() -> None:
    request = chat_request({"messages": HI})
    assert request.sampling == Sampling()
    assert (request.max_tokens, request.stop, request.stream, request.include_usage) == (None, (), False, False)
    assert completion_request({"prompt": "x"}).max_tokens == 16


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
    assert request.template_variables == {"enable_thinking": False, "reasoning_effort": "none", "x": 1}


def test_llama_cpps_parameters() -> None:
    request = chat_request({"messages": HI, "logit_bias": [[5, 1], ["no", False]], "n_probs": 4, "dry_multiplier": 1})
    assert request.sampling.logit_bias == ((5, 1.0),)
    assert request.text_parameters.logit_bias == (("no", -100.0),)
    assert request.text_parameters.dry_breakers == ("\n", ":", '"', "*")
    assert request.sampling.logprobs == 4
    assert completion_request({"prompt": "x", "logprobs": 0}).sampling.logprobs == 0
    assert completion_request({"prompt": "x", "n": 2, "best_of": 2, "echo": True}).echo
    assert chat_request({"messages": HI, "json_schema": {"type": "null"}}).format.kind == "json_schema"  # type: ignore[union-attr]


def test_llama_cpps_parameters_that_change_nothing() -> None:
    """As at /completion, whose clients send them here, too."""
    neutral = {"id_slot": -1, "n_keep": 0, "timings_per_token": True, "return_progress": False, "min_keep": 1}
    neutral |= {"mirostat": 0, "mirostat_tau": 5, "post_sampling_probs": False, "speculative.n_max": 4}
    assert chat_request({"messages": HI, **neutral}) == chat_request({"messages": HI})
    assert completion_request({"prompt": "x", **neutral}) == completion_request({"prompt": "x"})


def test_llama_cpps_limit_of_tokens() -> None:
    def limits(**fields: int | None) -> tuple[int | None, int | None]:
        chat, completion = chat_request({"messages": HI, **fields}), completion_request({"prompt": "x", **fields})
        return chat.max_tokens, completion.max_tokens

    assert limits(n_predict=5) == (5, 5)
    assert limits(n_predict=0) == (1, 1)
    assert limits(n_predict=-1) == (UNLIMITED, UNLIMITED)
    assert limits(n_predict=None) == (None, 16)
    assert limits(n_predict=5, max_tokens=3) == (3, 3)


def test_llama_cpps_list_of_samplers() -> None:
    body = {"messages": HI, "top_k": 9, "top_p": 0.5, "temperature": 0.5, "repeat_penalty": 1.5}
    assert chat_request(body | {"samplers": ["top_k", "temperature"]}).sampling == Sampling(temperature=0.5, top_k=9)
    assert chat_request(body | {"samplers": []}).sampling == Sampling()


def test_texts_with_a_bias() -> None:
    request = chat_request({"messages": HI, "logit_bias": {"5": 1, " no": False, "+6": 2}})
    assert request.sampling.logit_bias == ((5, 1.0),)
    assert request.text_parameters.logit_bias == ((" no", -100.0), ("+6", 2.0))


def test_a_seed_that_asks_for_a_random_one() -> None:
    assert chat_request({"messages": HI, "seed": -1}).sampling.seed is None
    assert completion_request({"prompt": "x", "seed": -2}).sampling.seed == -2


def test_vllms_request_to_continue_a_message() -> None:
    said = {"messages": [*HI, {"role": "assistant", "content": "He"}]}
    given = {"continue_final_message": True, "add_generation_prompt": False}
    assert chat_request(said | given) == chat_request(said | {"continue_final_message": True})
    assert chat_request(said | {"add_generation_prompt": True}) == chat_request(said)


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


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_minus_1_is_no_limit(name: str) -> None:
    """As LM Studio's examples have it, and llama.cpp's server."""
    assert chat_request({"messages": HI, name: -1}).max_tokens == UNLIMITED
    assert completion_request({"prompt": "x", "max_tokens": -1}).max_tokens == UNLIMITED
    for limit in (-2, 0):
        with pytest.raises(WispError) as error:
            chat_request({"messages": HI, name: limit})
        assert error.value.param == name


def test_the_effort_of_reasoning_as_ollama_has_it() -> None:
    for effort, variables in (("low", {"reasoning_effort": "low", "enable_thinking": True}),
                              ("none", {"reasoning_effort": "none", "enable_thinking": False}),
                              (None, {})):  # fmt: skip
        assert chat_request({"messages": HI, "reasoning": {"effort": effort}}).template_variables == variables
    both = {"messages": HI, "reasoning_effort": "high", "reasoning": {"effort": "low"}}
    assert chat_request(both).template_variables["reasoning_effort"] == "high"
    for reasoning, param in (
        ({"effort": "much"}, "reasoning.effort"),
        ({"effort": 5}, "reasoning.effort"),
        ({"max_tokens": 5}, "reasoning.max_tokens"),
        ("low", "reasoning"),
    ):
        with pytest.raises(WispError) as error:
            chat_request({"messages": HI, "reasoning": reasoning})
        assert error.value.param == param


def test_a_penalty_of_all_tokens_as_vllm_has_it() -> None:
    sampling = chat_request({"messages": HI, "repetition_penalty": 1.2}).sampling
    assert (sampling.repeat_penalty, sampling.repeat_last_n) == (1.2, -1)
    both = {"prompt": "x", "repetition_penalty": 1.2, "repeat_penalty": 1.1, "repeat_last_n": 8}
    sampling = completion_request(both).sampling
    assert (sampling.repeat_penalty, sampling.repeat_last_n) == (1.1, 8)
    with pytest.raises(WispError) as error:
        chat_request({"messages": HI, "repetition_penalty": "x"})
    assert error.value.param == "repetition_penalty"


@pytest.mark.parametrize(
    "body",
    [{"ttl": 60}, {"keep_alive": "5m"}, {"draft_model": "x"}, {"backend_sampling": True}, {"parse_tool_calls": True},
     {"return_tokens": False}, {"reasoning_budget_tokens": -1}, {"reasoning_control": False}, {"grammar_lazy": False}],
)  # fmt: skip
def test_what_other_servers_clients_send_and_changes_no_answer(body: dict[str, Any]) -> None:
    assert chat_request({"messages": HI} | body) == chat_request({"messages": HI})
    assert completion_request({"prompt": "x"} | body) == completion_request({"prompt": "x"})


@pytest.mark.parametrize("body", [{"parse_tool_calls": False}, {"reasoning_budget_tokens": 5}, {"return_tokens": True}])
def test_what_would_change_an_answer_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(WispError) as error:
        chat_request({"messages": HI} | body)
    assert (error.value.code, [error.value.param]) == ("unsupported_parameter", list(body))


def test_schemas_as_lm_studio_and_llama_cpp_have_them() -> None:
    """LM Studio's examples write strict as a text; llama.cpp needs no json_schema around the schema."""
    schema = {"type": "object"}

    def form(**given: Any) -> Any:
        return chat_request({"messages": HI, "response_format": {"type": "json_schema", **given}}).format

    for written, strict in (("true", True), ("false", False), (True, True), (None, False)):
        found = form(json_schema={"name": "x", "strict": written, "schema": schema})
        assert (found.value, found.strict) == (schema, strict)
    assert form(schema=schema).value == schema
    for given, param in (
        ({"json_schema": {"strict": "yes", "schema": schema}}, "response_format.json_schema.strict"),
        ({"schema": 5}, "response_format.schema"),
        ({}, "response_format.json_schema"),
    ):
        with pytest.raises(WispError) as error:
            form(**given)
        assert error.value.param == param
