"""Tools and thinking in each kind of template: its dialect, the parsing of its answers, and its grammar."""

import functools
import json
import random
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from app.answers.dialects import Dialect, dialect_of
from app.answers.parsing import Parser
from app.constrain import effort, grammar_cache
from app.openai.answers import Message
from app.openai.formats import Format
from app.openai.requests import chat_request
from app.openai.tools import Tools
from py_engine.errors import WispError
from py_engine.text.chat_template import CHATML, ChatTemplate
from tests.support.grammar_matcher import run

HI = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}},
              "required": ["city"], "additionalProperties": False}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}},
    {
        "type": "function",
        "function": {"name": "get.time", "parameters": {"type": "object", "additionalProperties": False}},
    },
]
PARIS, ROME = '{"city": "Paris {\\"x\\"}", "n": 2}', '{"city": "Rome"}'
LOOP = "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
T = "\uff5ctool▁"


def tagged(call: str, argument: str, between: str) -> str:
    """Both calls, with arguments between tags. `call`: of ARGUMENTS, which are each `argument` of KEY and VALUE."""
    city, n, rome = (
        argument.replace("KEY", key).replace("VALUE", value)
        for key, value in (("city", 'Paris {"x"}'), ("n", "2"), ("city", "Rome"))
    )
    return call.replace("ARGUMENTS", city + n) + between + call.replace("ARGUMENTS", rome)


