"""The arguments of tool calls between tags, as Python's, and as Gemma's: their parsing and their grammar."""

import json
import time
from typing import Any

import pytest

from app.answers.calls import tagged_arguments
from app.answers.dialect import Dialect
from app.answers.recognition import dialect_of
from app.constrain.ebnf import literal
from app.constrain.effort import MAX_EFFORT, begin
from app.openai.requests import chat_request
from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate
from tests.support.call_kinds import (
    HI,
    KINDS,
    LOOP,
    PARIS,
    ROME,
    TAGGED,
    calls_of,
    dialect,
    of_values,
    parsed,
    rules_of,
    template,
    tools_of,
    written,
)
from tests.support.grammar_matcher import run

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


@pytest.mark.parametrize("kind", [*TAGGED, "minicpm"])
def test_strings_of_arrays_may_have_the_end_tag(kind: str) -> None:
    """The tag that comes after the array ends it."""
    items = {"type": "array", "items": {"type": "string"}}
    found = of_values(kind, {"type": "object", "properties": {"list": items}, "required": ["list"]})
    tags = ["</parameter>", "</arg_value>", "</param>", "<![CDATA[", "]]>", "]"]
    if kind == "minicpm":
        answer = f'<function name="f"><param name="list">{json.dumps(tags)}</param></function>'
    else:
        answer = written(kind, {"list": json.dumps(tags)})
    (result,) = run([{"grammar": rules_of(found, None), "texts": [answer]}])
    assert result["texts"] == [True]
    for seed in range(60):
        ((name, arguments),) = calls_of(parsed(found.parser("", True), answer, seed))
        assert (name, json.loads(arguments)) == ("f", {"list": tags})


@pytest.mark.parametrize(("kind", "tag"), [("seed", "</parameter>"), ("glm", "</arg_value>"), ("minicpm", "<]]>")])
def test_enumerated_texts_with_an_end_tag_are_written_in_json(kind: str, tag: str) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string", "enum": ["a", tag]}}, "required": ["text"]}
    found = of_values(kind, schema)
    syntax = found.syntax.arguments.with_json(found.syntax)
    answer = f"{syntax.trigger}{syntax.head.replace('%s', 'f')}{json.dumps({'text': tag})}{syntax.tail}"
    (result,) = run([{"grammar": rules_of(found, None), "texts": [answer]}])
    assert result["texts"] == [True]


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


