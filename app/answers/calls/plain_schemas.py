"""Schemas of tools that only list properties: arguments that are not written as JSON can follow these.

What is not as expected, also a schema that is no schema, is not plain. As JSON it is enforced, or gets its error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from app.constrain import effort
from app.constrain.ebnf import Grammar, literal

NULL = frozenset(["null"])
NOTES = frozenset(["title", "description", "default", "examples", "$comment", "deprecated", "nullable"])
_OF_OBJECTS = NOTES | {"type", "properties", "required", "additionalProperties", "$schema", "strict"}
MAX_NAME = 100  # characters of a property's name, which the parsers look for within 300
MAX_ENUM = 1000


def properties_of(schema: Mapping[str, Any], *, nested: bool = False) -> dict[str, Any] | None:
    """The properties of an object, flattened(), if its schema says no more.

    `nested`: None as well if it lists no properties.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type") != "object" or not _OF_OBJECTS.issuperset(schema) or schema.get("additionalProperties"):
        return None
    if not isinstance(properties, dict) or not isinstance(required, list) or (nested and not properties):
        return None
    properties = {name: flattened(value) for name, value in properties.items()}
    listed = all(isinstance(name, str) and name in properties for name in required)
    named = all(0 < len(name) <= MAX_NAME and name.isprintable() for name in properties)
    known = all(isinstance(value, dict) and types_of(value) for value in properties.values())
    return properties if listed and named and known and "$ref" not in json.dumps(properties) else None


def flattened(schema: Any) -> Any:
    """A schema with one list of types, if it is `anyOf` or `oneOf` of null and of one type: pydantic's Optional.

    Any other schema is returned as it is.
    """
    if not isinstance(schema, dict):
        return schema
    notes = {key: value for key, value in schema.items() if key in NOTES}
    (key, options), *others = [item for item in schema.items() if item[0] not in NOTES] or [("", None)]
    if others or key not in ("anyOf", "oneOf") or not isinstance(options, list) or not all(map(_is_dict, options)):
        return schema
    typed = [option for option in options if types_of(option) != NULL]
    if len(options) != len(typed) + 1 or len(typed) != 1 or not isinstance(typed[0].get("type"), str):
        return schema
    enum = {"enum": [*typed[0]["enum"], None]} if isinstance(typed[0].get("enum"), list) else {}
    if "const" in typed[0] or not all(
        option.keys() <= NOTES | {"type"} for option in options if option is not typed[0]
    ):
        return schema
    return {**typed[0], **notes, "type": [typed[0]["type"], "null"], **enum}


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def is_text_or_null(schema: Mapping[str, Any]) -> bool:
    """Whether a schema allows texts and null, and no other types."""
    return types_of(schema) == {"string", "null"}


def without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the other values that a schema of one type and null allows."""
    (type,) = types_of(schema) - NULL
    listed = schema.get("enum")
    enum = {"enum": [value for value in listed if value is not None]} if isinstance(listed, list) else {}
    return {**schema, "type": type, **enum}


def lists_null(schema: Mapping[str, Any]) -> bool:
    """Whether a schema does not leave null out of the values that it lists, if it lists any."""
    listed = schema.get("enum")
    return not isinstance(listed, list) or None in listed


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema; none if it does not name them."""
    given = schema.get("type")
    types: list[Any] = given if isinstance(given, list) else [given]
    return frozenset(types) if all(isinstance(type, str) for type in types) else frozenset()


def texts_of(schema: Mapping[str, Any]) -> list[str] | None:
    """The texts that a schema of texts lists; [] for any text; None if it says more of them, or allows other values.

    Raises effort.TooComplex where all that the request lists is too long to be written.
    """
    if schema.get("type") != "string" or not NOTES | {"type", "enum"} >= schema.keys():
        return None
    listed = schema.get("enum", [])
    if not isinstance(listed, list) or len(listed) > MAX_ENUM or ("enum" in schema and not listed):
        return None
    if not all(isinstance(text, str) and text.isprintable() for text in listed):
        return None
    effort.spend(sum(map(len, listed)) >> 2)
    return listed


def bare_texts_of(schema: Mapping[str, Any]) -> list[str] | None:
    """texts_of(), for texts without quotes: where the schema allows null as well, it is the text `null`.

    None as well if a listed text is `null`, too.
    """
    if not is_text_or_null(schema):
        return texts_of(schema)
    texts = texts_of(without_null(schema))
    if not texts or not lists_null(schema):
        return texts
    return None if "null" in texts else [*texts, "null"]


def members(grammar: Grammar, rules: Iterable[tuple[str, bool]], joint: str) -> str:
    """The rule of members in this order. `rules`: of each, and whether it must be there; `joint`: between two."""
    more = first = '""'  # the members from one on: after others, and as the first ones
    for rule, required in reversed(list(rules)):
        if required:
            first, more = f"{rule} {more}", f"{literal(joint)} {rule} {more}"
        else:
            first, more = f"({rule} {more} | {first})", f"({literal(joint)} {rule})? {more}"
        first, more = grammar.add("first", first), grammar.add("more", more)
    return first
