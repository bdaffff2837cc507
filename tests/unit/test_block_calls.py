"""Tool calls with tagged arguments in blocks of several: those of DeepSeek V3.2, V4 and others."""

import json
from functools import partial
from typing import Any

import pytest

from app.answers.dialect import Dialect
from app.answers.recognition import dialect_of
from app.openai.requests import chat_request
from py_engine.text.chat_template import ChatTemplate
from tests.support import call_kinds
from tests.support.call_kinds import (
    HI,
    KINDS,
    LOOP,
    PARIS,
    ROME,
    D,
    calls_of,
    dialect,
    parsed,
    rules_of,
    tools_of,
)
from tests.support.grammar_matcher import run

BLOCKS = ["deepseek-3.2", "deepseek-4", "minimax-m2", "hunyuan", "hunyuan-open", "kimi-k3", "k2-horizon"]
VALUES = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "flag": {"type": "boolean"},
    },
    "required": ["text", "list"],
}


of_values = partial(call_kinds.of_values, name="weather")


def parts_of(kind: str) -> tuple[str, str, str, str]:
    """Of the kind's first call: up to the first argument, an argument up to its value, the end tag, the rest.

    The rest is that of a block of one call.
    """
    _, answer, _ = KINDS[kind]
    tag = next(
        t for t in (f"<{D}parameter", "<parameter", "<arg_key", "<|open|>argument", "<ifm|arg_key") if t in answer
    )
    begin, value, rome = answer.index(tag), answer.index("Paris"), answer.index("Rome")
    second = answer.index(tag, begin + 1)
    end = answer[answer.index('"x"}') + 4 : second]
    return answer[:begin], answer[begin:value], end, answer[rome + len("Rome") + len(end) :]


def written(kind: str, values: dict[str, str]) -> str:
    """A call with these texts as values; only other values than strings begin with a bracket, digit or constant."""
    begin, argument, end, rest = parts_of(kind)
    parts = []
    for key, text in values.items():
        tag = argument.replace("city", key)
        types = {"[": "array", "{": "object", "true": "boolean", "null": "null", "12": "number"}
        if other := next((types[t] for t in types if text.startswith(t)), ""):
            tag = tag.replace('string="true"', 'string="false"').replace('type="string"', f'type="{other}"')
        parts.append(tag + text + end)
    return begin + "".join(parts) + rest


