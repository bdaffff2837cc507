"""Grammars are written once for each form."""

from collections import OrderedDict
from typing import Any

import pytest

from app.answers.grammar import rules_of
from app.answers.recognition import dialect_of
from app.constrain import grammar_cache
from app.openai.formats import Format
from app.openai.tools import Tool, Tools
from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.fixture(autouse=True)
def none_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_cache, "_recent", OrderedDict())


def test_a_form_is_written_once() -> None:
    first = rules_of(Format("json_schema", SCHEMA))
    assert rules_of(Format("json_schema", {**SCHEMA})) is first
    for other in ({**SCHEMA, "required": []}, {**SCHEMA, "properties": {"n": {"type": "number"}}}, True):
        assert rules_of(Format("json_schema", other)) != first
    assert rules_of(Format("json_schema", SCHEMA)) is first


def test_values_that_python_finds_equal_are_different_forms() -> None:
    assert rules_of(Format("json_schema", {"const": 1})) != rules_of(Format("json_schema", {"const": True}))


def test_the_forms_asked_for_lately_are_known() -> None:
    forms = [Format("regex", "a" * (i + 1)) for i in range(grammar_cache.MAX_CACHED + 1)]
    first, second = rules_of(forms[0]), rules_of(forms[1])
    for form in [*forms[2 : grammar_cache.MAX_CACHED], forms[0], forms[-1]]:
        rules_of(form)
    assert rules_of(forms[0]) is first
    assert rules_of(forms[1]) is not second


def test_errors_are_raised_again() -> None:
    deep: Any = {}
    for _ in range(20_000):
        deep = {"items": deep}
    for schema in (deep, {"type": "object", "required": 3}):
        for _ in range(2):
            with pytest.raises(WispError):
                rules_of(Format("json_schema", schema))


def chat_rules(prompt: str, template: str = "{{ messages }}<think></think>", **tools: Any) -> str:
    given = Tools((Tool("f", SCHEMA, {"type": "function"}),), **tools)
    rules = dialect_of(ChatTemplate(template), given).rules(None)
    assert rules is not None
    return rules(prompt)


def test_the_grammar_of_tools_depends_on_how_the_prompt_ends() -> None:
    plain, thinking = chat_rules("Hi"), chat_rules("Hi<think>\n")
    assert plain != thinking
    assert chat_rules("Hello") is plain
    assert chat_rules("Hello<think>") is thinking
    assert chat_rules("Hi", required=True) != plain
    assert chat_rules("Hi", parallel=False) != plain
    assert chat_rules("Hi", "{{ messages }}") != plain
