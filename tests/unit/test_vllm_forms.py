"""vLLM's names for the forms of an answer: guided_json and the like, and structured_outputs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from app.answers.grammar import rules_of
from app.openai.formats import OLDER_NAMES, Format
from app.openai.requests import chat_request, completion_request
from py_engine.errors import WispError

HI = {"messages": [{"role": "user", "content": "Hi"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TEXTS = {"type": "structural_tag", "format": {
    "type": "or", "elements": [{"type": "const_string", "value": "yes"}, {"type": "const_string", "value": "no (*)"}]
}}  # fmt: skip
OUTPUTS = "structured_outputs.structural_tag"
TREE = {"type": "triggered_tags", "triggers": ["<f="], "tags": [
    {"type": "tag", "begin": "<f=a>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</f>"}
]}  # fmt: skip
STRUCTURES = {"type": "structural_tag", "triggers": ["<f="], "structures": [
    {"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"}
]}  # fmt: skip
T, V, U = "invalid_type", "invalid_value", "unsupported_parameter"
TOOL = {"type": "function", "function": {"name": "look"}}


def form_of(**body: Any) -> Format:
    form = chat_request(HI | body).format
    assert form is not None
    assert completion_request({"prompt": "Hi"} | body).format == form
    return form


@pytest.mark.parametrize(
    ("kind", "value", "ours"),
    [
        ("json", SCHEMA, {"json_schema": SCHEMA}),
        ("json", '{"type": "integer"}', {"json_schema": {"type": "integer"}}),
        ("regex", "[ab]+", {"regex": "[ab]+"}),
        ("grammar", 'root ::= "a"', {"grammar": 'root ::= "a"'}),
        ("choice", ["yes", "no (*)", "yes"], {"response_format": TEXTS}),
    ],
)
def test_each_name_has_the_same_form_as_ours(kind: str, value: Any, ours: dict[str, Any]) -> None:
    wanted = form_of(**ours)
    older, newer = form_of(**{f"guided_{kind}": value}), form_of(structured_outputs={kind: value})
    assert (older.param, newer.param) == (f"guided_{kind}", f"structured_outputs.{kind}")
    assert replace(older, param=wanted.param) == replace(newer, param=wanted.param) == wanted
    assert rules_of(older) == rules_of(wanted)


def test_any_json_object() -> None:
    assert form_of(structured_outputs={"json_object": True}).kind == "json_object"


@pytest.mark.parametrize(
    "body",
    [
        {"guided_json": None, "guided_choice": None, "structured_outputs": None},
        {"guided_decoding_backend": "xgrammar", "guided_whitespace_pattern": None},
        {"grammar": "", "regex": "", "guided_grammar": "", "guided_regex": ""},
    ],
)
def test_what_has_no_effect(body: dict[str, Any]) -> None:
    assert chat_request(HI | body) == chat_request(HI)


def test_options_that_change_nothing() -> None:
    options = {"whitespace_pattern": None, "disable_any_whitespace": False, "disable_additional_properties": False}
    options |= {"_backend": None, "_backend_was_auto": False, "disable_fallback": False}
    others = dict.fromkeys(("json", "regex", "grammar", "json_object", "structural_tag"))
    assert form_of(structured_outputs={"choice": ["a"], **options, **others}).param == "structured_outputs.choice"


def test_null_is_absent_in_a_structural_tag() -> None:
    tree, nulls = TEXTS["format"], {"structures": None, "triggers": None}
    assert form_of(structural_tag={"format": tree, **nulls}).value == tree
    assert form_of(structural_tag={"format": None, "structural_tag": tree}).value == tree
    assert form_of(response_format=STRUCTURES | {"format": None}).value == TREE


def test_a_bare_tree_is_told_where_it_belongs() -> None:
    with pytest.raises(WispError, match=r"as structural_tag\.format, or a list of structures with"):
        form_of(structural_tag=TEXTS["format"])


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"guided_json": 5}, T, "guided_json"),
        ({"guided_json": "{"}, V, "guided_json"),
        ({"guided_json": "[" * 1000}, V, "guided_json"),
        ({"guided_json": "[]"}, T, "guided_json"),
        ({"guided_regex": ["a"]}, T, "guided_regex"),
        ({"guided_grammar": {}}, T, "guided_grammar"),
        ({"guided_choice": "yes"}, T, "guided_choice"),
        ({"guided_choice": ["yes", 5]}, T, "guided_choice"),
        ({"guided_choice": []}, V, "guided_choice"),
        ({"guided_whitespace_pattern": " "}, U, "guided_whitespace_pattern"),
        ({"structured_outputs": "json"}, T, "structured_outputs"),
        ({"structured_outputs": {}}, V, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, V, "structured_outputs"),
        ({"structured_outputs": {"regex": "", "grammar": ""}}, V, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "typo": None}}, U, "structured_outputs.typo"),
        ({"structured_outputs": {"json_object": 1}}, T, "structured_outputs.json_object"),
        ({"structured_outputs": {"json": 5}}, T, "structured_outputs.json"),
        ({"structured_outputs": {"choices": ["a"]}}, U, "structured_outputs.choices"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, U, "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"json": {}, "disable_any_whitespace": True}}, U,
         "structured_outputs.disable_any_whitespace"),
        ({"structured_outputs": {"structural_tag": "{}"}}, V, f"{OUTPUTS}.format"),
        ({"structured_outputs": {"structural_tag": "{"}}, V, OUTPUTS),
        ({"structured_outputs": {"structural_tag": "[]"}}, T, OUTPUTS),
        ({"structural_tag": 5}, T, "structural_tag"),
        ({"structural_tag": {"type": "any_text"}}, V, "structural_tag.format"),
        ({"structural_tag": {"format": {"type": "any_text"}, "triggers": ["a"]}}, U, "structural_tag.triggers"),
        ({"structural_tag": {"format": {"type": "any_text"}, "foo": 1}}, U, "structural_tag.foo"),
        ({"structural_tag": {"structures": [{"begin": "a", "schema": {}, "end": "b", "x": 1}], "triggers": ["a"]}}, U,
         "structural_tag.structures[0].x"),
        ({"structural_tag": {"structures": []}}, T, "structural_tag.structures"),
        ({"structural_tag": {"structures": [{"begin": "a", "end": "b"}]}}, T, "structural_tag.structures[0]"),
        ({"response_format": {"type": "structural_tag", "structures": {}}}, T, "response_format.structures"),
        ({"structural_tag": STRUCTURES, "regex": "a"}, V, "structural_tag"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, V, "structured_outputs.choice"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, V, "guided_choice"),
        ({"guided_regex": "a", "structured_outputs": {"regex": "a"}}, V, "guided_regex"),
        ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, V, "structured_outputs"),
        ({"grammar": 'root ::= "a"', "guided_json": {}}, V, "guided_json"),
        ({"tools": [TOOL], "tool_choice": "required", "guided_regex": "a"}, V, "guided_regex"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_the_field(body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(WispError) as error:
        chat_request(HI | body)
    assert (error.value.code, error.value.param) == (code, param)
    assert param in error.value.message


def test_an_object_without_a_form_says_which_there_are() -> None:
    with pytest.raises(WispError, match="give one of json, regex, choice, grammar, structural_tag, json_object"):
        chat_request(HI | {"structured_outputs": {}})


def test_two_forms_say_which() -> None:
    with pytest.raises(WispError, match=r"structured_outputs\.regex and structured_outputs\.choice exclude each other"):
        chat_request(HI | {"structured_outputs": {"regex": "a", "choice": ["a"]}})
    with pytest.raises(WispError, match="response_format and guided_json exclude each other"):
        chat_request(HI | {"response_format": {"type": "json_object"}, "guided_json": {}})


@pytest.mark.parametrize(
    "tag", [{"type": "structural_tag", "format": TREE}, STRUCTURES], ids=["XGrammar's", "structures"]
)
def test_a_structural_tag_is_the_same_wherever_it_is_given(tag: dict[str, Any]) -> None:
    wanted = Format("structural_tag", TREE)
    given: list[dict[str, Any]] = [{"response_format": tag}]
    for one in (tag, json.dumps(tag)):
        given += [{"structural_tag": one}, {"structured_outputs": {"structural_tag": one}}]
    for body in given:
        form = form_of(**body)
        assert replace(form, param=wanted.param) == wanted
        assert form.param.startswith(next(iter(body)))
        assert rules_of(form) == rules_of(wanted)


@pytest.mark.parametrize("older", OLDER_NAMES)
@pytest.mark.parametrize("newer", [False, True], ids=["older", "structured_outputs"])
def test_what_a_form_says_wrongly_names_its_field(older: str, newer: bool) -> None:
    kind = OLDER_NAMES[older]
    wrong = {"json": {"type": "nothing"}, "regex": "(", "grammar": "root ::= (", "choice": ["\ud800"],
             "structural_tag": {"format": {"type": "xml"}}}[kind]  # fmt: skip
    form = form_of(**({"structured_outputs": {kind: wrong}} if newer else {older: wrong}))
    with pytest.raises(WispError) as error:
        rules_of(form)
    assert error.value.code == V
    assert str(error.value.param).startswith(form.param)
