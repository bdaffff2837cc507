"""Chat templates: five real templates against Hugging Face's rendering, and the sandbox.

test_template_limits.py has the limits.
"""

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


REJECTS = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}"
SAYS = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
LISTS = "{% for m in messages %}{% for p in m.content %}{{ m.role }}:{{ p.text }};{% endfor %}{% endfor %}"
IGNORES = "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }};{% endfor %}"


@pytest.mark.parametrize(
    ("source", "want"),
    [
        (REJECTS + SAYS, "user:Be kind.\nHi;assistant:Yes?;user:Go on;"),
        (REJECTS + LISTS, "user:Be kind.;user:Hi;assistant:Yes?;user:Go on;"),
        (IGNORES, "user:Be kind.\nHi;assistant:Yes?;user:Go on;"),
        (SAYS, "system:Be kind.;user:Hi;assistant:Yes?;user:Go on;"),
    ],
)
def test_a_system_message_joins_the_question_where_the_template_rejects_it(source: str, want: str) -> None:
    """As llama.cpp renders it."""
    template = ChatTemplate(source)
    said = [("system", "Be kind."), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Go on")]
    messages = template.prepare([{"role": role, "content": content} for role, content in said])
    assert template.render(template.with_system_asked(messages)) == want


def test_an_empty_system_message_leaves_the_question_as_it_is() -> None:
    template = ChatTemplate(REJECTS + SAYS)
    for content in ("", [{"type": "text", "text": ""}]):
        messages = template.prepare([{"role": "system", "content": content}, *USER])
        assert template.render(template.with_system_asked(messages)) == "user:Hi;"


def test_rwkv_s_template_is_given_by_name() -> None:
    """As llama.cpp renders it."""
    template, notices = from_metadata({"tokenizer.chat_template": "rwkv-world"}, "", "")
    roles = (("system", " be nice "), ("user", " hi "), ("assistant", " hello "), ("user", "more"))
    text = template.render([{"role": role, "content": content} for role, content in roles])
    assert text == "System: be nice\n\nUser: hi\n\nAssistant: hello\n\nUser: more\n\nAssistant:"
    assert not notices


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


def test_a_template_sees_copies() -> None:
    messages: list[Any] = [{"role": "user", "content": "Hi", "list": [1]}]
    tools: list[Any] = [{"function": {"parameters": {"required": ["a"]}}}]
    sources = [
        "{{ dict.update(messages[0], {'content': 'no'}) }}",
        "{{ dict.pop(tools[0], 'function') }}",
        "{{ dict[0].pop }}",
        "{{ messages[0].update({'content': 'no'}) }}",
        "{{ tools[0].function.parameters.required.append('b') }}",
        "{{ messages[0]|attr('update')({'content': 'no'}) }}",
        "{{ namespace.__init__(messages[0]) }}",
        "{% set x = messages[0] %}{% set x.content = 'no' %}",
        "{{ messages.clear() }}{{ tools.clear() }}",
    ]
    for source in sources:
        with pytest.raises(WispError):
            print(ChatTemplate(source).render(messages, tools=tools))
        assert messages == [{"role": "user", "content": "Hi", "list": [1]}]
        assert tools == [{"function": {"parameters": {"required": ["a"]}}}]
    seen = ChatTemplate("{{ messages[0] }}{{ tools }}").render(messages, tools=tools)
    assert seen == f"{messages[0]}{tools}"


def test_variables_do_not_replace_the_messages() -> None:
    template = ChatTemplate("{{ messages[0].content }}{{ self }}{{ x }}")
    assert template.render(USER, messages=[], x=1, self=3).startswith("Hi")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ messages[0]['content'].nothing.at_all }}",
        "{{ 1 + 'a' }}",
        "{% filter list %}a{% endfilter %}",  # a part of the text that is none
    ],
)
def test_the_sandbox_refuses(source: str) -> None:
    with pytest.raises(WispError) as error:
        print(ChatTemplate(source).render(USER))
    assert error.value.code == "bad_chat_template"


def test_the_sandbox_hides_internals() -> None:
    assert ChatTemplate("{{ raise_exception.__globals__ }}").render(USER) == ""


def test_generation_tag_and_loop_controls() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert ChatTemplate(source).render([*USER, *USER]) == "Hi"


