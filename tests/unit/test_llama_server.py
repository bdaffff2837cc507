"""The endpoints that only llama.cpp's server has: what their requests become, their answers and their errors."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.compatible import llama_server
from app.openai.fields import Json
from app.openai.requests import CompletionRequest
from py_engine.errors import WispError
from py_engine.plan.sampling import Batch, TokenLogprob
from tests.support.worker_page import HELLO, HI, Page

ONCE: dict[str, Any] = {"prompt": "Once", "n_predict": -1, "temperature": 0.0}


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    return page


def completion_of(**fields: Json) -> CompletionRequest:
    made = llama_server.completion({"prompt": "a"} | fields).request
    assert isinstance(made, CompletionRequest)
    return made


async def test_a_completion(page: Page) -> None:
    answer = await page.call("llama.completion", request=ONCE)
    assert answer["content"].strip() == HELLO
    assert (answer["stop"], answer["stop_type"], answer["tokens_evaluated"]) == (True, "eos", 1)
    assert (answer["prompt"], answer["has_new_line"], answer["tokens"]) == ("Once", False, [])
    assert (await page.call("llama.completion", request=ONCE | {"n_predict": 2}))["stop_type"] == "limit"
    assert (await page.call("llama.completion", request=ONCE | {"n_predict": 0}))["tokens_predicted"] == 1
    word = await page.call("llama.completion", request=ONCE | {"stop": ["can", *"abcdef"]})
    assert (word["stop_type"], word["stopping_word"]) == ("word", "e")
    chunks = await page.stream("llama.completion", **ONCE)
    assert "".join(chunk["content"] for chunk in chunks) == answer["content"]
    assert [chunk["stop"] for chunk in chunks[-2:]] == [False, True]


async def test_its_tokens(page: Page) -> None:
    answer = await page.call("llama.completion", request=ONCE | {"return_tokens": True})
    assert len(answer["tokens"]) == answer["tokens_predicted"]
    assert (await page.call("llama.detokenize", request={"tokens": answer["tokens"][:-1]}))["content"].strip() == HELLO
    chunks = await page.stream("llama.completion", **ONCE)
    assert [token for chunk in chunks for token in chunk["tokens"]] == answer["tokens"]
    assert chunks[-1]["tokens_predicted"] == len(answer["tokens"])
    assert {chunk["tokens_evaluated"] for chunk in chunks} == {1}


async def test_several_prompts(page: Page) -> None:
    request = ONCE | {"prompt": ["Once", [5, 6]], "n_predict": 3}
    first, second = await page.call("llama.completion", request=request)
    assert (first["index"], first["prompt"], first["tokens_evaluated"]) == (0, "Once", 1)
    assert (second["index"], second["prompt"], second["tokens_evaluated"]) == (1, [5, 6], 2)
    chunks = await page.stream("llama.completion", **request)
    for i, whole in enumerate((first, second)):
        assert "".join(chunk["content"] for chunk in chunks if chunk["index"] == i) == whole["content"]
    assert sum(chunk["stop"] for chunk in chunks) == 2


async def test_several_answers_to_each_prompt(page: Page) -> None:
    request = ONCE | {"prompt": ["Once", [5, 6]], "n_predict": 3}
    for name in ("n", "n_cmpl"):
        answers = await page.call("llama.completion", request=request | {name: 2})
        assert [answer["index"] for answer in answers] == [0, 1, 2, 3]
        assert [answer["prompt"] for answer in answers] == ["Once", "Once", [5, 6], [5, 6]]
        assert all(answer["tokens_predicted"] == 3 for answer in answers)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n_predict": 1 << 31}, "n_predict"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"return_tokens": "x"}, "return_tokens"),
        ({"n": 0}, "n"),
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, Json], param: str) -> None:
    with pytest.raises(WispError) as error:
        completion_of(**fields)
    assert error.value.param == param


async def test_embeddings_of_llama(page: Page) -> None:
    vectors = [[0.6, -0.8], [1.0, 0.0]]

    async def embed(groups: Any, pooling: str, *, unit: bool) -> Any:
        for group in groups:
            yield np.array(vectors[: len(group)], np.float32) * (1 if unit else 5)

    engine: Any = page.engine
    engine.embeddings = SimpleNamespace(pooling="last", width=2, all=embed)
    answer = await page.call("llama.embeddings", request={"content": ["a", "b"]})
    assert answer == [{"index": i, "embedding": [pytest.approx(vectors[i])]} for i in range(2)]
    assert await page.call("llama.embeddings", request={"input": "a"}) == answer[:1]
    for norm, wanted in ((-1, [3, -4]), (0, [24570, -32760]), (1, [3 / 7, -4 / 7])):
        for kind in ("llama.embeddings", "embeddings"):
            answer = await page.call(kind, request={"input": "a", "embd_normalize": norm})
            found = answer[0]["embedding"][0] if kind == "llama.embeddings" else list(answer["data"][0]["embedding"])
            assert found == pytest.approx(wanted)
    for body, param in (
        ({"content": "a", "embd_normalize": -2}, "embd_normalize"),
        ({"content": "a", "embd_normalize": "2"}, "embd_normalize"),
        ({"content": "a", "encoding_format": "base64"}, "encoding_format"),
    ):
        assert (await page.call("llama.embeddings", request=body))["error"]["param"] == param
    error = (await page.call("llama.embeddings", request={}))["error"]
    assert (error["code"], error["param"]) == ("invalid_type", "input")
    error = (await page.call("llama.embeddings", request={"content": ["a", 1.5]}))["error"]
    assert (error["code"], error["param"]) == ("invalid_type", "content[1]")
    error = (await page.call("llama.embeddings", request={"content": "word " * 9999}))["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "content")


async def test_fields_that_a_response_shall_have(page: Page) -> None:
    fields = ["content", "generation_settings/n_predict", "timings/nothing", "nothing"]
    answer = await page.call("llama.completion", request=ONCE | {"n_predict": 2, "response_fields": fields})
    assert set(answer) == {"content", "generation_settings/n_predict"}
    assert answer["generation_settings/n_predict"] == 2


def test_probabilities_of_tokens() -> None:
    events: list[dict[str, Any]] = []
    made = llama_server.completion({"prompt": "a", "n_probs": 1})
    assert made.request.sampling.logprobs == 1
    answer = made.answer("mini", events.append, _identity())
    entry = {"id": 7, "token": "x", "bytes": [120], "logprob": -0.5, "top_logprobs": []}
    choice = {"index": 0, "text": "x", "token_ids": [7], "logprobs": {"content": [entry]}, "finish_reason": None}
    answer.chunk({"choices": [choice]})
    timings = {"cache_n": 1, "prompt_n": 2, "predicted_n": 2}
    end = {"index": 0, "text": "", "token_ids": [2], "logprobs": None, "finish_reason": "stop"}
    answer.chunk({"choices": [end], "timings": timings})
    assert answer.body["completion_probabilities"] == events[0]["completion_probabilities"] == [entry]
    assert (answer.body["tokens_evaluated"], answer.body["tokens_cached"]) == (3, 1)
    assert [(event["tokens"], event["stop"]) for event in events] == [([7], False), ([2], False), ([], True)]


async def test_probabilities_have_the_ids_of_their_tokens(page: Page) -> None:
    engine: Any = page.platform.engines[0]
    plain = engine.generate

    async def generate(request: Any, stats: Any = None) -> Any:
        async for batch in plain(request, stats):
            yield Batch(batch.ids, [TokenLogprob(token, -1.0, [(5, -2.0)]) for token in batch.ids])

    engine.generate = generate
    request = ONCE | {"n_probs": 1, "return_tokens": True}
    answer = await page.call("llama.completion", request=request)
    found = answer["completion_probabilities"]
    assert [entry["id"] for entry in found] == answer["tokens"]
    assert [entry["top_logprobs"][0]["id"] for entry in found] == [5] * len(found)
    assert (found[-1]["token"], found[-1]["bytes"]) == ("", [])  # the end
    ended = await page.stream("llama.completion", **request | {"prompt": "Once"})
    streamed = [entry for event in ended for entry in event.get("completion_probabilities", [])]
    assert streamed == found


def test_samplers_that_a_list_leaves_out_are_off() -> None:
    everything = {
        "temperature": 0.5,
        "top_k": 9,
        "top_p": 0.5,
        "min_p": 0.2,
        "repeat_penalty": 1.5,
        "xtc_probability": 1,
    }
    sampling = completion_of(**everything, samplers=["top_k", "temp"]).sampling
    assert (sampling.temperature, sampling.top_k) == (0.5, 9)
    assert (sampling.top_p, sampling.min_p, sampling.repeat_penalty, sampling.xtc_probability) == (1, 0, 1, 0)
    assert completion_of(**everything, samplers=[]).sampling.temperature == 1
    assert completion_of(temperature=5, samplers=["top_k"]).sampling.temperature == 1
    assert completion_of(temperature=-1, samplers=["top_k"]).sampling.temperature == 1
    assert completion_of(dynatemp_range=1, samplers=["top_k"]).sampling.dynatemp_range == 0
    assert completion_of(dynatemp_range=-1, dynatemp_exponent=-1).sampling.dynatemp_range == 0
    for given, listed in (({"samplers": []}, []), ({}, ["penalties"])):
        made = completion_of(**given)
        assert llama_server._settings(given, made)["samplers"][:1] == listed


def test_seeds_of_a_random_answer() -> None:
    assert completion_of(seed=-1).sampling.seed is completion_of(seed=0xFFFFFFFF).sampling.seed is None
    assert completion_of(seed=0).sampling.seed == 0


def test_dry_looks_back_as_far_as_there() -> None:
    sampling = completion_of(dry_multiplier=0.8).sampling
    assert sampling.dry_penalty_last_n == 64
    assert completion_of(dry_multiplier=0.8, dry_penalty_last_n=-1).sampling.dry_penalty_last_n == -1


def test_parameters_that_change_nothing_are_accepted() -> None:
    neutral = {"mirostat": 0, "mirostat_tau": 5, "min_keep": 0, "post_sampling_probs": False}
    assert completion_of(**neutral, n_keep=3, **{"speculative.n_max": 4}) == completion_of()


def test_any_temperature_is_accepted() -> None:
    assert [completion_of(temperature=t).sampling.temperature for t in (-1, 0, 2, 2.5, 1e30, 10**400)] == [
        *(0, 0, 2, 2.5, 1e6, 1e6)
    ]
    for wrong in ("hot", True):
        with pytest.raises(WispError, match="temperature"):
            completion_of(temperature=wrong)


async def test_a_prompt_of_texts_and_ids(page: Page) -> None:
    ids = (await page.call("tokenization", request={"content": "Once"}))["tokens"]
    answer = await page.call("llama.completion", request=ONCE | {"prompt": ["Once", 5, 6], "n_predict": 2})
    assert (answer["prompt"], answer["tokens_evaluated"]) == (["Once", 5, 6], len(ids) + 2)
    request = ONCE | {"prompt": [5, "Once", -1]}
    assert await page.code("llama.completion", request=request) == "invalid_type"
    assert await page.code("llama.completion", request=ONCE | {"prompt": ["Once", 10**6]}) == "invalid_value"


async def test_tokens_and_templates(page: Page) -> None:
    tokens = (await page.call("tokenization", request={"content": "Once upon"}))["tokens"]
    assert (await page.call("llama.detokenize", request={"tokens": tokens}))["content"].strip() == "Once upon"
    assert (await page.call("llama.detokenize", request={}))["content"] == ""
    mixed = (await page.call("tokenization", request={"content": ["Once", 5, " upon"]}))["tokens"]
    assert mixed == [tokens[0], 5, *tokens[1:]]
    assert await page.code("tokenization", request={"content": ["a", None]}) == "invalid_type"
    assert await page.code("tokenization", request={"content": [10**6], "with_pieces": True}) == "invalid_value"
    assert await page.code("llama.detokenize", request={"tokens": [10**6]}) == "invalid_value"
    assert await page.code("llama.detokenize", request={"tokens": "x"}) == "invalid_type"
    assert "Hi" in (await page.call("llama.applyTemplate", request={"messages": HI}))["prompt"]
    assert await page.code("llama.applyTemplate", request={"messages": 1}) == "invalid_type"
    wrong = {"messages": HI, "chat_template_kwargs": 1}
    assert await page.code("llama.applyTemplate", request=wrong) == "invalid_type"
    whole, start = [
        (await page.call("llama.applyTemplate", request={"messages": HI, "add_generation_prompt": add}))["prompt"]
        for add in (True, False)
    ]
    assert whole.startswith(start)
    assert whole != start
    begun = {"messages": [*HI, {"role": "assistant", "content": "Hel"}]}
    assert (await page.call("llama.applyTemplate", request=begun))["prompt"] == f"{whole}Hel"


async def test_the_state_of_the_server(page: Page) -> None:
    assert await Page().code("llama.health") == "not_ready"
    assert await page.call("llama.health") == {"status": "ok"}
    props = await page.call("llama.props")
    assert (props["total_slots"], props["default_generation_settings"]["n_ctx"]) == (1, 200)
    fresh = {"id": 0, "n_ctx": 200, "speculative": False, "is_processing": False}
    assert await page.call("llama.slots", request={"fail_on_no_slot": True}) == [fresh]
    assert "llamacpp:tokens_predicted_total 0" in await page.call("llama.metrics")
    answer = await page.call("chat.completions", request={"messages": HI})
    text = await page.call("llama.metrics")
    assert f"llamacpp:tokens_predicted_total {answer['usage']['completion_tokens']}\n" in text
    assert "llamacpp:prompt_seconds_total 0.008\n" in text
    assert "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n" in text
    await page.call("llama.completion", request=ONCE | {"n_predict": 3, "top_k": 7})
    (slot,) = await page.call("llama.slots")
    assert {name: slot[name] for name in fresh} == fresh
    assert (slot["params"]["top_k"], slot["params"]["n_predict"], slot["n_prompt_tokens"]) == (7, 3, 1)
    done = {"has_next_token": False, "has_new_line": False, "n_remain": 0, "n_decoded": 3}
    assert slot["next_token"] == [done]
    assert props["default_generation_settings"]["params"]["top_k"] == 40


@pytest.mark.parametrize(
    ("request_", "param"),
    [
        ({"prompt": "a", "n_predict": "x"}, "n_predict"),
        ({"prompt": "a", "mirostat": 1}, "mirostat"),
        ({"prompt": "a", "dynatemp_range": [0]}, "dynatemp_range"),
        ({"prompt": "a", "post_sampling_probs": True}, "post_sampling_probs"),
        ({"prompt": "a", "samplers": ["top_a"]}, "samplers"),
        ({"prompt": "a", "samplers": "kp"}, "samplers"),
        ({"prompt": "a", "response_fields": "content"}, "response_fields"),
        ({"prompt": "a", "nothing": 1}, "nothing"),
        ({"prompt": "a", "lora": [{"id": -1, "scale": 1}]}, "lora"),
    ],
)
def test_bad_completions(request_: Json, param: str) -> None:
    with pytest.raises(WispError) as error:
        llama_server.completion(request_)
    assert error.value.param == param


def _identity() -> Any:
    from app.openai.answers import Identity

    return Identity.new()
