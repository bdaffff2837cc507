"""Chat templates: five real templates against Hugging Face's rendering, the sandbox, and its limits."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.text.chat_template import ChatTemplate, from_metadata

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "chat").glob("*.json"))
USER = [{"role": "user", "content": "Hi"}]


def cases() -> list[Any]:
    out = []
    for path in GOLDEN:
        golden = json.loads(path.read_text())
        out += [pytest.param(golden, case, id=f"{path.stem}: {case['name']}") for case in golden["cases"]]
    assert len(out) > 40
    return out


@pytest.mark.parametrize(("golden", "case"), cases())
def test_renders_as_hugging_face(golden: dict[str, Any], case: dict[str, Any]) -> None:
    template = ChatTemplate(
        golden["template"], golden["bos_token"], golden["eos_token"], lambda: datetime.fromisoformat(golden["now"])
    )
    options = {"tools": case["tools"], "add_generation_prompt": case["add_generation_prompt"], **case["kwargs"]}
    if "error" in case:
        with pytest.raises(WispError) as error:
            template.render(case["messages"], **options)
        assert error.value.code == "bad_chat_template"
        assert case["error"] in error.value.message
    else:
        assert template.render(case["messages"], **options) == case["expected"]


def test_a_model_without_a_template_uses_chatml() -> None:
    for metadata in ({}, {"tokenizer.chat_template": " "}, {"tokenizer.chat_template": "{% if %}"}):
        template, notices = from_metadata(metadata, "", "")
        assert template.render(USER) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        assert len(notices) == 1
        assert "ChatML" in notices[0]


def test_a_broken_template_is_an_error() -> None:
    with pytest.raises(WispError) as error:
        ChatTemplate("{% for m in messages %}")
    assert error.value.code == "bad_chat_template"


RUNAWAYS = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{{ 'a' * 10 ** 9 }}",
    "{{ [0] * 10 ** 9 }}",
    "{{ 10 ** 100000000 }}",
    "{{ '%1000000000d' % 1 }}",
    "{% for i in range(900000) %}{{ 'a' * 100 }}{% endfor %}",
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
]


@pytest.mark.timeout(60)  # without its limits, the sandbox would run for hours
@pytest.mark.parametrize("source", RUNAWAYS)
def test_runaway_templates_end(source: str) -> None:
    with pytest.raises(WispError) as error:
        ChatTemplate(source).render(USER)
    assert error.value.code == "bad_chat_template"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ messages[0]['content'].nothing.at_all }}",
        "{{ 1 + 'a' }}",
    ],
)
def test_the_sandbox_refuses(source: str) -> None:
    with pytest.raises(WispError) as error:
        print(ChatTemplate(source).render(USER))
    assert error.value.code == "bad_chat_template"


def test_the_sandbox_hides_internals() -> None:
    assert ChatTemplate("{{ raise_exception.__globals__ }}").render(USER) == ""


def test_the_budget_is_per_rendering() -> None:
    template = ChatTemplate("{% for i in range(400000) %}{% endfor %}done")
    assert [template.render(USER) for _ in range(4)] == ["done"] * 4


def test_generation_tag_and_loop_controls() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert ChatTemplate(source).render([*USER, *USER]) == "Hi"


def test_prepare_makes_what_templates_expect() -> None:
    text = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    parts = ChatTemplate("{% for m in messages %}{% for c in m.content %}{{ c.text }};{% endfor %}{% endfor %}")
    assert not text.requires_parts
    assert parts.requires_parts
    message: dict[str, Any] = {
        "role": "developer",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    assert text.render(text.prepare([message])) == "system:a\nb;"
    assert parts.render(parts.prepare([message, {"role": "user", "content": "c"}])) == "a\nb;c;"
    call: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    prepared = text.prepare([{"role": "assistant", "content": None, "tool_calls": [call]}])[0]
    assert prepared["content"] == ""
    assert prepared["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert call["function"]["arguments"] == '{"x": 1}'
