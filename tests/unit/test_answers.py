"""Answers of the worker beyond one plain choice: several, shortened prompts, logprobs, tools, responses."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from app.answers.chat import Exchange
from app.answers.hooks import Hooks, StopWhen
from app.answers.parsing import PlainParser
from app.openai.answers import Delta, Message
from app.openai.requests import ChatRequest
from app.openai.responses import responses_request
from py_engine.generate.answer import GenerationRequest
from py_engine.options import LoadOptions
from py_engine.plan.sampling import Batch, TokenLogprob
from tests.support.worker_page import HELLO, HI, Engine, Page

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class LogprobEngine(Engine):
    """An engine that records its requests and gives every token a logprob."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[SimpleNamespace] = []

    async def generate(self, request: GenerationRequest, stats: Any = None) -> AsyncGenerator[Batch, None]:
        sampling, limits = request.sampling, request.limits
        self.asked.append(SimpleNamespace(sampling=sampling, **vars(limits)))
        try:
            async with aclosing(super().generate(request, stats)) as batches:
                async for batch in batches:
                    scored = [TokenLogprob(token, -0.25, [(token, -0.25), (3, -2.0)]) for token in batch.ids]
                    yield Batch(batch.ids, scored if sampling.logprobs >= 0 else None)
        finally:
            stats.shifted_tokens = 7 if limits.keep is not None else 0


@pytest.fixture
async def page() -> Page:
    page = Page()

    async def make(source: Any, header: Any, options: LoadOptions) -> Engine:
        from py_engine.text.tokenizer import load_tokenizer

        engine = LogprobEngine()
        engine.tokenizer = load_tokenizer(header.metadata)
        page.platform.engines.append(engine)
        return engine

    page.platform.make = make
    await page.call("load")
    return page


async def chat(page: Page, **request: Any) -> Any:
    return await page.call("chat.completions", request={"messages": HI, **request})


async def test_several_choices_share_the_prompt_and_differ_by_seed(page: Page) -> None:
    answer = await chat(page, n=3, seed=11)
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert {c["message"]["content"] for c in answer["choices"]} == {HELLO}
    assert [a.sampling.seed for a in page.engine.asked] == [11, 12, 13]  # type: ignore[attr-defined]
    assert len({tuple(p) for p in page.engine.prompts}) == 1
    assert answer["usage"]["prompt_tokens"] == len(page.engine.prompts[0])
    chunks = await page.stream("chat.completions", messages=HI, n=2, stream_options={"include_usage": True})
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert "".join(c["delta"].get("content", "") for c in mine) == HELLO
        assert (mine[0]["delta"]["role"], mine[-1]["finish_reason"]) == ("assistant", "stop")
    assert {str(c["usage"]) for c in chunks[:-1]} == {"None"}
    assert chunks[-1]["usage"]["completion_tokens"] == 2 * (len(page.engine.tokenizer.encode(HELLO)) + 1)


async def test_several_prompts_and_echo(page: Page) -> None:
    answer = await page.call("completions", request={"prompt": ["One", [5, 6]], "n": 2, "max_tokens": 99, "echo": True})
    decoded = page.engine.tokenizer.decode([5, 6])
    assert [c["text"] for c in answer["choices"]] == ["One" + HELLO] * 2 + [decoded + HELLO] * 2
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == len(page.engine.tokenizer.encode("One")) + 2


async def test_no_tokens(page: Page) -> None:
    """OpenAI's completions may ask for none, chats may not."""
    request = {"prompt": "One", "max_tokens": 0}
    answer = await page.call("completions", request={**request, "echo": True})
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("One", "length")
    assert answer["usage"]["completion_tokens"] == 0
    chunks = await page.stream("completions", **request)
    assert [c["choices"][0]["finish_reason"] for c in chunks][-1] == "length"
    assert not page.engine.prompts
    assert await page.code("chat.completions", request={"messages": HI, "max_tokens": 0}) == "invalid_value"


