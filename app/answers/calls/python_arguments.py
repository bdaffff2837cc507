"""Tool calls written as a Python list: LFM2's, [weather(city="Rome", days=2), time()].

The grammar requires strings as in JSON, which are Python's, too. The parser also accepts single quotes, and calls whose
arguments are one JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.answers.calls.heads import pattern
from app.answers.calls.json_arguments import JSON
from app.answers.calls.parser import CallParser
from app.answers.calls.plain_schemas import is_text_or_null, lists_null, members, properties_of, without_null
from app.answers.calls.syntax import Arguments, CallSyntax
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, either, literal
from app.constrain.rules import schema_rule
from app.openai.answers import Delta
from app.openai.tools import Tool
from py_engine import json_input

_CONSTANTS = {"boolean": ("True", "False"), "null": ("None",)}
_AS_JSON = {"True": "true", "False": "false", "None": "null"}
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|.", re.DOTALL)
_NOT_AS_IN_JSON = re.compile(r"\\.|[\"\x00-\x1f]", re.DOTALL)


class PythonArguments(Arguments):
    """Arguments of a Python call, in the schema's order."""

    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        return replace(syntax, head='{"name": "%s", "arguments": ', tail="}", arguments=JSON)

    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str | None:
        properties, required = properties_of(tool.parameters), tool.parameters.get("required", [])
        if properties is None or not all(name.isidentifier() for name in properties):
            return None
        rules = [
            (f"{literal(name + '=')} {_value(grammar, value, tool.param)}", name in required)
            for name, value in properties.items()
        ]
        return f"{literal(tool.name + '(')} {members(grammar, rules, ', ')} {literal(')')}"

    def as_text(self, syntax: CallSyntax, calls: list[Any]) -> str:
        written = []
        for call in calls:
            function = call.get("function", {})
            arguments = function.get("arguments") or {}
            if not isinstance(arguments, dict):  # a text that is no JSON object
                return super().as_text(syntax, calls)
            given = arguments.items()
            written.append(f"{function.get('name')}({', '.join(f'{key}={_as_python(value)}' for key, value in given)})")
        return f"{syntax.trigger}{syntax.opening}{', '.join(written)}{syntax.closing}"

    def parser(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> Parser:
        return PythonCallParser(syntax, new_id, tools)


def _value(grammar: Grammar, schema: Mapping[str, Any], param: str) -> str:
    """The rule of a value: JSON, but with True, False and None for its constants."""
    given = schema.get("type", [])
    types = given if isinstance(given, list) else [given]
    if "enum" in schema and is_text_or_null(schema) and lists_null(schema):
        return either([literal("None"), _value(grammar, without_null(schema), param)])
    constants = [literal(text) for type in types if type in _CONSTANTS for text in _CONSTANTS[type]]
    others = [type for type in types if type not in _CONSTANTS]
    if not constants or "enum" in schema or "const" in schema:
        return schema_rule(grammar, schema, param, ordered=True)
    options = [schema_rule(grammar, {**schema, "type": others}, param, ordered=True)] if others else []
    return either([*constants, *options])


def _as_python(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_as_python(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_as_python, value))}]"
    return repr(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


class PythonCallParser(CallParser):
    """A parser of content and calls in Python's syntax, whose arguments become JSON."""

    def __init__(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool]) -> None:
        super().__init__(syntax.arguments.with_json(syntax), new_id, tools)
        self._first_heads += [syntax.opening + syntax.head, syntax.head]  # the bracket may be missing
        name = r"\s*+(?P<name>[\w.:-]+)\s*+\("
        self._first_call, self._next_call = re.compile(r"\s*+\[?" + name), re.compile(r"\s*+," + name)
        self._key, self._call_end = re.compile(r"[\s,]*+(?P<name>\w+)\s*+="), re.compile(r"[\s,]*+\)")
        self._list_end = re.compile(r"\s*+" + pattern(syntax.closing))
        self._raw: list[str] = []  # the value that is being read, in pieces
        self._quote, self._depth, self._escaped = "", 0, False

    def _naming(self, text: str, out: list[Delta]) -> str:
        self._buffer += text
        found = self._limited_match(self._first_call)
        return self._open(found, out) if found else super()._naming("", out)

    def _open(self, found: re.Match[str], out: list[Delta]) -> str:
        rest = self._begin(found, out)
        self._state = self._between
        self._emit_arguments("{", out)
        return rest

    def _between(self, text: str, out: list[Delta]) -> str:
        """Between arguments: the next one, or the end of the call."""
        self._buffer += text
        if found := self._limited_match(self._key):
            rest, self._buffer = self._buffer[found.end() :], ""
            self._emit_key(found["name"], out)
            self._raw, self._quote, self._depth, self._escaped = [], "", 0, False
            self._state = self._in_value
            return rest
        if (found := self._limited_match(self._call_end)) or len(self._buffer) > self.MAX_HEAD:
            self._emit_arguments("}", out)
            rest, self._buffer = self._buffer[found.end() if found else 0 :], ""
            self._state, self._called = (self._after, False) if found else (self._free, True)
            return rest
        return ""

    def _in_value(self, text: str, out: list[Delta]) -> str:
        for i, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quote:
                self._escaped = char == "\\"
                self._quote = "" if char == self._quote else self._quote
            elif char in "'\"":
                self._quote = char
            elif char in "([{":
                self._depth += 1
            elif self._depth and char in ")]}":
                self._depth -= 1
            elif not self._depth and char in ",)":
                self._emit_arguments(_as_json("".join([*self._raw, text[:i]])), out)
                self._state = self._between
                return text[i:]
        self._raw.append(text)
        return ""

    def _after(self, text: str, out: list[Delta]) -> str:
        """After a call: another one, or the end of the list."""
        self._buffer += text
        if found := self._limited_match(self._next_call):
            return self._open(found, out)
        if (found := self._limited_match(self._list_end)) or len(self._buffer) > self.MAX_HEAD:
            rest, self._buffer = self._buffer[found.end() if found else 0 :], ""
            self._state, self._called = self._free, True
            return rest
        return ""


def _as_json(value: str) -> str:
    """A Python value as JSON; if it cannot be converted, its source as a string."""
    value = value.strip()
    written = "".join(map(_token_as_json, _TOKEN.findall(value)))
    try:
        json_input.parse(written, strict=True)
    except ValueError:
        return json.dumps(value, ensure_ascii=False)
    return written


def _token_as_json(token: str) -> str:
    if token[0] not in "'\"" or len(token) < 2:
        return _AS_JSON.get(token, token)
    return f'"{_NOT_AS_IN_JSON.sub(_character_as_json, token[1:-1])}"'


def _character_as_json(found: re.Match[str]) -> str:
    """A quote, a control character or an escape of a Python string, for JSON. An escaped line break is dropped.

    Escapes that JSON lacks, such as \\x41, stay.
    """
    character = found[0]
    if len(character) == 1:
        return json.dumps(character)[1:-1]
    return {"\\'": "'", "\\\n": ""}.get(character, character)
