"""LM Studio's chats of version 1: what they say, what is stored of them, and what is refused."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from app.compatible.lm_studio_chat import ChatAnswer, chat, reworded
from app.compatible.stored_chats import StoredChats
from app.openai.answers import Identity
from app.openai.fields import Json
from app.openai.requests import ChatRequest
from py_engine.errors import WispError
from tests.support.worker_page import HELLO, Page

KIND = "lmStudio.chat"
T, V, U = "invalid_type", "invalid_value", "unsupported_parameter"
PICTURE = "data:image/png;base64,AAAA"


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    return page


def request_of(stored: StoredChats | None = None, **body: Json) -> ChatRequest:
    request = chat({"input": "Hi"} | body, stored or StoredChats()).request
    assert isinstance(request, ChatRequest)
    return request


def text_of(page: Page, prompt: int) -> str:
    engine = page.engine
    return str(engine.tokenizer.decode(engine.prompts[prompt]))


async def test_an_answer_has_its_output_figures_and_an_id(page: Page) -> None:
    answer = await page.call(KIND, request={"model": "mini", "input": "Hi"})
    plain = await page.call("chat.completions", request={"messages": [{"role": "user", "content": "Hi"}]})
    assert answer["model_instance_id"] == "mini"
    assert answer["output"] == [{"type": "message", "content": HELLO}]
    assert answer["response_id"].startswith("resp_")
    stats, usage = answer["stats"], plain["usage"]
    assert stats.pop("tokens_per_second") > 0
    assert stats.pop("time_to_first_token_seconds") > 0
    assert stats == {
        "input_tokens": usage["prompt_tokens"], "total_output_tokens": usage["completion_tokens"],
        "reasoning_output_tokens": 0,
    }  # fmt: skip


async def test_a_chat_goes_on_from_any_of_its_answers(page: Page) -> None:
    first = await page.call(KIND, request={"input": "My colour is blue.", "system_prompt": "Be short."})
    begun = first["response_id"]
    for last in ("Which colour?", "Which other?"):  # two branches
        second = await page.call(KIND, request={"input": last, "previous_response_id": begun})
        assert second["response_id"] != begun
        messages = [
            {"role": "system", "content": "Be short."}, {"role": "user", "content": "My colour is blue."},
            {"role": "assistant", "content": HELLO}, {"role": "user", "content": last},
        ]  # fmt: skip
        await page.call("chat.completions", request={"messages": messages})
        assert text_of(page, -2) == text_of(page, -1)
    again = {"input": "Hi", "previous_response_id": second["response_id"], "system_prompt": "Be long."}
    await page.call(KIND, request=again)
    assert "Be long." in text_of(page, -1)
    assert "Be short." not in text_of(page, -1)
    assert "Which other?" in text_of(page, -1)


async def test_a_chat_that_is_not_to_be_stored_has_no_id(page: Page) -> None:
    answer = await page.call(KIND, request={"input": "Hi", "store": False})
    assert "response_id" not in answer
    assert page.worker._handlers[KIND].__wrapped__.__self__._chats._chats == {}  # type: ignore[attr-defined]


async def test_the_events_of_a_stream_are_in_order_and_end_with_the_answer(page: Page) -> None:
    events = await page.stream(KIND, input="Hi")
    kinds = [event["type"] for event in events]
    deltas = kinds.count("message.delta")
    assert deltas > 1
    assert kinds == [
        "chat.start", "prompt_processing.start", "prompt_processing.end", "message.start",
        *["message.delta"] * deltas, "message.end", "chat.end",
    ]  # fmt: skip
    assert events[0] == {"type": "chat.start", "model_instance_id": "mini"}
    assert "".join(event["content"] for event in events if event["type"] == "message.delta") == HELLO
    result = events[-1]["result"]
    assert result["output"] == [{"type": "message", "content": HELLO}]
    going_on = await page.call(KIND, request={"input": "More", "previous_response_id": result["response_id"]})
    assert going_on["output"] == result["output"]


def test_thoughts_are_an_item_of_their_own() -> None:
    stored, events = StoredChats(), list[dict[str, Any]]()
    answer = ChatAnswer("m", events.append, "resp_1", [{"role": "user", "content": "Hi"}], stored)
    deltas = (
        {"role": "assistant", "content": ""},
        {"reasoning_content": "Hm"},
        {"reasoning_content": "."},
        {"content": "A"},
    )
    for delta in deltas:
        answer.chunk({"choices": [{"delta": delta, "finish_reason": None}]})
    answer.chunk({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 1, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}}
    answer.chunk({"choices": [], "usage": usage, "timings": {"predicted_per_second": 4.0, "ttft_ms": 500.0}})
    assert answer.body["output"] == [{"type": "reasoning", "content": "Hm."}, {"type": "message", "content": "A"}]
    assert [event["type"] for event in events] == [
        "chat.start", "prompt_processing.start", "prompt_processing.end", "reasoning.start", "reasoning.delta",
        "reasoning.delta", "reasoning.end", "message.start", "message.delta", "message.end", "chat.end",
    ]  # fmt: skip
    assert answer.body["stats"] == {
        "input_tokens": 1, "total_output_tokens": 3, "reasoning_output_tokens": 2, "tokens_per_second": 4.0,
        "time_to_first_token_seconds": 0.5,
    }  # fmt: skip
    assert stored.until("resp_1", "x")[-1] == {"role": "assistant", "content": "A", "reasoning_content": "Hm."}


def test_an_answer_without_text_ends_its_prompt() -> None:
    events = list[dict[str, Any]]()
    answer = ChatAnswer("m", events.append, None, [], StoredChats())
    answer.chunk({"choices": [{"delta": {}, "finish_reason": "length"}]})
    kinds = ["chat.start", "prompt_processing.start", "prompt_processing.end"]
    assert [event["type"] for event in events] == kinds


def test_fields_are_those_of_a_chat() -> None:
    request = request_of(temperature=0.5, top_k=7, max_output_tokens=9, context_length=4096, integrations=[])
    assert (request.sampling.temperature, request.sampling.top_k, request.max_tokens) == (0.5, 7, 9)
    for reasoning, variables in (
        ("off", {"reasoning_effort": "none", "enable_thinking": False}),
        ("medium", {"reasoning_effort": "medium", "enable_thinking": True}),
        ("on", {"enable_thinking": True}),
        (None, {}),
    ):
        assert request_of(reasoning=reasoning).template_variables == variables
    parts = [{"type": "message", "content": "a"}, {"type": "text", "content": "b"}]
    assert request_of(input=[*parts, {"type": "image", "data_url": PICTURE}]).messages[-1]["content"] == [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {"url": PICTURE}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"input": None}, T, "input"),
        ({"input": []}, T, "input"),
        ({"input": ""}, V, "input"),
        ({"input": [{"type": "text"}]}, T, "input[0].content"),
        ({"input": [{"type": "image", "data_url": "data:image/png;base64,??"}]}, V, "input[0].data_url"),
        ({"input": ["a"]}, T, "input[0]"),
        ({"input": [{"type": "audio"}]}, V, "input[0].type"),
        ({"input": [{"type": "text", "content": 5}]}, T, "input[0].content"),
        ({"input": [{"type": "image", "data_url": "https://wisp/a.png"}]}, V, "input[0].data_url"),
        ({"system_prompt": 5}, T, "system_prompt"),
        ({"integrations": ["mcp/playwright"]}, U, "integrations"),
        ({"reasoning": "much"}, V, "reasoning"),
        ({"max_output_tokens": 0}, V, "max_output_tokens"),
        ({"context_length": "long"}, T, "context_length"),
        ({"store": "yes"}, T, "store"),
        ({"stream": 1}, T, "stream"),
        ({"temperature": "hot"}, T, "temperature"),
        ({"previous_response_id": "abc"}, V, "previous_response_id"),
        ({"previous_response_id": "resp_abc"}, V, "previous_response_id"),
        ({"messages": []}, U, "messages"),
    ],
)
def test_what_is_wrong_names_the_field(body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(WispError) as error:
        request_of(**body)
    assert (error.value.code, error.value.param) == (code, param)


def test_the_least_recently_used_chats_are_dropped() -> None:
    stored = StoredChats(most=2)
    one: dict[str, Json] = {"role": "user", "content": "Hi"}
    for name in ("a", "b"):
        stored.add(name, [one])
    stored.until("a", "x")
    stored.add("c", [one])
    assert [stored.until(name, "x") for name in ("a", "c")] == [[one], [one]]
    with pytest.raises(WispError, match="'b' is not stored"):
        stored.until("b", "x")
    small = StoredChats(most_characters=100)
    for name in ("a", "b", "c"):
        small.add(name, [{**one, "content": "x" * 40}])
    assert small.until("c", "x")
    with pytest.raises(WispError):
        small.until("b", "x")


def test_a_chat_that_is_larger_than_the_store_leaves_the_others() -> None:
    stored = StoredChats(most_characters=200)
    one: dict[str, Json] = {"role": "user", "content": "x" * 40}
    assert stored.add("a", [one])
    assert not stored.add("b", [{**one, "content": "x" * 400}])
    assert stored.until("a", "x") == [one]
    with pytest.raises(WispError, match="'b' is not stored"):
        stored.until("b", "x")


def test_the_answer_of_a_chat_that_is_too_large_has_no_id() -> None:
    answer = ChatAnswer("m", None, "resp_1", [{"role": "user", "content": "x" * 400}], StoredChats(most_characters=200))
    answer.chunk({"choices": [{"delta": {"content": "A"}, "finish_reason": "stop"}]})
    usage, timings = {"prompt_tokens": 1, "completion_tokens": 1}, {"predicted_per_second": 4.0, "ttft_ms": 500.0}
    answer.chunk({"choices": [], "usage": usage, "timings": timings})
    assert "response_id" not in answer.body


def test_a_message_of_several_answers_counts_once() -> None:
    picture: dict[str, Json] = {"role": "user", "content": "x" * 500}
    stored, messages = StoredChats(most_characters=1200), [picture]
    for i in range(10):
        messages = [*messages, {"role": "assistant", "content": f"{i}"}]
        stored.add(f"resp_{i}", messages)
    assert [len(stored.until(f"resp_{i}", "x")) for i in range(10)] == [*range(2, 12)]
    stored.add("other", [{"role": "user", "content": "x" * 1100}])  # all of the others must go for it
    assert stored._characters == len(json.dumps(stored.until("other", "x")[0]))


def test_an_answer_that_comes_again_replaces_the_chat() -> None:
    stored = StoredChats(most_characters=200)
    for _ in range(4):
        stored.add("a", [{"role": "user", "content": "x" * 40}])
    small: dict[str, Json] = {"role": "user", "content": "y"}
    stored.add("b", [small])
    assert stored.until("a", "x")[0]["content"] == "x" * 40
    assert stored.until("b", "x") == [small]


async def test_an_error_of_the_chat_names_what_the_client_sent(page: Page) -> None:
    first = await page.call(KIND, request={"input": "Hi", "system_prompt": "Be short."})
    more = {"previous_response_id": first["response_id"]}
    picture = [{"type": "text", "content": "a"}, {"type": "image", "data_url": PICTURE}]
    error = (await page.call(KIND, request=more | {"input": picture}))["error"]
    assert (error["code"], error["param"]) == ("no_projector", "input[1].data_url")
    assert "messages" not in error["message"]
    error = (await page.call(KIND, request=more | {"input": "long " * 9000}))["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    assert "Begin a new chat" in error["message"]


def test_an_error_of_a_stored_picture_names_the_stored_chat() -> None:
    request = request_of(input=[{"type": "image", "data_url": PICTURE}])
    later = replace(request, messages=[*request.messages, {"role": "user", "content": "Hi"}])
    error = WispError("messages[0].content[0] cannot be seen.", "no_projector", param="messages[0].content[0]")
    assert reworded(error, later).param == "previous_response_id"
    assert reworded(error, request).message == "input[0] cannot be seen."


async def test_an_aborted_answer_is_not_stored(page: Page) -> None:
    page.engine.pause, page.engine.says = 0.005, "word " * 150
    number, task = page.send(KIND, request={"input": "Hi", "stream": True})
    while len(page.answers(number)) < 4:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await page.call("abort", target=number)
    await task
    assert page.answers(number)[-1]["error"]["code"] == "aborted"
    assert page.worker._handlers[KIND].__wrapped__.__self__._chats._chats == {}  # type: ignore[attr-defined]


def test_the_id_is_the_answers() -> None:
    """A worker that continues another one's answer gives it the same id."""
    converted = chat({"input": "Hi"}, StoredChats())
    identity = Identity("abc", 5)
    assert converted.answer("m", None, identity).body["response_id"] == "resp_abc"