async def test_parameters_reach_the_engine(page: Page) -> None:
    engine: Any = page.engine
    await chat(page, ignore_eos=True, max_tokens=4, logit_bias={"5": 2}, dry_multiplier=1, dry_sequence_breakers=["zz"])
    asked = engine.asked[-1]
    assert asked.stop_ids == frozenset()
    assert set(asked.sampling.logit_bias) == {(5, 2.0)} | {(i, -100.0) for i in engine.tokenizer.eog_ids}
    assert asked.sampling.dry_breakers
    assert all(b"zz" in engine.tokenizer.piece(i) for i in asked.sampling.dry_breakers)
    assert engine.forgotten == 0
    await chat(page, cache_prompt=False)
    assert engine.forgotten == 1
    assert await page.code("chat.completions", request={"messages": HI, "logit_bias": {"999999": 1}}) == "invalid_value"


async def test_tools_that_may_not_be_called(page: Page) -> None:
    """A token that begins calls is banned; without one, the model does not see the tools."""
    engine: Any = page.engine
    for request in ({}, {"tools": [TOOL], "tool_choice": "none"}):
        await chat(page, **request)
    assert engine.prompts[0] == engine.prompts[1]
    assert not engine.asked[-1].sampling.logit_bias
    page.worker._models.loaded["mini"].tokenizer.vocab.ids["<tool_call>"] = 7
    await chat(page, tools=[TOOL], tool_choice="none", logit_bias={"7": 5, "9": 1})
    assert set(engine.asked[-1].sampling.logit_bias) == {(7, -100.0), (9, 1.0)}
    assert len(engine.prompts[-1]) > len(engine.prompts[0])


