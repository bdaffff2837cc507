"""Tool calls of MiniMax M3: each argument is an element of its name, and so is all that it holds.

    <invoke name="NAME"><KEY>VALUE</KEY><LIST><item>1</item><item>2</item></LIST></invoke>

Before each tag stands the token ]<]minimax[>[. A string has no quotes, and a value that is null is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from app.answers.calls.plain_schemas import (
    NOTES,
    bare_texts_of,
    flattened,
    is_text_or_null,
    properties_of,
    types_of,
)
from app.answers.calls.tagged_arguments import OTHER_TYPES, TaggedArguments, as_json
from app.constrain.ebnf import Grammar, either, literal, text_until
from app.constrain.rules import schema_rule

MARK = "]<]minimax[>["
_TAG = re.compile(re.escape(MARK) + r"<(/?)([^<>]+)>")
_MAX_DEPTH = 64


class ElementArguments(TaggedArguments):
    """Each argument in an element, whose objects and arrays are elements, too."""

    def value(self, grammar: Grammar, schema: Mapping[str, Any], param: str, end: str) -> str | None:
        types = types_of(schema)
        if types == {"object"}:
            inner = self._members(grammar, schema, param)
            return None if inner is None else f"{inner} {literal(end)}"
        if types == {"array"}:
            items = flattened(schema.get("items"))
            if not schema.keys() <= NOTES | {"type", "items"} or not isinstance(items, dict) or not types_of(items):
                return None
            item = self.value(grammar, items, param, f"{MARK}</item>")
            return None if item is None else f"({literal(f'{MARK}<item>')} {item})* {literal(end)}"
        if types and types <= OTHER_TYPES - {"array", "object"}:
            return f"{schema_rule(grammar, schema, param, ordered=True)} {literal(end)}"
        texts = bare_texts_of(schema)
        if texts is None or any(MARK in text for text in texts):
            return None
        if texts:
            return f"{either(map(literal, texts))} {literal(end)}"
        return grammar.add("text", text_until(end))

    def _members(self, grammar: Grammar, schema: Mapping[str, Any], param: str) -> str | None:
        """The rule of an object's members; None if they cannot be enforced as elements."""
        properties, rules = properties_of(schema, nested=True), []
        if properties is None or not all(re.fullmatch(r"[\w$.-]+", name) for name in properties):
            return None
        for name, given in properties.items():
            value = self.value(grammar, given, param, f"{MARK}</{name}>")
            if value is None:
                return None
            rule = f"{literal(f'{MARK}<{name}>')} {value}"
            rules.append(rule if name in schema.get("required", []) else f"({rule})?")
        return " ".join(rules)

    def as_json(self, raw: str, schema: Any) -> str:
        if MARK not in raw and not types_of(_mapping(schema)) & {"array", "object", "string"}:
            return as_json(raw)
        return _value_json(raw, schema, 0)


def _mapping(schema: Any) -> Mapping[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _value_json(raw: str, schema: Any, depth: int) -> str:
    """The JSON of an element's inside. Numbers keep their text, since a float has neither all digits nor 1e999."""
    schema = flattened(_mapping(schema))
    types, members = types_of(schema), _elements(raw) if depth < _MAX_DEPTH else []
    if types == {"string"}:
        return _text(raw)
    if is_text_or_null(schema):
        return "null" if raw.strip() == "null" else _text(raw)
    if not members and not raw.strip() and types & {"array", "object"}:
        return "[]" if "array" in types else "{}"
    if not members:
        return as_json(raw)
    if "array" in types or (not types and {name for name, _ in members} == {"item"}):
        return f"[{', '.join(_value_json(inside, schema.get('items'), depth + 1) for _, inside in members)}]"
    known = _mapping(schema.get("properties"))
    values = {name: _value_json(inside, known.get(name), depth + 1) for name, inside in members}
    return f"{{{', '.join(f'{_text(name)}: {value}' for name, value in values.items())}}}"


def _text(raw: str) -> str:
    return json.dumps(raw, ensure_ascii=False)


def _elements(raw: str) -> list[tuple[str, str]]:
    """The outermost elements of a text: (name, inside). One without an end is left out."""
    found: list[tuple[str, str]] = []
    opened: list[str] = []
    begin = 0
    for tag in _TAG.finditer(raw):
        closes, name = tag[1], tag[2]
        if not closes:
            opened.append(name)
            begin = tag.end() if len(opened) == 1 else begin
        elif opened and opened[-1] == name:
            opened.pop()
            if not opened:
                found.append((name, raw[begin : tag.start()]))
    return found
