"""Random changes of chat templates for template_campaign.py: other ways to write the same, and more of Jinja."""

import re
from collections.abc import Callable

import numpy as np

MOST_CHANGES = 2
Rewrite = Callable[[str], str]


def replacing(pattern: str, by: str) -> Rewrite:
    return lambda source: re.sub(pattern, by, source)


def before(text: str) -> Rewrite:
    return lambda source: text + source


def after(text: str) -> Rewrite:
    return lambda source: source + text


REWRITES: dict[str, Rewrite] = {
    "members with dots": replacing(r"message\['(\w+)'\]", r"message.\1"),
    "members in brackets": replacing(r"\bmessage\.(role|content)\b", r"message['\1']"),
    "no trim": replacing(r"\s*\|\s*trim\b", ""),
    "content trimmed": replacing(r"\bmessage(?:\.content|\['content'\])(?! is)", "(message.content | trim)"),
    "no newlines kept": replacing(r"-%\}", "%}"),
    "tildes": replacing(r"' \+ message", "' ~ message"),
    "compact json": replacing(r"tojson(?:\(indent=4\))?", "tojson"),
    "indented json": replacing(r"\btojson\b(?!\()", "tojson(indent=2)"),
    "ids of calls": before(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.id }}{% endfor %}{% endfor %}"
    ),
    "arguments": before(
        "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}"
        "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}{% endfor %}{% endfor %}"
    ),
    "arguments as text": before(
        "{% for m in messages if m.tool_calls %}{% for c in m.tool_calls %}"
        "{{ c.function.arguments if c.function.arguments"
        " is string else c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    ),
    "names": before("{% for m in messages %}{{ m.name | default('-') }}{{ m.get('tool_call_id', '') }}{% endfor %}"),
    "reasoning": before(
        "{% for m in messages %}{{ '[' ~ m.reasoning_content ~ ']' if m.reasoning_content }}{% endfor %}"
    ),
    "members": before("{% for m in messages %}{{ m.keys() | list | sort | join(',') }}{% endfor %}"),
    "nothing is nothing": before("{% for m in messages %}{{ m.content is none }}{{ m.content is string }}{% endfor %}"),
    "parts": replacing(
        r"\{\{-? ?'<\|im_start\|>' \+ message\.role",
        "{% for p in message.content if message.content is not string %}[{{ p.type }}:{{ p.text }}]{% endfor %}\\g<0>",
    ),
    "slices": after("{{ messages[-1].role }}{{ messages[:1] | length }}{{ messages[::-1][0].role[1:3] }}"),
    "strings": after(
        "{% for m in messages if m.content is string %}{{ m.content.strip().upper() }}"
        "{{ m.content.split('\\n')[0] }}{{ m.content.lstrip('\\n') }}{{ m.content.replace('a', 'b') | length }}"
        "{{ m.content.startswith('<') }}{% endfor %}"
    ),
    "filters": after(
        "{{ messages | map(attribute='role') | list | join(',') }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
        "{{ (messages | last).role | capitalize }}{{ [3, 1, 2] | sort | join('-') }}{{ 'a b' | title }}"
    ),
    "a namespace": after(
        "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
        "{% set ns.s = ns.s ~ loop.index ~ loop.last %}{% if loop.index0 == 3 %}{% break %}{% endif %}"
        "{% endfor %}{{ ns.n }}{{ ns.s }}"
    ),
    "a macro": after(
        "{% macro say(who, what='?') %}({{ who }}:{{ what }}){% endmacro %}{% for m in messages %}{{ say(m.role) }}"
        "{{ say(m.role, what=loop.revindex) }}{% endfor %}"
    ),
    "numbers": after("{{ 7 / 2 }}{{ 7 % 3 }}{{ 1.5 }}{{ 3 | string ~ 4 }}{{ '5' | int + 1 }}"),
    "containers": after(
        "{{ [1, 'a', none, true] | tojson }}{{ {'é': [1.5, 'x']} | tojson }}{{ {'b': 1, 'a': 2} | tojson }}"
    ),
    "conditions": after(
        "{{ 'x' if tools is defined and tools else 'y' }}{{ undefined_name is defined }}"
        "{{ 1 in [1, 2] }}{{ 'd' not in 'abc' }}{{ not messages }}"
    ),
    "tools listed": after(
        "{% for t in tools or [] %}{{ t | tojson }}{{ t.function.name }}{% for n, p in t.function.parameters.properties"
        " | items %}{{ n }}:{{ p.type | default('any') }}{% endfor %}{% endfor %}"
    ),
    "a rejection": before("{% if messages | length > 4 %}{{ raise_exception('Too long') }}{% endif %}"),
    "a filter block": after(
        "{% filter upper %}end{% endfilter %}{# a comment #}{{- ' x' -}} \n {%- set y %} z {% endset %}{{ y }}"
    ),
}


def changed(source: str, random: np.random.Generator) -> tuple[str, list[str]]:
    """A template with some of these, and their names."""
    names = [str(name) for name in random.choice(list(REWRITES), random.integers(0, MOST_CHANGES + 1), replace=False)]
    applied: list[str] = []
    for name in names:
        if (other := REWRITES[name](source)) != source:
            source, applied = other, [*applied, name]
    return source, applied