def says_a_call(page: Page, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """An answer with a call, which no grammar holds, one token at a time."""
    monkeypatch.setattr(
        "app.answers.chat.compiled", AsyncMock(return_value=AsyncMock(matcher=AsyncMock(return_value=Mock())))
    )
    page.engine.says, page.engine.size = says, 1


def stops_when(monkeypatch: pytest.MonkeyPatch, rule: StopWhen) -> None:
    """Give all requests a stopping rule."""
    monkeypatch.setattr("app.answers.chat.Exchange", partial(Exchange, hooks=Hooks(stop_when=rule)))


@pytest.mark.parametrize(
    ("stop", "arguments", "reason"),
    [(None, '{"city": "Paris"}', "tool_calls"), ("Par", '{"city": "', "stop"), ("}", '{"city": "Paris"', "stop")],
)
async def test_a_call_that_a_stop_string_cuts_is_not_to_be_run(
    page: Page, monkeypatch: pytest.MonkeyPatch, stop: str | None, arguments: str, reason: str
) -> None:
    """Its arguments are no JSON, and a client runs what ends with "tool_calls"."""
    says_a_call(page, monkeypatch, '<tool_call>\n{"name": "look", "arguments": {"city": "Paris"}}\n</tool_call>')
    answer = await chat(page, tools=[TOOL], stop=stop)
    (choice,) = answer["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (call["function"]["arguments"], choice["finish_reason"]) == (arguments, reason)


@pytest.mark.parametrize("limit", [{"max_tokens": 9}, {"max_tokens": 12}, {"stop": '": "loo'}, 9, 12])
async def test_a_call_that_is_cut_in_its_head_is_not_shown(
    page: Page, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any] | int
) -> None:
    """By a limit, a stop string, or a stopping rule after a number of tokens."""
    says_a_call(page, monkeypatch, 'Let me look.\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')
    if isinstance(limit, int):
        most = limit
        stops_when(monkeypatch, lambda ids, text: len(ids) >= most)
        limit = {}
    (choice,) = (await chat(page, tools=[TOOL], **limit))["choices"]
    chunks = [c["choices"][0] for c in await page.stream("chat.completions", messages=HI, tools=[TOOL], **limit)]
    text = "".join(chunk["delta"].get("content", "") for chunk in chunks)
    reason = "length" if "max_tokens" in limit else "stop"
    assert (text, chunks[-1]["finish_reason"]) == ("Let me look.", reason)
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Let me look.", reason)
    assert not any("tool_calls" in chunk["delta"] for chunk in chunks)
    assert "tool_calls" not in choice["message"]


@pytest.mark.parametrize(
    ("end", "arguments", "reason"), [("{", "{", "stop"), ('"arguments": ', "", "stop"), ("{}}", "{}", "tool_calls")]
)
async def test_a_call_that_a_stopping_rule_cuts_is_not_to_be_run(
    page: Page, monkeypatch: pytest.MonkeyPatch, end: str, arguments: str, reason: str
) -> None:
    says_a_call(page, monkeypatch, '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')
    stops_when(monkeypatch, lambda ids, text: text.endswith(end) and "arg" in text)
    (choice,) = (await chat(page, tools=[TOOL]))["choices"]
    calls = choice["message"].get("tool_calls", [])
    assert "".join(call["function"]["arguments"] for call in calls) == arguments
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", reason)


@pytest.mark.parametrize(
    ("arguments", "cut", "whole"),
    [("{}", True, True), ("", False, True), ("", True, False), ('{"a": ' + "[" * 100_000, True, False)],
)
def test_calls_that_may_run(arguments: str, cut: bool, whole: bool) -> None:
    """Arguments may be missing, and may be nested deeper than Python's parser can read."""
    message = Message()
    function = {"name": "look", "arguments": arguments}
    message.add({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
    assert message.calls_whole(cut=cut) == whole


async def test_a_journal_of_one_batch_is_parsed_in_parts(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsers copy the rest of a text at each marker: a long text at once takes the square of its length."""
    pushed: list[str] = []
    push = PlainParser.push

    def recorded(parser: PlainParser, text: str) -> list[Delta]:
        pushed.append(text)
        return push(parser, text)

    monkeypatch.setattr(PlainParser, "push", recorded)
    ids = page.engine.tokenizer.encode("word " * 1000)
    journal = {"answer": {"root": "x", "created": 5}, "choices": [{"seed": 1, "batches": [ids], "closed": True}]}
    answer = await page.call("completions", request={"prompt": "a"}, resume=journal)
    assert answer["choices"][0]["text"] == "".join(pushed) == "word " * 1000
    assert max(map(len, pushed)) <= 64 * len("word ")


async def test_logprobs_go_with_their_text(page: Page) -> None:
    answer = await chat(page, logprobs=True, top_logprobs=2)
    content = answer["choices"][0]["logprobs"]["content"]
    assert "".join(e["token"] for e in content) == HELLO
    assert [len(e["top_logprobs"]) for e in content] == [2] * len(content)
    page.engine.size = 1
    for stop in ("zzz", " can I", "help?", "Hel"):
        chunks = await page.stream("chat.completions", messages=HI, logprobs=True, stop=[stop])
        choices = [c["choices"][0] for c in chunks if c["choices"]]
        text = "".join(c["delta"].get("content", "") for c in choices)
        tokens = "".join(e["token"] for c in choices if c["logprobs"] for e in c["logprobs"]["content"])
        assert text == HELLO.split(stop)[0]
        assert tokens.startswith(text)
        sent = 0
        for c in choices:  # no token's logprob comes before its text
            sent += len(c["delta"].get("content", ""))
            tokens = tokens[sum(len(e["token"]) for e in (c["logprobs"] or {"content": []})["content"]) :]
    answer = await page.call("completions", request={"prompt": "x", "logprobs": 1, "max_tokens": 99})
    found = answer["choices"][0]["logprobs"]
    assert "".join(found["tokens"]) == HELLO + "<|im_end|>"  # so a request for one token always has probabilities
    assert found["text_offset"] == [len("".join(found["tokens"][:i])) for i in range(len(found["tokens"]))]


async def test_an_answer_continues_its_beginning(page: Page) -> None:
    begun = [*HI, {"role": "assistant", "content": "Well, I"}]
    request = {"messages": begun, "continue_final_message": True, "max_tokens": 3}
    answer = await page.call("chat.completions", request=request)
    engine: Any = page.engine
    assert engine.tokenizer.decode(engine.prompts[-1]).endswith("assistant\nWell, I")
    assert not answer["choices"][0]["message"]["content"].startswith("Well, I")
    await page.call("chat.completions", request={"messages": begun, "max_tokens": 3})
    assert not engine.tokenizer.decode(engine.prompts[-1]).endswith("Well, I")


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": HI},
        {"messages": [{"role": "assistant", "content": "Well"}]},
        {"messages": [*HI, {"role": "assistant", "content": None}]},
        {"messages": [*HI, {"role": "assistant", "content": "{"}], "tools": [TOOL]},
    ],
    ids=["question last", "nothing before", "no text", "tools"],
)
async def test_what_cannot_be_continued_is_refused(page: Page, wrong: dict[str, Any]) -> None:
    answer = await page.call("chat.completions", request={**wrong, "continue_final_message": True})
    assert answer["error"]["param"] == "continue_final_message"


async def test_truncation_drops_the_oldest_turns(page: Page) -> None:
    messages = [{"role": "system", "content": "Be kind."}]
    for i in range(12):
        messages += [
            {"role": "user", "content": f"Question {i} about things."},
            {"role": "assistant", "content": "Yes."},
        ]
    messages.append({"role": "user", "content": "Last?"})
    assert await page.code("chat.completions", request={"messages": messages}) == "context_length_exceeded"
    answer = await page.call("chat.completions", request={"messages": messages, "truncation": "auto", "max_tokens": 20})
    engine: Any = page.engine
    text = engine.tokenizer.decode(engine.prompts[-1])
    assert "Be kind." in text
    assert "Question 0" not in text
    assert "Question 11" in text
    assert len(engine.prompts[-1]) + 20 <= engine.context_length
    asked = engine.asked[-1]
    assert engine.tokenizer.decode(engine.prompts[-1][: asked.keep]).endswith("Be kind.<|im_end|>\n")
    assert answer["usage"]["prompt_tokens_details"]["truncated_tokens"] > 7
    long = await page.call("completions", request={"prompt": [5] * 500, "truncation": "auto", "max_tokens": 20})
    assert len(engine.prompts[-1]) == engine.context_length - 20
    assert long["usage"]["prompt_tokens_details"]["truncated_tokens"] == 500 - 180 + 7
    whole = await page.call("chat.completions", request={"messages": HI, "truncation": "auto"})
    assert whole["usage"]["prompt_tokens_details"]["truncated_tokens"] == 7


async def respond(page: Page, **request: Any) -> Any:
    return await page.call("responses", request={"input": "Hi", **request})


async def test_responses_have_the_shapes_of_openai(page: Page) -> None:
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter

    whole = await respond(page, instructions="Be kind.", top_logprobs=1, include=["message.output_text.logprobs"])
    parsed = Response.model_validate(whole)
    assert parsed.output_text == HELLO
    assert parsed.usage is not None
    assert parsed.usage.output_tokens == len(page.engine.tokenizer.encode(HELLO)) + 1
    assert "Be kind." in page.engine.tokenizer.decode(page.engine.prompts[-1])
    assert "".join(e["token"] for e in whole["output"][0]["content"][0]["logprobs"]) == HELLO
    events = await page.stream("responses", input="Hi")
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in events:
        adapter.validate_python(event)
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == HELLO
    assert events[-1]["response"]["status"] == "completed"
    cut = await respond(page, max_output_tokens=2)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


async def test_responses_take_items(page: Page) -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Look it up"}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "found it"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "There."}]},
        {"role": "user", "content": "More"},
    ]
    await respond(page, input=items)
    text = page.engine.tokenizer.decode(page.engine.prompts[-1])
    assert '{"name": "look", "arguments": {"a": 1}}' in text
    assert "found it" in text
    assert text.index("There.") < text.index("More")


def test_the_thoughts_before_a_message_are_its_own() -> None:
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    said = {"role": "assistant", "content": "There."}
    asked = responses_request(
        {"input": [thought, said, said, {"role": "user", "content": "More"}], "max_tool_calls": 1}
    )
    assert isinstance(asked.request, ChatRequest)
    assert asked.request.messages[:2] == [{**said, "reasoning_content": "Hm."}, said]


async def test_wrong_responses_name_their_field(page: Page) -> None:
    for request, code, param in (
        ({"input": 5}, "invalid_type", "input"),
        ({"input": []}, "empty_messages", "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"input": [{"type": "image"}]}, "unsupported_parameter", "input[0].type"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"previous_response_id": "x"}, "unsupported_parameter", "previous_response_id"),
        ({"background": True}, "unsupported_parameter", "background"),
        ({"text": {"verbosity": "low"}}, "unsupported_parameter", "text.verbosity"),
        ({"tools": [{"type": "web_search"}]}, "invalid_value", "tools[0].type"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"nonsense": 1}, "unsupported_parameter", "nonsense"),
        ({"stream": 5}, "invalid_type", "stream"),
    ):
        answer = await respond(page, **request)
        assert (answer["error"]["code"], answer["error"]["param"]) == (code, param), request