def test_texts_in_sections() -> None:
    """MiniCPM5's texts with <, & or line breaks stand in a CDATA section, which may have the end tag in it."""
    unit = {"type": "string", "enum": ["c", "<f>"]}
    found = of_values("minicpm", VALUES | {"properties": VALUES["properties"] | {"unit": unit}})  # type: ignore[operator]
    begin, end = '<function name="f">', "</function>"
    text, items = '<param name="text">{}</param>', '<param name="list">{}</param>'
    section, inner = "<![CDATA[{}]]>", ' a\n"b" <x> & </param> ]] '
    good = {
        text.format('a "b" > c') + items.format("[1, 2]"): {"text": 'a "b" > c', "list": [1, 2]},
        text.format(section.format(inner)) + items.format("[]"): {"text": inner, "list": []},
        f'{text.format("")}<param name="unit">{section.format("<f>")}</param>{items.format("[]")}': {
            "text": "", "unit": "<f>", "list": [],
        },
    }  # fmt: skip
    bad = [text.format(char) + items.format("[]") for char in ("<", "&", "\n", section.format("a]]>"))]
    bad.append(f'{text.format("")}<param name="unit"><f></param>{items.format("[]")}')
    (result,) = run([{"grammar": rules_of(found, None), "texts": [begin + each + end for each in (*good, *bad)]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    also = {text.format(section.format("a]]") + section.format(">b")): {"text": "a]]>b"}}
    for inside, want in (good | also).items():
        for seed in range(60):
            ((name, arguments),) = calls_of(parsed(found.parser("", True), begin + inside + end, seed))
            assert (name, json.loads(arguments)) == ("f", want)


def test_json_takes_the_place_of_sections() -> None:
    limited = VALUES | {"properties": VALUES["properties"] | {"text": {"type": "string", "maxLength": 3}}}  # type: ignore[operator]
    answer = '<function name="f">{"text": "abc", "list": [1]}</function>'
    texts = [answer, answer.replace("abc", "abcd"), '<function name="f"><param name="text">abc</param></function>']
    (result,) = run([{"grammar": rules_of(of_values("minicpm", limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]
    for seed in range(20):
        parser = of_values("minicpm", VALUES).parser("", True)
        assert calls_of(parsed(parser, answer, seed)) == [("f", '{"text": "abc", "list": [1]}')]


def test_a_model_chooses_the_ids_of_its_calls() -> None:
    found = dialect("mistral-ids", tool_choice="required")

    def call(call_id: str) -> str:
        return f"[TOOL_CALLS]weather[CALL_ID]{call_id}[ARGS]{ROME}"

    first, second = "aB3dE6gH9", "000000001"
    bad = [call(first[:8]), call(first + "a"), call("aB3dE6g_9"), call(""), f"[TOOL_CALLS]weather[ARGS]{ROME}"]
    (result,) = run([{"grammar": rules_of(found, None), "texts": [call(first), *bad]}])
    assert result["texts"] == [True, *[False] * len(bad)]
    for seed in range(20):
        message = parsed(found.parser("", True), call(first) + call(second) + call(first), seed)
        ids = [each["id"] for each in message["tool_calls"]]
        assert ids[:2] == [first, second]
        assert ids[2] not in ids[:2]  # each has one of its own, to which its result refers
        assert len(ids[2]) == len(first)
    said: list[dict[str, Any]] = [*HI, {"role": "assistant", "content": "", "tool_calls": message["tool_calls"]}]
    text = template("mistral-ids").render(found.messages(said))
    assert text == f"Hi{call(first)}{call(second)}{call(ids[2])}"


def test_ids_of_kimi_name_the_tool_and_the_call() -> None:
    """Its template writes them before results."""
    message = parsed(dialect("kimi").parser("", True), KINDS["kimi"][1], 1)
    assert [each["id"] for each in message["tool_calls"]] == ["functions.weather:0", "functions.weather:1"]


def test_an_answer_of_gigachat_has_one_call() -> None:
    call = f'<|function_call|>{{"name": "weather", "arguments": {ROME}}}'
    for choice in ("required", "auto"):
        rules = rules_of(dialect("gigachat", tool_choice=choice), None)
        (result,) = run([{"grammar": rules, "texts": [call, call + call]}])
        assert result["texts"] == [True, False]


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
    limited = {"type": "object", "properties": {"text": {"type": "string", "maxLength": 3}}, "required": ["text"]}
    texts = [f"{begin}{each}{end}" for each in ('{"text": "abc"}', '{"text": "abcd"}', '{text:<|"|>abc<|"|>}')]
    (result,) = run([{"grammar": rules_of(of_values("gemma", limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]


def test_values_of_unknown_arguments_are_json_where_they_are() -> None:
    parser = dialect("qwen-xml").parser("", True)
    answer = written("qwen-xml", {"a": "[1, 2]", "b": "two words", "c": '"quoted"', "d": "1e5"})
    ((_, arguments),) = calls_of(parsed(parser, answer, 1))
    assert json.loads(arguments) == {"a": [1, 2], "b": "two words", "c": '"quoted"', "d": 1e5}


def of_schemas(kind: str, *schemas: dict[str, Any]) -> Dialect:
    tools = [{"type": "function", "function": {"name": f"f{i}", "parameters": s}} for i, s in enumerate(schemas)]
    return dialect_of(template(kind), chat_request({"messages": HI, "tools": tools, "tool_choice": "required"}).tools)


TEXT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize("kind", ["qwen-xml", "gemma", "lfm2"])
def test_schemas_of_more_than_properties_are_followed_as_json(kind: str) -> None:
    """Further properties, and a name that is none in Python: then all calls of a list are JSON."""
    further = {"type": "object", "additionalProperties": {"type": "integer"}}
    named = {"type": "object", "properties": {"a-b": {"type": "string"}}, "required": ["a-b"]}
    nested = {"type": "object", "properties": {"o": {"type": "object"}}, "required": ["o"]}
    in_json = {"qwen-xml": [True, False, False], "gemma": [True, False, True], "lfm2": [True, True, False]}
    begin, end = {
        "qwen-xml": ('<tool_call>\n{"name": "f0", "arguments": ', "}\n</tool_call>"),
        "gemma": ("<|tool_call>call:f0", "<tool_call|>"),
        "lfm2": ('<|tool_call_start|>[{"name": "f0", "arguments": ', "}]<|tool_call_end|>"),
    }[kind]
    for as_json, schema, arguments in zip(
        in_json[kind], (further, named, nested), ('{"x": 1}', '{"a-b": "v"}', '{"o": {"x": [1]}}'), strict=True
    ):
        answer = begin + arguments + end
        found = of_schemas(kind, schema, *([TEXT] if kind == "lfm2" else []))
        (result,) = run([{"grammar": rules_of(found, None), "texts": [answer]}])
        assert result["texts"] == [as_json], schema
        assert [json.loads(text) for _, text in calls_of(parsed(found.parser("", True), answer, 1))] == [
            json.loads(arguments)
        ]


@pytest.mark.parametrize("kind", ["qwen-xml", "glm", "gemma", "lfm2"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": {}}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [{}]},
        {"type": "object", "properties": {"a": {"type": "string", "enum": 5}}},
        {"type": "object", "properties": {"a": {"type": ["string", 1]}}},
        {"type": "object", "properties": []},
    ],
)
def test_schemas_that_are_none_get_their_error(kind: str, schema: dict[str, Any]) -> None:
    with pytest.raises(WispError) as error:
        of_schemas(kind, schema).rules(None)
    assert error.value.code == "invalid_value"


def test_an_end_within_a_text_does_not_end_it() -> None:
    text = "see </parameter> here </function>"
    answer = f"<tool_call>\n<function=f0>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    quoted = '<|tool_call>call:f0{a:<|"|>see <tool_call|> here<|"|>}<tool_call|>'
    for kind, call, want in (("qwen-xml", answer, text), ("gemma", quoted, "see <tool_call|> here")):
        found = of_schemas(kind, TEXT)
        assert run([{"grammar": rules_of(found, None), "texts": [call]}])[0]["texts"] == [True]
        for seed in range(30):
            message = parsed(found.parser("", True), call, seed)
            assert [json.loads(arguments) for _, arguments in calls_of(message)] == [{"a": want}]
            assert message["content"] is None


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]])
def test_parts_beside_calls_and_tools_stay(content: list[Any]) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "no JSON"}}
    said = [{"role": "assistant", "content": content, "tool_calls": [call]}]
    for found in (dialect("granite"), dialect_of(ChatTemplate(LOOP), tools_of())):
        (*_, answer) = found.messages(said)
        assert "no JSON" in answer["content"][-1]["text"]
        assert len(answer["content"]) == max(1, len(content))


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        ("gemma", '<|tool_call> <tool_call|> <|"|>'),
        ("glm", "<tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value>"),
        ("seed", "<seed:tool_call> </seed:tool_call> </function> </parameter>"),
        ("lfm2", "<|tool_call_start|> <|tool_call_end|>"),
        ("nemotron-2", "<TOOLCALL> </TOOLCALL>"),
    ],
)
def test_control_tokens_of_calls_are_shown_to_the_parser(kind: str, tokens: str) -> None:
    assert set(tokens.split()) <= set(dialect(kind).markers)


def test_long_words_in_arguments_take_no_longer() -> None:
    """As an answer has that repeats a digit up to its limit."""
    began = time.process_time()
    answer = "<|tool_call>call:weather{n:" + "1" * 400_000 + "}<tool_call|>"
    assert calls_of(parsed(dialect("gemma").parser("", True), answer, 1))
    assert time.process_time() - began < 5


@pytest.mark.parametrize("kind", ["qwen-xml", "glm"])
def test_long_lists_of_texts_are_refused_before_they_are_written(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def counted(text: str) -> str:
        nonlocal written
        written += len(text)
        return literal(text)

    monkeypatch.setattr(tagged_arguments, "literal", counted)
    listed = {"type": "string", "enum": [f"v{i}" * 20 for i in range(999)]}
    schemas = [{"type": "object", "properties": {f"p{i}": listed for i in range(20)}}] * 10
    with pytest.raises(WispError, match="too complex"):
        of_schemas(kind, *schemas).rules(None)
    begin()  # for tests that count on
    assert written < 4 * MAX_EFFORT + 10_000