@pytest.mark.parametrize("kind", BLOCKS)
def test_values_of_a_block_are_texts_or_json(kind: str) -> None:
    found = of_values(kind, VALUES)
    text = ' a\n"b" <x> é\\n{"c": 1}\n\n  z'
    good: dict[str, dict[str, Any]] = {
        written(kind, {"text": text, "list": "[1, 2]"}): {"text": text, "list": [1, 2]},
        written(kind, {"text": "", "unit": "c", "list": "[]", "flag": "true"}): {
            "text": "", "unit": "c", "list": [], "flag": True},
    }  # fmt: skip
    bad = [
        written(kind, {"text": "x"}),
        written(kind, {"list": "[1]", "text": "x"}),
        written(kind, {"text": "x", "unit": "k", "list": "[]"}),
        written(kind, {"text": "x", "list": "[1.5]"}),
        written(kind, {"text": "x", "list": "[1]", "other": "1"}),
    ]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [*good, *bad]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    for answer, want in good.items():
        for seed in range(40):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), answer, seed))
            assert (name, json.loads(arguments)) == ("weather", want)


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_call_of_a_block_may_have_json(kind: str) -> None:
    """Where the schema says more than its properties, and where a model writes it by itself between other calls."""
    limited = VALUES | {"properties": VALUES["properties"] | {"text": {"type": "string", "maxLength": 3}}}  # type: ignore[operator]
    tagged = written(kind, {"text": "abc", "list": "[1]"})
    begin, _, _, rest = parts_of(kind)
    own = ('<|open|>json type="object"<|sep|>', "<|close|>json<|sep|>") if kind == "kimi-k3" else ("", "")
    answer = f'{begin}{own[0]}{{"text": "abc", "list": [1]}}{own[1]}{rest}'
    texts = [answer, answer.replace("abc", "abcd"), tagged]
    (result,) = run([{"grammar": rules_of(of_values(kind, limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]
    closing = dialect(kind).syntax.closing
    head, tail = begin[len(dialect(kind).syntax.trigger) :], rest.removesuffix(closing)
    first = KINDS[kind][1].removesuffix(rest)  # up to the last value
    first = first[: first.rindex(tail) + len(tail)]
    mixed = f"{first}{head}{own[0]}{ROME}{own[1]}{tail}{KINDS[kind][1][len(first) :]}"
    for seed in range(40):
        parser = of_values(kind, VALUES).parser("", True)
        assert calls_of(parsed(parser, answer, seed)) == [("weather", '{"text": "abc", "list": [1]}')]
        mine = parsed(dialect(kind).parser("", True), mixed, seed)
        assert calls_of(mine) == [("weather", PARIS), ("weather", ROME), ("weather", ROME)]
        assert mine["content"] is None


@pytest.mark.parametrize("kind", BLOCKS)
def test_text_after_a_block_is_content(kind: str) -> None:
    for seed in range(20):
        message = parsed(dialect(kind).parser("", True), KINDS[kind][1] + "\nDone.", seed)
        assert (message["content"], len(calls_of(message))) == ("Done.", 2)


def test_deepseek_s_tags_tell_strings_from_other_values() -> None:
    schema = {"type": "object", "properties": {"v": {"type": ["string", "integer", "null"]}}, "required": ["v"]}
    found = of_values("deepseek-3.2", schema)
    whole = written("deepseek-3.2", {"v": "12"})
    values = {whole: 12, whole.replace('string="false"', 'string="true"'): "12", whole.replace("12", "null"): None}
    bad = [whole.replace("12", "true"), whole.replace("12", '"12"')]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [*values, *bad]}])
    assert result["texts"] == [True] * 3 + [False] * 2
    unknown = of_values("deepseek-3.2", {"type": "object", "additionalProperties": True})
    for answer, want in values.items():
        for seed in range(20):
            for of in (found, unknown):
                ((_, arguments),) = calls_of(parsed(of.parser("", True), answer, seed))
                assert json.loads(arguments) == {"v": want}
    wrong = written("deepseek-3.2", {"flag": "true"}).replace('string="false"', 'string="true"')  # the schema decides
    ((_, arguments),) = calls_of(parsed(of_values("deepseek-3.2", VALUES).parser("", True), wrong, 1))
    assert json.loads(arguments) == {"flag": True}


def test_deepseek_s_calls_may_end_a_thought() -> None:
    """Its models at times call before they close the thought."""
    thinks = ChatTemplate(LOOP + f"{{# <think></think> <{D}tool_calls> #}}")

    def of(choice: str) -> Dialect:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": VALUES}}]
        return dialect_of(thinks, chat_request({"messages": HI, "tools": tools, "tool_choice": choice}).tools)

    call = written("deepseek-4", {"text": "abc", "list": "[1]"})
    texts = [
        f"hm{call}",
        f"hm</think>{call}",
        "hm</think>Hi",
        f"hm</think>Hi\n\n{call}",
        "hm",
        f"hm{call}</think>{call}",
    ]
    bad = f"hm{call.replace('[1]', '[x]')}"
    jobs = [
        {"grammar": rules_of(of(choice), None, "<think>"), "texts": [*texts, bad]} for choice in ("auto", "required")
    ]
    free, must = (result["texts"] for result in run(jobs))
    assert free == [True, True, True, True, True, False, False]
    assert must == [False, True, False, False, False, True, False]
    for seed in range(30):
        message = parsed(of("auto").parser("<think>", True), f"hm\n\n{call}", seed)
        assert (message["reasoning_content"].strip(), message["content"]) == ("hm", None)
        assert [json.loads(arguments) for _, arguments in calls_of(message)] == [{"text": "abc", "list": [1]}]
        message = parsed(of("required").parser("<think>", True), f"hm{call}</think>{call}", seed)
        assert (message["reasoning_content"], len(calls_of(message))) == (f"hm{call}", 1)


@pytest.mark.parametrize("kind", ["kimi", "ling", "deepseek-3.2"])
def test_calls_of_some_models_may_end_a_thought(kind: str) -> None:
    signs, call, _ = KINDS[kind]
    thinks = ChatTemplate(LOOP + "{# <think></think> " + signs + " #}")
    free, must = (dialect_of(thinks, tools_of(tool_choice=choice)) for choice in ("auto", "required"))
    texts = [f"hm{call}", f"hm</think>{call}", "hm</think>Hi", f"hm{call.replace('weather', 'cooking', 1)}"]
    jobs = [{"grammar": rules_of(found, None, "<think>"), "texts": texts} for found in (free, must)]
    assert [r["texts"] for r in run(jobs)] == [[True, True, True, False], [False, True, False, False]]
    for seed in range(20):
        message = parsed(free.parser("<think>", True), f"hm{call}", seed)
        assert (message["reasoning_content"], message["content"], len(calls_of(message))) == ("hm", None, 2)


def test_results_are_in_the_order_of_calls() -> None:
    """DeepSeek V4's template writes them without ids."""
    calls = [{"id": i, "type": "function", "function": {"name": "weather", "arguments": "{}"}} for i in "abc"]
    result = {i: {"role": "tool", "tool_call_id": i, "content": i} for i in "abcd"}
    user = {"role": "user", "content": "u"}
    three, one = ({"role": "assistant", "content": "", "tool_calls": given} for given in (calls, calls[2:]))
    said: list[dict[str, Any]] = [
        user,
        three,
        result["c"],
        user,
        result["b"],
        result["a"],
        one,
        result["d"],
        result["c"],
    ]
    for kind, want in (("deepseek-4", "aubcdc"), ("deepseek-3.2", "cubadc")):
        asked = [m["content"] for m in dialect(kind).messages(said) if m["role"] != "assistant"]
        assert "".join(asked) == "u" + want


def test_results_stand_in_the_answer_where_a_template_has_them_there() -> None:
    """As Gemma 4's first templates."""
    calls = [{"id": i, "type": "function", "function": {"name": f"f{i}", "arguments": "{}"}} for i in "ab"]
    called: dict[str, Any] = {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": calls,
        "reasoning_content": "hm",
    }
    results = [
        {"role": "tool", "tool_call_id": i, "content": c} for i, c in (("a", '{"t": 1}'), ("b", "sunny"), ("c", "x"))
    ]
    said = [
        *HI,
        called,
        *results,
        {"role": "assistant", "content": "So."},
        *HI,
        {**called, "tool_calls": calls[1:]},
        *HI,
    ]
    writes = LOOP + "{% for m in messages %}{{ m.tool_calls }}{% endfor %}{# <|tool_call> call: tool_responses"
    first, second = (dialect_of(ChatTemplate(f"{writes}{s} #}}"), tools_of()) for s in ("", " m.role == 'tool'"))
    assert second.messages(said) == said
    responses = [
        {"name": "fa", "response": {"t": 1}},
        {"name": "fb", "response": "sunny"},
        {"name": "c", "response": "x"},
    ]
    before = {"role": "assistant", "content": "Let me see."}
    assert first.messages(said) == [
        *HI, before, {**called, "content": "So.", "tool_responses": responses}, *HI,
        before, {**called, "tool_calls": calls[1:], "content": "", "tool_responses": []}, *HI]  # fmt: skip
    escaped = [*HI, called, {"role": "tool", "tool_call_id": "a", "content": '{"\\u003c": ["\\u003c|turn>", 1]}'}]
    (result,) = first.messages(escaped, lambda text: text.replace("<", "_"))[-1]["tool_responses"]
    assert result["response"] == {"_": ["_|turn>", 1]}