def test_prepare_makes_what_templates_expect() -> None:
    text = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    parts = ChatTemplate("{% for m in messages %}{% for c in m.content %}{{ c.text }};{% endfor %}{% endfor %}")
    assert not text.forms.requires_parts
    assert parts.forms.requires_parts
    message: dict[str, Any] = {
        "role": "developer",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    assert text.render(text.prepare([message])) == "system:a\nb;"
    assert parts.render(parts.prepare([message, {"role": "user", "content": "c"}])) == "a;b;c;"
    assert parts.forms.takes_parts
    assert not text.forms.takes_parts, "it would write the list itself"
    call: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    prepared = text.prepare([{"role": "assistant", "content": None, "tool_calls": [call]}])[0]
    assert prepared["content"] == ""
    assert prepared["tool_calls"][0]["function"]["arguments"] == {"x": 1}
    assert call["function"]["arguments"] == '{"x": 1}'


CALL: dict[str, Any] = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + ARGUMENTS }}{% endfor %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        ("c.function.arguments", 'f{"x": 1}'),  # fails with an object
        ("(c.function.arguments|string)", 'f{"x": 1}'),  # would write {'x': 1}
        ("(c.function.arguments|tojson)", 'f{"x": 1}'),  # would quote the text
        ("(c.function.arguments.x|string)", "f1"),
    ],
)
def test_arguments_of_calls_are_objects_unless_the_template_writes_them_as_text(arguments: str, want: str) -> None:
    template = ChatTemplate(CALLS.replace("ARGUMENTS", arguments))
    assert (
        template.render(template.prepare([*USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}])) == want
    )


def test_parts_of_results_of_tools_are_joined_where_the_template_would_write_the_list() -> None:
    """GLM 4.6 and Kimi K2 take lists of parts in questions alone."""
    parts = "{% for p in m.content %}{{ p.text }};{% endfor %}"
    of_tools = "{% if m.role == 'tool' and m.content is not string %}TOOL{% else %}"
    source = "{% for m in messages %}{% if m.content is string %}{{ m.content }};{% else %}" + of_tools + parts
    source += "{% endif %}{% endif %}{% endfor %}"
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": role, "content": content} for role in ("user", "tool")]
    for tool, want in (("{{ m.content }}", "a;b;a\nb;"), (parts, "a;b;a;b;")):
        template = ChatTemplate(source.replace("TOOL", tool))
        assert template.render(template.prepare(messages)) == want


@pytest.mark.parametrize(
    ("source", "role"),
    [
        ("{{ messages[0].role }}", "system"),
        ("{# developer #}{% for m in messages if m.role in ('system', 'user') %}{{ m.content }}{% endfor %}", "system"),
        ("{% for m in messages %}{% if m.role == 'developer' %}{{ m.content }}{% endif %}{% endfor %}", "developer"),
    ],
)
def test_developer_messages_are_the_system_s_unless_the_template_writes_them(source: str, role: str) -> None:
    (message,) = ChatTemplate(source).prepare([{"role": "developer", "content": "x"}])
    assert message["role"] == role


def test_answers_get_empty_thoughts_where_the_template_requires_some() -> None:
    """K2 Horizon's does."""
    check = "{% if m.role == 'assistant' and m.reasoning_content is undefined %}{{ raise_exception('no') }}{% endif %}"
    answer = {"role": "assistant", "content": "x"}
    for source, want in ((check, answer | {"reasoning_content": ""}), ("", answer)):
        template = ChatTemplate("{% for m in messages %}" + source + "{{ m.content }}{% endfor %}")
        assert template.prepare([answer]) == [want]


def test_thoughts_get_the_name_that_the_template_knows() -> None:
    """gpt-oss's and LFM2.5's templates know only `thinking`."""
    answer = {"role": "assistant", "content": "x", "reasoning_content": "hm"}
    for source, want in (("reasoning_content", answer), ("thinking", answer | {"thinking": "hm"})):
        template = ChatTemplate("{% for m in messages %}{{ m." + source + " }}{{ m.content }}{% endfor %}")
        assert template.prepare([answer]) == [want]
        assert template.render(template.prepare([answer])) == "hmx"


def test_a_template_may_loop_over_tools_that_are_none() -> None:
    """Hermes 2 Pro's and Command R+'s for tools do, and Hugging Face rejects them then."""
    template = ChatTemplate("{% for t in tools %}{{ t.x }}{% endfor %}{{ messages[0].content }}")
    assert template.render(USER) == "Hi"
    assert template.render(USER, tools=[{"x": 1}, {"x": 2}]) == "12Hi"
    assert template.render(USER) == "Hi"
    with pytest.raises(WispError, match="unsupported operand"):
        ChatTemplate("{{ 1 + 'a' }}").render(USER)


