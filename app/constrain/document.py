"""A JSON schema as a document: where its references lead, and what of it is not understood."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

Json = Any  # a parsed JSON value: None, bool, int, float, str, list or dict

# What $schema may name: drafts whose keywords, as far as they are understood here, mean the same.
DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[4-7]|draft/20(19-09|20-12))/schema#?")
# Keywords that say nothing about which values are allowed.
ANNOTATIONS = frozenset(
    ["$schema", "$id", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$comment", "$vocabulary", "title",
     "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "contentEncoding",
     "contentMediaType", "contentSchema"]
)  # fmt: skip
ONE = ("additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else",
       "unevaluatedItems", "unevaluatedProperties", "contentSchema")  # fmt: skip
MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
# Keywords of older or other dialects: read as annotations they would loosen the schema.
FOREIGN = frozenset(["$recursiveRef", "additionalItems", "extends", "disallow", "divisibleBy"])


class Refused(Exception):
    """The schema asks for something that cannot be held exactly. `path`: keys that lead to the keyword."""

    def __init__(self, path: tuple[str, ...], why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why

    @property
    def keyword(self) -> str:
        """The keyword at fault."""
        return self.path[-1] if self.path else ""


class Malformed(Refused):
    """What is given is not a JSON schema."""


@dataclass(frozen=True)
class Place:
    """A subschema: its base URI and the keys that lead to it, for messages."""

    schema: Any
    base: str
    path: tuple[str, ...]

    def refuse(self, keyword: str, why: str) -> Refused:
        """The error for one of its keywords."""
        return Refused((*self.path, keyword), why)

    def malformed(self, keyword: str, why: str) -> Malformed:
        """The error for a keyword with a value that no schema may have."""
        return Malformed((*self.path, keyword), why)

    def sub(self, *keys: Any) -> Place:
        """A subschema of it."""
        found = self.schema
        for key in keys:
            found = found[key]
        return Place(found, _based(self.base, found), (*self.path, *map(str, keys)))


def _based(base: str, schema: Any) -> str:
    given = schema.get("$id") if isinstance(schema, dict) else None
    return urldefrag(urljoin(base, given))[0] if isinstance(given, str) else base


class Document:
    """All subschemas of a schema by their addresses."""

    def __init__(self, schema: Any) -> None:
        self.root = Place(schema, _based("", schema), ())
        self._resources: dict[str, Place] = {"": self.root}
        self._anchors: dict[tuple[str, str], Place] = {}
        self._dynamic: dict[str, set[str]] = {}  # $dynamicAnchor -> bases that have it
        self.unevaluated = False
        self._walk(self.root, 0)

    def _walk(self, place: Place, depth: int) -> None:
        schema = place.schema
        if depth > 200:
            raise place.refuse("$defs", "it is nested too deeply")
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise Malformed(place.path, "a schema must be an object, true or false")
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and not DIALECT.fullmatch(dialect):
            raise place.refuse("$schema", f"{dialect!r} is not a draft that is known here")
        if isinstance(schema.get("$id"), str) or not place.path:
            self._resources.setdefault(place.base, place)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors.setdefault((place.base, schema[keyword]), place)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(schema["$dynamicAnchor"], set()).add(place.base)
        self.unevaluated |= "unevaluatedItems" in schema or "unevaluatedProperties" in schema
        for keyword in ONE:
            if keyword in schema:
                self._walk(place.sub(keyword), depth + 1)
        for keyword in MANY:
            if keyword in schema:
                if not isinstance(schema[keyword], list) or not schema[keyword]:
                    raise place.malformed(keyword, "it must be a list of schemas, not empty")
                for i in range(len(schema[keyword])):
                    self._walk(place.sub(keyword, i), depth + 1)
        for keyword in NAMED:
            if keyword in schema:
                if not isinstance(schema[keyword], dict):
                    raise place.malformed(keyword, "it must be an object of schemas")
                for name in schema[keyword]:
                    self._walk(place.sub(keyword, name), depth + 1)
        if isinstance(schema.get("dependencies"), dict):
            for name, value in schema["dependencies"].items():
                if not isinstance(value, list):
                    self._walk(place.sub("dependencies", name), depth + 1)

    def resolve(self, place: Place, keyword: str) -> Place:
        """Where $ref or $dynamicRef of a place leads."""
        reference = place.schema[keyword]
        if not isinstance(reference, str):
            raise place.malformed(keyword, "it must be a string")
        base, fragment = urldefrag(urljoin(place.base, reference))
        resource = self._resources.get(base)
        if resource is None:
            raise place.refuse(keyword, f"{reference!r} leads out of the schema")
        fragment = unquote(fragment)
        if not fragment:
            found = resource
        elif fragment.startswith("/"):
            found = self._pointed(resource, fragment, place, keyword)
        elif (base, fragment) in self._anchors:
            found = self._anchors[base, fragment]
            dynamic = isinstance(found.schema, dict) and found.schema.get("$dynamicAnchor") == fragment
            if keyword == "$dynamicRef" and dynamic and len(self._dynamic[fragment]) > 1:
                raise place.refuse(keyword, "several schemas have that $dynamicAnchor")
        else:
            raise place.refuse(keyword, f"{reference!r} leads nowhere")
        return found

    def _pointed(self, resource: Place, fragment: str, place: Place, keyword: str) -> Place:
        at = resource
        for raw in fragment[1:].split("/"):
            key: Any = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(at.schema, list) and key.isdigit():
                key = int(key)
            try:
                at = at.sub(key)
            except (KeyError, IndexError, TypeError):
                raise place.refuse(keyword, f"{place.schema[keyword]!r} leads nowhere") from None
        if not isinstance(at.schema, dict | bool):
            raise place.refuse(keyword, f"{place.schema[keyword]!r} leads to something that is no schema")
        self._walk(at, 0)
        return at
