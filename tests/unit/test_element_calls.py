"""Tool calls of MiniMax M3, whose arguments are elements that hold elements."""

import json
from functools import partial
from typing import Any

from app.answers.recognition import dialect_of
from py_engine.text.chat_template import ChatTemplate
from tests.support import call_kinds
from tests.support.call_kinds import KINDS, LOOP, M, calls_of, dialect, parsed, rules_of, template, tools_of
from tests.support.grammar_matcher import run

ADDRESS = {"type": "object", "properties": {"o": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}
VALUES = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "unit": {"type": "string", "enum": ["c", "f"]},
        "list": {"type": "array", "items": {"type": "string"}},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "o": ADDRESS,
        "flag": {"type": "boolean"},
    },
    "required": ["text"],
}


of_values = partial(call_kinds.of_values, "minimax-m3")


def element(name: str, inside: str) -> str:
    return f"{M}<{name}>{inside}{M}</{name}>"


def written(arguments: str) -> str:
    return f'{M}<tool_call>\n{M}<invoke name="f">{arguments}{M}</invoke>\n{M}</tool_call>'


TEXT = element("text", ' a\n"b" <x> é\\n </text> ]<] ')


def test_optional_values() -> None:
    """Null beside texts is written as it is; other texts are texts."""
    text = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    inner = {"type": "object", "properties": {"text": text}}
    count = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    properties = {"text": text, "list": {"type": "array", "items": text}, "inner": inner, "count": count}
    found = of_values({"type": "object", "properties": properties})
    answer = element("text", "5") + element("list", element("item", "null") + element("item", "6"))
    answer += element("inner", element("text", "null")) + element("count", "null")
    (result,) = run([{"grammar": rules_of(found, None), "texts": [written(answer)]}])
    assert result["texts"] == [True]
    ((_, arguments),) = calls_of(parsed(found.parser("", True), written(answer), 1))
    assert json.loads(arguments) == {"text": "5", "list": [None, "6"], "inner": {"text": None}, "count": None}


def test_numbers_keep_their_text() -> None:
    """A float would round the one, and has Infinity for the other, which is no JSON."""
    found = of_values({"type": "object", "properties": {"o": {"type": "object"}, "list": {"type": "array"}}})
    o = element("a", "[1e999]") + element("b", element("c", "0.12345678901234567890"))
    answer = written(element("o", o) + element("list", element("item", "1e999") + element("item", "-0.10")))
    ((_, arguments),) = calls_of(parsed(found.parser("", True), answer, 1))
    assert arguments == '{"o": {"a": [1e999], "b": {"c": 0.12345678901234567890}}, "list": [1e999, -0.10]}'


def test_an_end_tag_is_no_argument() -> None:
    """It is left where a string has an element of its own name, and where a call does not end."""
    own, flag = element("text", "a" + element("text", "b")), element("flag", "true")
    cut = written(own).replace(f"{M}</invoke>\n", "")
    for answer, more in ((written(own + flag), {"flag": True}), (written(own), {}), (cut, {})):
        for seed in range(20):
            message = parsed(of_values(VALUES).parser("", True), answer, seed)
            ((_, arguments),) = calls_of(message)
            assert (json.loads(arguments), message["content"]) == ({"text": f"a{M}<text>b"} | more, None)


def test_elements_hold_elements() -> None:
    items = "".join(element("item", each) for each in ("a", "", "12"))
    grid = element("item", element("item", "1") + element("item", "2.5")) + element("item", "")
    good: dict[str, dict[str, Any]] = {
        TEXT: {"text": ' a\n"b" <x> é\\n </text> ]<] '},
        element("text", ""): {"text": ""},
        TEXT + element("unit", "c") + element("list", items): {"unit": "c", "list": ["a", "", "12"]},
        TEXT + element("list", "") + element("grid", grid): {"list": [], "grid": [[1, 2.5], []]},
        TEXT + element("o", element("o", "x") + element("n", "3")): {"o": {"o": "x", "n": 3}},
        TEXT + element("o", element("n", "-3")) + element("flag", "true"): {"o": {"n": -3}, "flag": True},
    }
    bad = [
        "",
        TEXT + element("unit", "k"),
        TEXT + element("grid", element("item", "1")),
        TEXT + element("o", element("o", "x")),
        TEXT + element("flag", "1"),
        TEXT + element("other", "1"),
        element("flag", "true") + TEXT,
    ]
    found = of_values(VALUES)
    (result,) = run([{"grammar": rules_of(found, None), "texts": [written(each) for each in (*good, *bad)]}])
    assert result["texts"] == [True] * len(good) + [False] * len(bad)
    for arguments, want in good.items():
        for seed in range(30):
            ((name, text),) = calls_of(parsed(found.parser("", True), written(arguments), seed))
            assert (name, json.loads(text)) == ("f", {"text": json.loads(text)["text"]} | want)


def test_values_without_a_schema_are_as_they_look() -> None:
    unknown = of_values({"type": "object", "additionalProperties": True})
    inside = element("a", element("item", "1") + element("item", "x")) + element("b", element("c", "null"))
    for seed in range(20):
        ((_, text),) = calls_of(parsed(unknown.parser("", True), written(inside + element("d", "two words")), seed))
        assert json.loads(text) == {"a": [1, "x"], "b": {"c": None}, "d": "two words"}


def test_json_takes_the_place_of_elements() -> None:
    limited = VALUES | {"properties": {"text": {"type": "string", "maxLength": 3}}}
    texts = [written('{"text": "abc"}'), written('{"text": "abcd"}'), written(element("text", "abc"))]
    (result,) = run([{"grammar": rules_of(of_values(limited), None), "texts": texts}])
    assert result["texts"] == [True, False, False]
    assert calls_of(parsed(of_values(VALUES).parser("", True), texts[0], 1)) == [("f", '{"text": "abc"}')]


def test_an_answer_without_a_thought_begins_with_the_end_tag() -> None:
    found = dialect_of(
        ChatTemplate(LOOP + "{# <mm:think> " + KINDS["minimax-m3"][0] + " #}"), tools_of(tool_choice="required")
    )
    call = KINDS["minimax-m3"][1]
    texts = [f"</mm:think>{call}", f"<mm:think>hm</mm:think>{call}", call, f"hm</mm:think>{call}"]
    assert run([{"grammar": rules_of(found, None), "texts": texts}])[0]["texts"] == [True, True, True, False]
    for seed in range(20):
        message = parsed(found.parser("", True), f"</mm:think>So{call}", seed)
        assert (message.get("reasoning_content"), message["content"], len(calls_of(message))) == (None, "So", 2)
        thought = parsed(found.parser("", True), texts[1], seed)
        assert (thought["reasoning_content"], len(calls_of(thought))) == ("hm", 2)
        assert parsed(found.parser("", True), "</mm:thi", seed)["content"] == "</mm:thi"


def test_the_mark_is_a_token_of_calls() -> None:
    assert M in dialect("minimax-m3").markers
    assert dialect_of(template("minimax-m3"), tools_of(tool_choice="none"), {M}).banned == M
