"""Ollama's endpoints: what their requests become, their answers and their errors."""

from typing import Any

import pytest

from app.compatible import ollama
from app.openai.answers import Identity
from app.openai.fields import Json
from app.openai.requests import ChatRequest, CompletionRequest
from py_engine.errors import WispError
from tests.support.worker_page import HELLO, HI, Page

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}
TIMINGS = {"prompt_ms": 1.0, "predicted_ms": 2.0}


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    return page


def chat_of(request: Json) -> ChatRequest:
    made = ollama.chat(request).request
    assert isinstance(made, ChatRequest)
    return made


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


@pytest.mark.parametrize("given", ["", []])
async def test_nothing_to_embed(page: Page, given: Json) -> None:
    assert await page.call("ollama.embed", request={"model": "mini", "input": given}) == {
        "model": "mini",
        "embeddings": [],
    }
    assert await page.code("ollama.embed", request={"model": "none", "input": given}) == "model_not_found"


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
    request = chat_of({"messages": HI, "logprobs": True, "top_logprobs": 1})
    assert request.sampling.logprobs == 1
    answer = ollama.Answer("message", "mini", events.append, Identity.new())
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
    request = chat_of({"messages": HI, "options": options | {"stop": list("abcdef")}, "shift": True})
    assert request.sampling == chat_of({"messages": HI}).sampling
    assert (len(request.stop), request.truncate) == (6, True)
    assert not chat_of({"messages": HI, "truncate": False}).truncate


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
            "think": "max",
            "keep_alive": "5m",
        },
    )
    assert request.messages[0]["content"][0]["image_url"]["url"] == "data:;base64,eA=="
    assert request.messages[1]["tool_calls"][0]["function"] == calls[0]["function"]
    assert (request.sampling.temperature, request.sampling.top_k, request.max_tokens) == (0, 40, None)
    assert request.format is not None
    assert request.template_variables == {"enable_thinking": True, "reasoning_effort": "max"}


def test_calls_of_ollama_have_their_arguments_as_objects() -> None:
    answer = ollama.Answer("message", "mini", None, Identity.new())
    call = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    answer.chunk({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
    answer.chunk({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    answer.chunk({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}, "timings": TIMINGS})
    called = {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Rome"}}}
    assert answer.body["message"]["tool_calls"] == [called]
    back = {"role": "assistant", "content": "", "tool_calls": [called]}
    said = {"role": "tool", "content": "Sunny", "tool_name": "get_weather", "tool_call_id": "call_1"}
    request = chat_of({"messages": [*HI, back, said]})
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
        ({"prompt": "x", "suffix": 5}, "suffix"),
        ({"prompt": "x", "suffix": "y", "system": "z"}, "suffix"),
        ({"prompt": "x", "raw": True, "system": "y"}, "raw"),
        ({"prompt": "x", "raw": True, "logprobs": 1}, "logprobs"),
        ({"prompt": "x", "raw": True, "logprobs": True, "top_logprobs": "y"}, "top_logprobs"),
        ({"prompt": "x", "raw": True, "top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_bad_prompts_of_ollama(request_: Json, param: str) -> None:
    with pytest.raises(WispError) as error:
        ollama.generate(request_)
    assert error.value.param == param