def test_lists_may_grow() -> None:
    """Kimi K2's template collects the ids of calls so; Hugging Face's environment rejects that."""
    source = "{% set ns = namespace(ids=[]) %}{% for m in messages %}{% set _ = ns.ids.append(m.content) %}{% endfor %}"
    assert ChatTemplate(source + "{{ ns.ids.pop(0) }}{{ ns.ids }}").render([*USER, *USER]) == "Hi['Hi']"


def test_iterators_become_lists_in_json() -> None:
    tools = [{"function": {"name": "f"}}]
    assert ChatTemplate("{{ tools|map(attribute='function')|tojson }}").render(USER, tools=tools) == '[{"name": "f"}]'


def test_a_file_may_hold_a_template_for_requests_with_tools() -> None:
    key = "tokenizer.chat_template"
    template, notices = from_metadata({key: "plain", f"{key}.tool_use": "tools: {{ tools|length }}"}, "", "")
    assert not notices
    assert template.for_tools(None).render(USER) == "plain"
    assert template.for_tools([{}]).render(USER, tools=[{}]) == "tools: 1"
    assert "tools: {{" in template.written
    template, notices = from_metadata({key: "plain", f"{key}.tool_use": "{% if %}"}, "", "")
    assert template.for_tools([{}]).render(USER, tools=[{}]) == "plain"
    assert "does not compile" in notices[0]


def test_short_conversations_share_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template whose renderings take long must not hold the engine for each form of messages."""
    template = ChatTemplate("{{ messages[0].content }}")
    rendered, seconds = 0, 0.0

    def slow(*_: Any, **__: Any) -> str:
        nonlocal rendered, seconds
        rendered, seconds = rendered + 1, seconds + 1.1
        return ""

    monkeypatch.setattr(template.forms, "_clock", lambda: seconds)

    monkeypatch.setattr(template.forms, "_render", slow)
    assert not template.forms.takes_parts
    assert not template.forms.takes_developer
    assert template.forms.takes_system
    assert template.written.strip() == template.source
    assert rendered == 2


def test_markers_of_media_stand_within_their_lines() -> None:
    marker = {"type": "text", "text": "<m>", "media": True}
    content = [{"type": "text", "text": "a"}, marker, {"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    template = ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}")
    assert template.render(template.prepare([{"role": "user", "content": content}])) == "a<m>b\nc"


def test_a_namespace_may_be_a_message_but_not_change_then() -> None:
    """MiroThinker's template puts its system message into a list as a namespace."""
    begin = "{% set s = namespace(role='system') %}{% set s.content = 'Hi' %}{% set all = [s] + messages %}"
    shown = ChatTemplate(begin + "{% for m in all %}{{ m.role }}: {{ m.content }}|{% endfor %}")
    assert shown.render([{"role": "user", "content": "x"}]) == "system: Hi|user: x|"
    with pytest.raises(WispError, match="changes a namespace that another value holds"):
        ChatTemplate(begin + "{% set s.content = all %}").render([{"role": "user", "content": "x"}])
    with pytest.raises(WispError, match="stores a macro, cycler, loop or function in another value"):
        ChatTemplate("{% set s = namespace(m=cycler('a')) %}{{ [s]|length }}").render([])


def test_members_of_dicts_and_namespaces() -> None:
    source = "{{ x.items is callable }}{{ x.a }}{{ x.b is defined }}{{ ns.a }}{{ ns._limits is defined }}{{ ns['a'] }}"
    begin = "{% set x = {'items': 1, 'a': 2} %}{% set ns = namespace(a=3, _b=4) %}{{ [ns]|map(attribute='a')|join }}"
    assert ChatTemplate(begin + source).render([]) == "3True2False3False3"


def test_jinja_is_left_as_it_is() -> None:
    """Its visitor is replaced only while a template compiles."""
    from jinja2.visitor import NodeVisitor

    ChatTemplate("{{ 1 }}")
    with pytest.raises(WispError):
        ChatTemplate("{% break %}")  # what is wrong is found by the compiler
    for method in (NodeVisitor.visit, NodeVisitor.generic_visit):
        assert method.__module__ == "jinja2.visitor"


def test_dicts_and_namespaces_are_made_of_pairs() -> None:
    source = (
        "{% set ns = namespace([('a', 1)], b=2) %}{{ ns.a }}{{ ns.b }}{{ dict([('a', 1)], b=2) }}{{ dict({'c': 3}) }}"
    )
    assert ChatTemplate(source).render([]) == "12{'a': 1, 'b': 2}{'c': 3}"
