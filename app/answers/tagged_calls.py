"""Tool calls with each argument between tags of its own: Qwen3-Coder's, Qwen3.5's, GLM's, Seed-OSS's.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A string is written without quotes or escapes, any other value as JSON. Some models write all arguments as one JSON
object at times: the parser accepts both, and the grammar asks for JSON where a tool's schema is more than a list of
plain properties.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.answers.parsing import Until
from app.answers.plain_schemas import properties_of, texts_of, types_of
from app.answers.tool_calls import CallParser, CallSyntax, Parameters, pattern
from app.constrain.ebnf import Grammar, either, literal
from app.constrain.rules import schema_rule
from app.openai.answers import Delta
from app.openai.tools import Tool
from py_engine import json_input

_NAME = r"\s*+(?P<name>[^\"\s<>\[\]{}]+)\s*+"
_OTHER_TYPES = frozenset(["number", "integer", "boolean", "array", "object", "null"])


def with_json(syntax: CallSyntax) -> CallSyntax:
    """The syntax of calls whose arguments are JSON, between the same tags."""
    tail = f"}}\n</{syntax.trigger[1:]}"
    return replace(syntax, head='\n{"name": "%s", "arguments": ', tail=tail, arguments="json")


def tagged_call(grammar: Grammar, syntax: CallSyntax, parameters: Parameters, tool: Tool) -> str | None:
    """The rule of a call after its trigger; properties in the schema's order. None: only JSON can follow the schema."""
    properties = properties_of(tool.parameters)
    if properties is None or not all(re.fullmatch(r"[^\"\s<>\[\]{}]+", name) for name in properties):
        return None
    rules = [literal(syntax.head.replace("%s", tool.name))]
    for name, schema in properties.items():
        value = _value(grammar, parameters.end, schema, tool.param)
        if value is None:
            return None
        rule = f"{literal(parameters.begin.replace('%s', name))} {value}"
        rules.append(rule if name in tool.parameters.get("required", []) else f"({rule})?")
    return " ".join([*rules, literal(syntax.tail)])


def _value(grammar: Grammar, end: str, schema: Mapping[str, Any], param: str) -> str | None:
    """The rule of a value and the end after it. None: of strings, the schema says more than which there are."""
    if types_of(schema) <= _OTHER_TYPES:
        return f"{schema_rule(grammar, schema, param, ordered=True)} {literal(end)}"
    texts = texts_of(schema)
    if texts is None:
        return None
    if texts:
        return f"{either(map(literal, texts))} {literal(end)}"
    stop = end.rstrip()
    text = f"TagDispatch(stop_eos=false, stop_str=({literal(stop)}), loop_after_dispatch=false)"
    return f"{grammar.add('text', text)} {literal(end.removeprefix(stop))}"


class TaggedCallParser(CallParser):
    """A parser of content and calls with tagged arguments, whose values become JSON."""

    def __init__(
        self, syntax: CallSyntax, parameters: Parameters, new_id: Callable[[], str], tools: Sequence[Tool]
    ) -> None:
        super().__init__(with_json(syntax), new_id)
        before, after = map(pattern, syntax.head.split("%s"))
        self._tagged_head = re.compile(rf"\s*+{before}{_NAME}{after}" + ("" if after else "(?=<)"))
        before, after = map(pattern, parameters.begin.split("%s"))
        self._key = re.compile(rf"\s*+{before}{_NAME}{after}")
        self._tagged_end = re.compile(rf"\s*+{pattern(syntax.tail)}")
        self._on_lines = parameters.begin.endswith("\n")  # line breaks separate a value from its tags
        self._end_tag = parameters.end.rstrip()  # with the line break before it, which a text may have elsewhere
        self._schemas = {tool.name: tool.parameters.get("properties", {}) for tool in tools}
        self._properties: Mapping[str, Any] = {}
        self._value = Until([])
        self._is_text = False
        self._raw: list[str] = []  # a value that may be JSON, so far, in pieces
        self._at_begin = False  # a line break that comes now is dropped: it follows the begin tag

    def _naming(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        found = self._short(self._tagged_head)
        if found is None:
            return super()._naming("", out)
        rest = self._begin(found, out)
        self._properties = self._schemas.get(found["name"], {})
        self._state = self._between
        self._emit_arguments("{", out)
        return rest

    def _between(self, text: str, out: list[Delta]) -> str:
        """Between arguments: the next one, or the end of the call."""
        self._buffer += text
        if found := self._short(self._key):
            rest, self._buffer = self._buffer[found.end() :], ""
            self._emit_key(found["name"], out)
            schema = self._properties.get(found["name"], {})
            self._is_text = isinstance(schema, dict) and schema.get("type") == "string"
            self._value, self._raw, self._at_begin = Until([self._end_tag]), [], self._on_lines
            if self._is_text:
                self._emit_arguments('"', out)
            self._state = self._in_value
            return rest
        if (found := self._short(self._tagged_end)) or len(self._buffer) > self.MAX_HEAD:
            self._emit_arguments("}", out)
            rest, self._buffer = self._buffer[found.end() if found else 0 :], ""
            self._state, self._called = self._free, True
            return rest
        return ""

    def _in_value(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._value.push(text)
        if self._at_begin and before:
            before, self._at_begin = before.removeprefix("\n"), False
        if self._is_text:
            self._emit_arguments(json.dumps(before, ensure_ascii=False)[1:-1], out)
        else:
            self._raw.append(before)
        if marker is None:
            return rest
        self._emit_arguments('"' if self._is_text else _as_json("".join(self._raw)), out)
        self._state = self._between
        return rest


def _as_json(raw: str) -> str:
    """A value as JSON: as it was written if that is JSON, else as a string."""
    try:
        value = json_input.parse(raw, strict=True)
    except ValueError:
        value = raw
    return json.dumps(raw, ensure_ascii=False) if isinstance(value, str) else raw.strip()
