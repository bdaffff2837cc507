"""Levels of reasoning that chat templates of several families have, and those that efforts become."""

from typing import Any

import pytest

from app.answers.reasoning_levels import level_of
from app.answers.thinking import with_reasoning
from app.openai.requests import EFFORTS, chat_request
from py_engine.text.chat_template import ChatTemplate

KIMI = (
    "{%- if thinking is undefined -%}{%- set thinking = true -%}{%- endif -%}"
    "{%- if thinking_effort is undefined -%}{%- set thinking_effort = 'max' -%}{%- endif -%}"
    "{%- if thinking and thinking_effort not in ['low', 'high', 'max'] -%}"
    "{{- raise_exception('No such thinking_effort: ' + thinking_effort) -}}{%- endif -%}"
    "{{- thinking_effort if thinking else 'off' -}}"
)
DEEPSEEK = (
    "{%- if reasoning_effort is defined and reasoning_effort == 'max' -%}most{%- else -%}as usual{%- endif -%}"
    "{%- if thinking %}, thinks{% endif -%}"
)
HUNYUAN = (
    "{%- if not reasoning_effort is defined %}{%- set reasoning_effort = 'no_think' %}"
    "{%- elif reasoning_effort not in ['high', 'low', 'no_think'] %}"
    "{{- raise_exception('reasoning_effort: no such value') }}{%- endif %}{{- reasoning_effort }}"
)
HORIZON = (
    "{%- set effort = reasoning_effort | default('high') -%}"
    "{%- if effort == 'high' -%}A{%- elif effort == \"medium\" -%}B{%- elif effort == 'low' -%}C"
    "{%- else -%}{{- raise_exception('Unsupported reasoning_effort') -}}{%- endif -%}"
)
MISTRAL = (
    "{%- set reasoning_effort = reasoning_effort | default('none') %}"
    "{%- if reasoning_effort not in ['none', 'high'] %}{{- raise_exception('reasoning_effort is wrong') }}{%- endif %}"
    "{{- reasoning_effort }}"
)
GPT = (
    "{#- 'max' is no effort -#}{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}"
    "{%- endif %}{{- reasoning_effort }}"
)
SOLAR = "{%- if reasoning_effort in [\"low\", 'minimal'] -%}short{%- else -%}{{ reasoning_effort }}{%- endif -%}"
MUSE = "{%- set rs = reasoning_strength if reasoning_strength else 'high' -%}{{- rs -}}"
CHECK = (
    "{%- if reasoning_effort not in ['low', 'high'] -%}{{- raise_exception('bad value') -}}{%- endif -%}"
    "{{- reasoning_effort }}"
)
WORDS = "{{- strengthen('minimal') if strengthen is defined else '' }}{{- reasoning_effort }}"
SWITCH = "{%- if enable_thinking is false -%}off{%- else -%}on{%- endif -%}{# no efforts #}"

NAMES = ["kimi", "deepseek", "hunyuan", "horizon", "mistral", "gpt", "solar", "muse", "check", "words", "switch"]
# A template -> what it renders for none, minimal, low, medium, high, xhigh and max.
RENDERED = {
    KIMI: ("off", "off", "low", "high", "high", "max", "max"),
    DEEPSEEK: ("as usual", "as usual", *["as usual, thinks"] * 3, "most, thinks", "most, thinks"),
    HUNYUAN: ("no_think", "no_think", "low", "high", "high", "high", "high"),
    HORIZON: ("C", "C", "C", "B", "A", "A", "A"),
    MISTRAL: ("none", "none", "high", "high", "high", "high", "high"),
    GPT: ("low", "low", "low", "medium", "high", "high", "high"),
    SOLAR: ("short", "short", "short", "medium", "high", "high", "high"),
    MUSE: ("low", "low", "low", "medium", "high", "high", "high"),
    CHECK: ("low", "low", "low", "high", "high", "high", "high"),
    WORDS: ("low", "low", "low", "medium", "high", "high", "high"),
    SWITCH: ("off", "off", *["on"] * 5),
}


@pytest.mark.parametrize("template", RENDERED, ids=NAMES)
def test_each_effort_is_the_nearest_level_of_the_template(template: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]

    def prompt(effort: str) -> str:
        request = chat_request({"messages": messages, "reasoning_effort": effort})
        return ChatTemplate(template).render(messages, **with_reasoning(template, request.template_variables))

    assert tuple(map(prompt, EFFORTS)) == RENDERED[template]


def test_templates_names_of_efforts_stay() -> None:
    assert level_of(KIMI, "ultra") == "ultra"
    assert with_reasoning(KIMI, {"thinking_effort": "low", "reasoning_effort": "max"})["thinking_effort"] == "low"
    assert with_reasoning(KIMI, {"reasoning_effort": 5}) == {"reasoning_effort": 5}


def test_a_switch_of_thoughts_is_an_effort_where_the_template_has_no_other() -> None:
    for template, off in ((HUNYUAN, "no_think"), (MISTRAL, "none")):
        assert with_reasoning(template, {"enable_thinking": False})["reasoning_effort"] == off
        assert with_reasoning(template, {"enable_thinking": True})["reasoning_effort"] == "high"
        assert "reasoning_effort" not in with_reasoning(template, {})
    assert "reasoning_effort" not in with_reasoning(GPT, {"enable_thinking": False})
