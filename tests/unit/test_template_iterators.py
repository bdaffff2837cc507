"""Iterators in chat templates: lazy as in plain Jinja, and never many within each other."""

from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate

MESSAGES: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
NAMES = "messages|map(attribute='role')"
LONG = "range(1000000)|map('string')"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("messages|map(attribute='content')|map('replace', 'H', 'h')|first", "hi"),  # null has no replace
        ("messages|map(attribute='content')|select('string')|list", "['Hi']"),
        (f"{LONG}|first", "0"),
        (f"{LONG}|map('length')|select('eq', 2)|first", "2"),
        (f"'user' in {NAMES}", "True"),
        (f"{NAMES}|sort|join", "assistantuser"),
        (f"{NAMES}|batch(1)|list", "[['user'], ['assistant']]"),
        (f"{NAMES}|map('upper')|map('lower')|map('upper')|map('lower')|map('title')|join", "UserAssistant"),
        (f"cycler({NAMES}).next()|list", "['user', 'assistant']"),
    ],
)
def test_no_more_is_computed_than_is_needed(expression: str, text: str) -> None:
    assert ChatTemplate("{{ " + expression + " }}").render(MESSAGES) == text


def test_an_iterator_goes_on_after_a_break() -> None:
    begin = (
        "{% set x = range(5)|map('string') %}{% for i in x %}{{ i }}{% if i == '2' %}{% break %}{% endif %}{% endfor %}"
    )
    assert ChatTemplate(begin + "|{% for i in x %}{{ i }}{% endfor %}").render([]) == "012|34"


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{{ " + LONG + "|map('length')|map('string')|list }}",
        "{% for i in range(99999) %}{{ range(1000000)|select('eq', -1)|first }}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(500) %}{% set ns.x = [ns.x]|map('list') %}{% endfor %}",
        "{% for i in [1] %}{{ loop|map('string')|list }}{% endfor %}",
        "{{ (('a,' * 400000)|replace('a', 'bbbbb'))|selectattr('role')|first }}",
    ],
)
def test_iterators_without_end_end(source: str) -> None:
    with pytest.raises(WispError) as error:
        ChatTemplate(source).render(MESSAGES)
    assert error.value.code == "bad_chat_template"


def test_a_long_chain_of_iterators_is_read_at_once() -> None:
    source = "{% set ns = namespace(x=[1]) %}{% for i in range(500) %}{% set ns.x = ns.x|map('int') %}{% endfor %}"
    assert ChatTemplate(source + "{{ ns.x|list }}").render([]) == "[1]"


def test_defaults_of_iterators_hold_no_chain() -> None:
    source = "{% set x = [1]|select %}" + "{% set x = x|d %}" * 150 + "{{ x|list }}"
    assert ChatTemplate(source).render([]) == "[1]"