# name -> (what its template's text has, an answer with two calls (one where only one is possible), text before a call?)
KINDS: dict[str, tuple[str, str, bool]] = {
    "hermes": ("<tool_call>", f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
               f'<tool_call>\n{{"name": "weather", "arguments": {ROME}}}\n</tool_call>', True),
    "llama": ('"parameters" ipython', f'{{"name": "weather", "parameters": {PARIS}}}; '
              f'{{"name": "weather", "parameters": {ROME}}}', False),
    "mistral": ("[TOOL_CALLS]", f'[TOOL_CALLS][{{"name": "weather", "arguments": {PARIS}}}, '
                f'{{"name": "weather", "arguments": {ROME}}}]', True),
    "mistral-args": ("[TOOL_CALLS][ARGS]", f"[TOOL_CALLS]weather[ARGS]{PARIS}[TOOL_CALLS]weather[ARGS]{ROME}", True),
    "functionary": (">>>all\\n", f">>>weather\n{PARIS}>>>weather\n{ROME}", True),
    "function-tag": ("<function=x></function> python_tag",
                     f"<function=weather>{PARIS}</function><function=weather>{ROME}</function>", True),
    "deepseek": (f"<{T}calls▁begin\uff5c>```json",
                 f"<{T}calls▁begin\uff5c><{T}call▁begin\uff5c>function<{T}sep\uff5c>weather\n```json\n{PARIS}\n```"
                 f"<{T}call▁end\uff5c>\n<{T}call▁begin\uff5c>function<{T}sep\uff5c>weather\n```json\n{ROME}\n```"
                 f"<{T}call▁end\uff5c><{T}calls▁end\uff5c>", True),
    "deepseek-3.1": (f"<{T}calls▁begin\uff5c>",
                     f"<{T}calls▁begin\uff5c><{T}call▁begin\uff5c>weather<{T}sep\uff5c>{PARIS}<{T}call▁end\uff5c>"
                     f"<{T}call▁begin\uff5c>weather<{T}sep\uff5c>{ROME}<{T}call▁end\uff5c><{T}calls▁end\uff5c>", True),
    "granite": ("<|tool_call|>", f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, '
                f'{{"name": "weather", "arguments": {ROME}}}]', True),
    "command-r": ("<|START_ACTION|>", '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", '
                  f'"parameters": {PARIS}}},\n    {{"tool_call_id": "0", "tool_name": "weather", "parameters": {ROME}}}'
                  "\n]<|END_ACTION|>", True),
    "lfm2": ("<|tool_list_start|>", '<|tool_call_start|>[weather(city="Paris {\\"x\\"}", n=2), weather(city="Rome")]'
             "<|tool_call_end|>", True),
    "gemma": ("<|tool_call> call:", '<|tool_call>call:weather{city:<|"|>Paris {"x"}<|"|>,n:2}<tool_call|>'
              '<|tool_call>call:weather{city:<|"|>Rome<|"|>}<tool_call|>', True),
    "apriel": ("<tool_calls>[ <tool_call>", f'<tool_calls>[{{"name": "weather", "arguments": {PARIS}}}, '
               f'{{"name": "weather", "arguments": {ROME}}}]</tool_calls>', True),
    "nemotron-2": ("<TOOLCALL>[", f'<TOOLCALL>[{{"name": "weather", "arguments": {PARIS}}}, '
                   f'{{"name": "weather", "arguments": {ROME}}}]</TOOLCALL>', True),
    "apertus": ("<|tools_prefix|>", f'<|tools_prefix|>[{{"weather": {PARIS}}}, {{"weather": {ROME}}}]<|tools_suffix|>',
                True),
    "qwen-xml": ("<tool_call> <function= <parameter=", tagged(
        "<tool_call>\n<function=weather>\nARGUMENTS</function>\n</tool_call>",
        "<parameter=KEY>\nVALUE\n</parameter>\n", "\n"), True),
    "seed": ("<seed:tool_call> <function=", tagged(
        "<seed:tool_call>\n<function=weather>\nARGUMENTS</function>\n</seed:tool_call>",
        "<parameter=KEY>VALUE</parameter>\n", "\n"), True),
    "glm": ("<tool_call> <arg_key>", tagged(
        "<tool_call>weather\nARGUMENTS</tool_call>",
        "<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n", "\n"), True),
    "glm-4.7": ("<tool_call> </arg_key><arg_value>", tagged(
        "<tool_call>weatherARGUMENTS</tool_call>", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>", ""), True),
    "harmony": ("<|channel|><|message|>",
                f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{PARIS}", False),
}  # fmt: skip

# Kinds whose values, or arguments, are known only when they have ended: what they give of the call that is cut off.
WHOLE = {"lfm2": '{"city": ', "gemma": ""}


def tools_of(**more: Any) -> Tools:
    return chat_request({"messages": HI, "tools": TOOLS, **more}).tools


@functools.cache
def template(kind: str) -> ChatTemplate:
    return ChatTemplate(LOOP + "{# " + KINDS[kind][0] + " #}")


def dialect(kind: str, **more: Any) -> Dialect:
    return dialect_of(template(kind), tools_of(**more))


def parsed(parser: Parser, text: str, seed: int) -> dict[str, Any]:
    """Parse a text that arrives in random pieces; return the message."""
    rng = random.Random(seed)
    message, at = Message(), 0
    while at < len(text):
        size = rng.choice([1, 1, 2, 3, 5, 9, 30])
        for delta in parser.push(text[at : at + size]):
            assert delta
            message.add(delta)
        at += size
    for delta in parser.finish():
        message.add(delta)
    return message.as_dict()


def calls_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    calls = message.get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


@pytest.mark.parametrize("kind", KINDS)
def test_calls_are_parsed_while_they_stream(kind: str) -> None:
    _, answer, after_text = KINDS[kind]
    found = dialect(kind)
    assert found.syntax.name == kind
    assert found.template_tools()
    want = [("weather", PARIS), ("weather", ROME)][: answer.count("weather")]
    for seed in range(60):
        message = parsed(found.parser("", True), answer, seed)
        assert calls_of(message) == want, seed
        assert message["content"] is None
        if after_text:
            said = ">>>all\nLet me see: a < b.\n" if kind == "functionary" else "Let me see: a < b.\n"
            message = parsed(found.parser("", True), said + answer, seed)
            assert calls_of(message) == want
            assert message["content"] == "Let me see: a < b."


@pytest.mark.parametrize("kind", KINDS)
def test_tool_arguments_stream_in_pieces(kind: str) -> None:
    parser = dialect(kind).parser("", True)
    deltas = [delta for char in KINDS[kind][1] for delta in parser.push(char)]
    parts = [c for d in deltas for c in d.get("tool_calls", []) if c["index"] == 0]
    assert parts[0]["function"] == {"name": "weather", "arguments": ""}
    assert parts[0]["id"]
    assert all("id" not in part for part in parts[1:])
    assert len(parts) > {"lfm2": 5, "gemma": 1}.get(kind, len(PARIS) / 3)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_calls_are_read_alike_however_they_arrive(kind: str) -> None:
    """Parts of an answer that are repeated, lost or in another order, and heads that do not end."""
    parts = re.findall(r"<[^<>\s]+>|\[[A-Z_]+\]|\w+|\s+|.", KINDS[kind][1], re.DOTALL)
    for seed in range(40):
        rng = random.Random(seed)
        at, times = rng.randrange(len(parts)), rng.choice([0, 1, 40, 400])
        text = "".join([*parts[:at], *[rng.choice(parts) for _ in range(times)], *parts[max(0, at - 9) :], " end"])
        whole = Message()
        parser = dialect(kind).parser("", True)
        for delta in (*parser.push(text), *parser.finish()):
            whole.add(delta)
        pieces = parsed(dialect(kind).parser("", True), text, seed)
        assert pieces["content"] == whole.as_dict()["content"], seed
        assert calls_of(pieces) == calls_of(whole.as_dict()), seed


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_calls_is_content(kind: str) -> None:
    for text in ("Just text.", "a < b > c {d} [e] to=", "", "{", "<", "  two  words  "):
        for seed in range(10):
            message = parsed(dialect(kind).parser("", True), text, seed)
            assert "tool_calls" not in message
            if kind != "harmony":
                assert message["content"] == text
    cut = KINDS[kind][1][: KINDS[kind][1].index("Paris") + 2]  # the token limit ends the answer here
    message = parsed(dialect(kind).parser("", True), cut, 1)
    assert calls_of(message) == [("weather", WHOLE.get(kind, '{"city": "Pa'))]


def rules_of(dialect: Dialect, form: Format | None, prompt: str = "") -> str:
    """The grammar of an answer to a prompt."""
    complete = dialect.rules(form)
    assert complete is not None
    return complete(prompt)


def test_answers_are_held_to_the_tools() -> None:
    jobs, wanted = [], []
    for kind, (_, answer, after_text) in KINDS.items():
        free, must, one = dialect(kind), dialect(kind, tool_choice="required"), dialect(kind, parallel_tool_calls=False)
        named = dialect(kind, tool_choice={"type": "function", "function": {"name": "get.time"}})
        other_type = answer.replace('"n": 2', '"n": "2"', 1) if PARIS in answer else answer.replace("2", '"2"', 1)
        wrong = [answer.replace("weather", "cooking", 1), other_type]
        text = ["Just text."] if after_text or kind == "llama" else []
        two = [answer] if answer.count("weather") > 1 else []
        final = "<|channel|>final<|message|>Just text."
        for found, good, bad in (
            (free, [answer, *text, *([final] if kind == "harmony" else [])], wrong),
            (must, [answer], [*wrong, "Just text.", final]),
            (one, text, [*wrong, *two]),
            (named, [], [answer, "Just text."]),
        ):
            rules = rules_of(found, None)
            jobs.append({"grammar": rules, "texts": good + bad})
            wanted.append((kind, good + bad, [True] * len(good) + [False] * len(bad)))
    for (kind, texts, want), result in zip(wanted, run(jobs), strict=True):
        assert result.get("texts") == want, (kind, texts, result)


@pytest.mark.parametrize("kind", ["hermes", "llama", "harmony"])
@pytest.mark.parametrize("form", [None, Format("regex", "[a-z]{3,9}")])
def test_rules_that_take_too_many_steps_are_an_error_of_the_request(
    kind: str, form: Format | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the steps end: in a schema, between two, or when the prompt is known."""
    monkeypatch.setattr(grammar_cache, "_recent", OrderedDict())  # other tests may have written these rules
    found = dialect(kind)
    codes = set()
    for most in range(0, 100_000, 19):
        monkeypatch.setattr(effort, "MAX_EFFORT", most)
        try:
            rules_of(found, form)
        except WispError as error:
            codes.add(error.code)
        else:
            break
    assert 500 < most < 99_000
    assert codes == {"unsupported_parameter"}


def test_a_response_format_with_tools() -> None:
    form = Format("regex", "[0-9]+")
    grammar = rules_of(dialect("hermes"), form)
    (result,) = run([{"grammar": grammar, "texts": ["12", KINDS["hermes"][1], "text"]}])
    assert result["texts"] == [True, True, False]
    assert dialect_of(ChatTemplate(LOOP), Tools()).rules(None) is None


@pytest.mark.parametrize("kind", KINDS)
def test_tools_that_may_not_be_called(kind: str) -> None:
    """The model sees them only where the token that begins a call can be banned."""
    none = functools.partial(dialect_of, template(kind), tools_of(tool_choice="none"))
    assert none().template_tools() is None
    trigger = none().syntax.trigger
    assert none().banned is None
    found = none({trigger})
    if kind == "functionary":  # ">>>" begins its texts, too
        assert (found.banned, found.template_tools()) == (None, None)
    else:
        assert found.banned == trigger
        assert found.template_tools()
    assert dialect_of(template(kind), tools_of(), {trigger}).banned is None


THINKS = LOOP + "{# <think></think> <tool_call> #}"


def test_thinking_is_split_off() -> None:
    found = dialect_of(ChatTemplate(THINKS), tools_of())
    call = KINDS["hermes"][1]
    for prompt, text, reasoning, content, calls in (
        ("", "<think>\nhm <b>\n</think>\n\nSo: 5", "hm <b>\n", "So: 5", 0),
        ("<think>\n", "hm\n</think>\n\nSo: 5", "hm\n", "So: 5", 0),
        ("", "So: 5 <think>", None, "So: 5 <think>", 0),
        ("", "\n<think>hm</think>" + call, "hm", None, 2),
        ("<think>", "cut short", "cut short", "", 0),
        ("", "<thi", None, "<thi", 0),
    ):
        for seed in range(30):
            message = parsed(found.parser(prompt, True), text, seed)
            assert message.get("reasoning_content") == reasoning, text
            assert message["content"] == content
            assert len(message.get("tool_calls", [])) == calls
    whole = parsed(found.parser("", False), "<think>hm</think>5", 1)
    assert whole["content"] == "<think>hm</think>5"


def test_gemma_s_thoughts_are_split_off() -> None:
    found = dialect_of(ChatTemplate(LOOP + "{{ '<|channel>thought\\n<channel|>' }}"), Tools())
    assert {"<|channel>", "<channel|>"} <= set(found.markers)
    for seed in range(20):
        message = parsed(found.parser("", True), "<|channel>thought\nhm\n<channel|>So: 5", seed)
        assert (message["reasoning_content"], message["content"]) == ("hm\n", "So: 5")
        answer = parsed(found.parser("<|channel>thought\n<channel|>", True), "So: 5", seed)
        assert (answer.get("reasoning_content"), answer["content"]) == (None, "So: 5")
    rules = rules_of(found, Format("regex", "[0-9]+"))
    texts = ["12", "<|channel>thought\nso\n<channel|>12", "<|channel>12"]
    assert run([{"grammar": rules, "texts": texts}])[0]["texts"] == [True, True, False]


def test_a_response_format_applies_after_thinking() -> None:
    found = dialect_of(ChatTemplate(THINKS), Tools())
    form = Format("regex", "[0-9]+")
    jobs = [
        {"grammar": rules_of(found, form), "texts": ["12", "<think>so, a </thin k></think>\n\n12", "hm", "<think>12"]},
        {"grammar": rules_of(found, form, "...<think>\n"), "texts": ["hm\n</think>\n\n12", "12", "hm</think>x"]},
        {"grammar": rules_of(found, form, "<think>\n\n</think>\n\n"), "texts": ["12", "<think></think>12"]},
        {"grammar": rules_of(dialect("harmony"), form), "texts": [
            "<|channel|>final<|message|>12", "12",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>12"]},
    ]  # fmt: skip
    results = [result["texts"] for result in run(jobs)]
    assert results == [[True, True, False, False], [True, False, False], [True, False], [True, False, True]]


def test_harmony() -> None:
    found = dialect("harmony")
    text = (
        "<|channel|>analysis<|message|>They want the weather.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        f"I'll look.<|end|><|start|>assistant to=functions.weather<|channel|>commentary json<|message|>{PARIS}"
    )
    for seed in range(40):
        message = parsed(found.parser("", True), text, seed)
        assert message["reasoning_content"] == "They want the weather."
        assert message["content"] == "I'll look."
        assert calls_of(message) == [("weather", PARIS)]
        plain = parsed(found.parser("", True), "<|channel|>final<|message|>It is 5 < 6.", seed)
        assert plain["content"] == "It is 5 < 6."
        assert parsed(found.parser("", True), "No channels.", seed)["content"] == "No channels."


TAGGED = ["qwen-xml", "seed", "glm", "glm-4.7"]
VALUES = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "any"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "maybe": {"type": ["boolean", "null"]},
    },
    "required": ["text", "list"],
}


def of_values(kind: str, parameters: dict[str, Any]) -> Dialect:
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    return dialect_of(template(kind), chat_request({"messages": HI, "tools": tools, "tool_choice": "required"}).tools)


def written(kind: str, values: dict[str, str]) -> str:
    """A call of f with these texts as values."""
    _, answer, _ = KINDS[kind]
    call = answer[: answer.index("Rome")].rpartition("weather")[2]  # from after the name to before the value
    before = answer[: answer.index("weather")] + "f" + call[: call.index("<", 2 if call[0] == ">" else 0)]
    argument = call[call.index("<", 2 if call[0] == ">" else 0) :]
    after = answer[answer.rindex("Rome") + 4 :]
    end = after[: after.index(">") + 1 + (kind != "glm-4.7")]
    return before + "".join(argument.replace("city", k) + v + end for k, v in values.items()) + after[len(end) :]


@pytest.mark.parametrize("kind", TAGGED)
def test_values_between_tags_are_texts_or_json(kind: str) -> None:
    found = of_values(kind, VALUES)
    text = ' a\n"b" <x> é\\n{"c": 1}\n\n  z'
    good = [
        written(kind, {"text": text, "list": "[1, 2]"}),
        written(kind, {"text": "", "unit": "f", "list": "[]", "maybe": "null"}),
        '{"name": "f"}',
    ]
    bad = [
        written(kind, {"text": text}),
        written(kind, {"list": "[1]", "text": text}),
        written(kind, {"text": text, "unit": "k", "list": "[]"}),
        written(kind, {"text": text, "list": "[1.5]"}),
        written(kind, {"text": text, "list": "[1]", "other": "1"}),
    ]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [*good, *bad]}])
    assert result["texts"] == [True, True, False, *[False] * len(bad)]
    wanted: tuple[dict[str, Any], ...] = (
        {"text": text, "list": [1, 2]},
        {"text": "", "unit": "f", "list": [], "maybe": None},
    )
    for answer, want in zip(good, wanted, strict=False):
        for seed in range(60):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), answer, seed))
            assert (name, json.loads(arguments)) == ("f", want)


@pytest.mark.parametrize("kind", TAGGED)
def test_json_takes_the_place_of_tags(kind: str) -> None:
    """Where the schema says more than its properties, and where a model writes it by itself."""
    limited = VALUES | {"properties": VALUES["properties"] | {"text": {"type": "string", "maxLength": 3}}}  # type: ignore[operator]
    close = "</seed:tool_call>" if kind == "seed" else "</tool_call>"
    answer = f'{close.replace("/", "")}\n{{"name": "f", "arguments": {{"text": "abc", "list": [1]}}}}\n{close}'
    texts = [answer, answer.replace("abc", "abcd"), written(kind, {"text": "abc", "list": "[1]"})]
    (result,) = run([{"grammar": rules_of(of_values(kind, limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]
    for seed in range(20):
        parser = of_values(kind, VALUES).parser("", True)
        assert calls_of(parsed(parser, answer, seed)) == [("f", '{"text": "abc", "list": [1]}')]


def test_calls_of_python() -> None:
    found = of_values("lfm2", VALUES)
    begin, end = "<|tool_call_start|>[f(", ")]<|tool_call_end|>"
    good = {
        'text="a, (b) \\"c\\"", list=[1, 2]': {"text": 'a, (b) "c"', "list": [1, 2]},
        'text="", unit="f", list=[], maybe=None': {"text": "", "unit": "f", "list": [], "maybe": None},
        'text="é", list=[], maybe=True': {"text": "é", "list": [], "maybe": True},
    }
    bad = ['text="a"', 'list=[], text="a"', 'text="a", unit="k", list=[]', 'text="a", list=[1.5]', "list=[]"]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [begin + each + end for each in (*good, *bad)]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    also = {
        "text='it\\'s \"x\"', list=[True, {'a': None}]": {"text": 'it\'s "x"', "list": [True, {"a": None}]},
        "text = two words , list=[[1], (2)]": {"text": "two words", "list": "[[1], (2)]"},
        "": {},
    }
    for text, want in (good | also).items():
        for seed in range(30):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), begin + text + end, seed))
            assert (name, json.loads(arguments)) == ("f", want)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"text": 'a"', "list": [True, None]}}}
    said: list[dict[str, Any]] = [*HI, {"role": "assistant", "content": "", "tool_calls": [call]}]
    assert template("lfm2").render(found.messages(said)) == f'Hi{begin}text="a\\"", list=[True, None]{end}'
    answer = '<|tool_call_start|>[{"name": "f", "arguments": {"text": "abc", "list": [1]}}]<|tool_call_end|>'
    assert calls_of(parsed(found.parser("", True), answer, 1)) == [("f", '{"text": "abc", "list": [1]}')]


@pytest.mark.parametrize("kind", ["hermes", "granite", "command-r", "deepseek-3.1", "lfm2", "gemma"])
def test_calls_are_written_where_the_template_omits_them(kind: str) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "weather", "arguments": json.loads(arguments)}}
        for arguments in (PARIS, ROME)
    ]
    messages: list[dict[str, Any]] = [*HI, {"role": "assistant", "content": "", "tool_calls": calls}]
    said = dialect(kind).messages(messages)
    assert (said[1]["content"] == KINDS[kind][1]) == (kind != "gemma"), said
    writes = LOOP + "{% for m in messages %}{{ m.tool_calls }}{% endfor %}{# " + KINDS[kind][0] + " #}"
    assert dialect_of(ChatTemplate(writes), tools_of()).messages(messages) == messages


def test_calls_of_gemma() -> None:
    nested = {
        "type": "object",
        "properties": {"b": {"type": "string"}, "a": {"type": "array", "items": {"type": "string"}}},
    }
    found = of_values("gemma", {**VALUES, "properties": VALUES["properties"] | {"o": nested}})  # type: ignore[operator]
    begin, end = "<|tool_call>call:f", "<tool_call|>"
    good: dict[str, Any] = {
        '{list:[1,2],text:<|"|>a: {b},\n"c" \\<|"|>}': {"list": [1, 2], "text": 'a: {b},\n"c" \\'},
        '{list:[],maybe:null,o:{a:[<|"|>x<|"|>,<|"|><|"|>],b:<|"|>y<|"|>},text:<|"|><|"|>,unit:<|"|>f<|"|>}': {
            "list": [], "maybe": None, "o": {"a": ["x", ""], "b": "y"}, "text": "", "unit": "f"},
    }  # fmt: skip
    text = 'text:<|"|>a<|"|>'
    bad = [f"{{{text}}}", f"{{{text},list:[]}}", f'{{list:[],{text},unit:<|"|>k<|"|>}}', f"{{list:[1.5],{text}}}"]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [begin + each + end for each in (*good, *bad)]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    for answer, want in (good | {'{"text": "a", list:[1]}': {"text": "a", "list": [1]}}).items():
        for seed in range(30):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), begin + answer + end, seed))
            assert (name, json.loads(arguments)) == ("f", want)
    assert {"<|tool_call>", "<tool_call|>"} <= set(found.markers)
    limited = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 3}}, "required": ["text"]}
    texts = [f"{begin}{each}{end}" for each in ('{"text": "abc"}', '{"text": "abcd"}', '{text:<|"|>abc<|"|>}')]
    (result,) = run([{"grammar": rules_of(of_values("gemma", limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]


def test_values_of_unknown_arguments_are_json_where_they_are() -> None:
    parser = dialect("qwen-xml").parser("", True)
    answer = written("qwen-xml", {"a": "[1, 2]", "b": "two words", "c": '"quoted"', "d": "1e5"})
    ((_, arguments),) = calls_of(parsed(parser, answer, 1))
    assert json.loads(arguments) == {"a": [1, 2], "b": "two words", "c": '"quoted"', "d": 1e5}


@pytest.mark.parametrize(("golden", "kind"), [("qwen3", "hermes"), ("llama-3.2", "llama")])
def test_real_templates(golden: str, kind: str) -> None:
    path = Path(__file__).parents[1] / "golden" / "chat" / f"{golden}.json"
    found = dialect_of(ChatTemplate(json.loads(path.read_text())["template"]), tools_of())
    assert found.syntax.name == kind
    assert found.template_tools()


def test_a_template_that_only_looks_like_another_s_gets_tools_as_text() -> None:
    minimax = dialect_of(ChatTemplate(LOOP + "{# ]<]minimax[>[ <tool_call> #}"), tools_of())
    assert minimax.template_tools() is None


def test_templates_without_tools_get_them_as_text() -> None:
    template = ChatTemplate(CHATML)
    found = dialect_of(template, tools_of())
    assert found.template_tools() is None
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}
    messages: list[dict[str, Any]] = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "sunny"},
    ]
    text = template.render(found.messages(messages))
    assert text.startswith("<|im_start|>system\nYou may call functions")
    assert '"name": "weather"' in text
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>' in text
    assert "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>" in text
    assert calls_of(parsed(found.parser("", True), KINDS["hermes"][1], 1)) == [("weather", PARIS), ("weather", ROME)]
    without = dialect_of(template, Tools())
    assert without.messages(HI) == HI
    system = [{"role": "system", "content": "Be brief."}, *HI]
    told = found.messages(system)
    assert len(told) == 2
    assert told[0]["content"].startswith("Be brief.\n\nYou may")
