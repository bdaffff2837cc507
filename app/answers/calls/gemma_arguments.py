"""Tool calls of Gemma 4: <|tool_call>call:weather{city:<|"|>Rome<|"|>,days:2}<tool_call|>.

Keys are unquoted and in alphabetical order, strings stand between <|"|>, other values are JSON. The parser also accepts
arguments in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.answers.calls.json_arguments import JSON
from app.answers.calls.parser import CallParser
from app.answers.calls.plain_schemas import (
    NOTES,
    lists_null,
    members,
    properties_of,
    texts_of,
    types_of,
    without_null,
)
from app.answers.calls.syntax import Arguments, CallSyntax
from app.answers.markers import Until
from app.answers.parsing import Parser
from app.constrain.ebnf import Grammar, either, literal, text_until
from app.constrain.rules import schema_rule
from app.openai.answers import Delta
from app.openai.tools import Tool
from py_engine import json_input

QUOTE = '<|"|>'
_ATOMS = frozenset(["number", "integer", "boolean", "null"])
# A string between QUOTE, a string of JSON, a word (and the colon after it, if it is a key), any other character.
_TOKEN = re.compile(r'<\|"\|>(.*?)(?:<\|"\|>|\Z)|("(?:[^"\\]|\\.)*+(?:"|\Z))|([\w$.-]++)(?=(\s*:)?)|(.)', re.DOTALL)


class GemmaArguments(Arguments):
    """Arguments in Gemma's form of an object, in alphabetical order."""

    @property
    def texts(self) -> tuple[str, ...]:
        return (QUOTE,)

    def with_json(self, syntax: CallSyntax) -> CallSyntax:
        return replace(syntax, arguments=JSON)

    def rule(self, grammar: Grammar, syntax: CallSyntax, tool: Tool) -> str | None:
        arguments = _object(grammar, tool.parameters, tool.param, nested=False)
        if arguments is None:
            return None
        return f"{syntax.head_rule(tool.name)} {arguments} {literal(syntax.tail)}"

    def parser(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool], prefix: str = "") -> Parser:
        return GemmaCallParser(syntax, new_id, tools)


def _object(grammar: Grammar, schema: Mapping[str, Any], param: str, *, nested: bool) -> str | None:
    """The rule of an object; None if its schema says more than its properties."""
    properties, rules = properties_of(schema, nested=nested), []
    if properties is None or not all(re.fullmatch(r"[\w$.-]+", name) for name in properties):
        return None
    for name, value in sorted(properties.items()):
        rule = _value(grammar, value, param)
        if rule is None:
            return None
        rules.append((f"{literal(name + ':')} {rule}", name in schema.get("required", [])))
    return f"{literal('{')} {members(grammar, rules, ',')} {literal('}')}"


def _value(grammar: Grammar, schema: Any, param: str) -> str | None:
    """The rule of a value; None if its schema says more than its type."""
    if not isinstance(schema, dict):
        return None
    types = types_of(schema)
    if "null" in types and not types <= _ATOMS:
        return _value_or_null(grammar, schema, param)
    if schema.get("type") == "object":
        return _object(grammar, schema, param, nested=True)
    if schema.get("type") == "array" and schema.keys() <= NOTES | {"type", "items"}:
        item = _value(grammar, schema.get("items"), param)
        return None if item is None else f"{literal('[')} ({item} ({literal(',')} {item})*)? {literal(']')}"
    if types and types <= _ATOMS:
        return schema_rule(grammar, schema, param)
    texts = texts_of(schema)
    if texts is None:
        return None
    if texts:
        return either(literal(f"{QUOTE}{text}{QUOTE}") for text in texts)
    return f"{literal(QUOTE)} {grammar.add('text', text_until(QUOTE))}"


def _value_or_null(grammar: Grammar, schema: Mapping[str, Any], param: str) -> str | None:
    """The rule of a value of one type, or null; None for several other types."""
    if len(types_of(schema) - {"null"}) > 1:
        return None
    value = _value(grammar, without_null(schema), param)
    return either([value, literal("null")]) if value and lists_null(schema) else value


class GemmaCallParser(CallParser):
    """A parser of content and Gemma's calls, whose arguments become JSON when a call has ended."""

    def __init__(self, syntax: CallSyntax, new_id: Callable[[], str], tools: Sequence[Tool]) -> None:
        super().__init__(syntax.arguments.with_json(syntax), new_id, tools)
        self._marks = (syntax.tail, QUOTE)
        self._gathered = Until([])
        self._raw: list[str] = []  # the arguments so far, in pieces
        self._in_text = False

    def _begin(self, found: re.Match[str], out: list[Delta]) -> str:
        rest = super()._begin(found, out)
        self._gathered, self._raw, self._in_text = Until(self._marks), [], False
        self._state = self._gather
        return rest

    def _gather(self, text: str, out: list[Delta]) -> str:
        before, marker, rest = self._gathered.push(text)
        self._raw.append(before)
        if marker == QUOTE or (marker is not None and self._in_text):
            self._raw.append(marker)
            self._in_text ^= marker == QUOTE
        elif marker is not None:
            self._emit_arguments(_as_json("".join(self._raw)), out)
            self._state, self._called = self._free, True
        return rest


def _as_json(arguments: str) -> str:
    """Arguments as JSON; unchanged if they cannot be converted."""
    written = "".join(map(_token_as_json, _TOKEN.finditer(arguments.strip())))
    try:
        json_input.parse(written, strict=True)
    except ValueError:
        return arguments
    return written


def _token_as_json(found: re.Match[str]) -> str:
    text, quoted, word, colon, other = found.groups()
    if text is not None:
        return json.dumps(text, ensure_ascii=False)
    if word is not None:
        return f'"{word}"' if colon else word
    return quoted or {",": ", ", ":": ": "}.get(other, other)
