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


class UnsupportedKeyword(Exception):
    """The schema asks for something that cannot be held exactly. `path`: keys that lead to the keyword."""

    def __init__(self, path: tuple[str, ...], why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why

    @property
    def keyword(self) -> str:
        """The keyword at fault."""
        return self.path[-1] if self.path else ""


class InvalidSchema(UnsupportedKeyword):
    """What is given is not a JSON schema."""


@dataclass(frozen=True)
class Subschema:
    """A subschema: its base URI and the keys that lead to it, for messages."""

    schema: Any
    base: str
    path: tuple[str, ...]

    def unsupported(self, keyword: str, why: str) -> UnsupportedKeyword:
        """The error for one of its keywords."""
        return UnsupportedKeyword((*self.path, keyword), why)

    def invalid(self, keyword: str, why: str) -> InvalidSchema:
        """The error for a keyword with a value that no schema may have."""
        return InvalidSchema((*self.path, keyword), why)

    def sub(self, *keys: Any) -> Subschema:
        """A subschema of it."""
        found = self.schema
        for key in keys:
            found = found[key]
        return Subschema(found, _based(self.base, found), (*self.path, *map(str, keys)))


def _based(base: str, schema: Any) -> str:
    given = schema.get("$id") if isinstance(schema, dict) else None
    return urldefrag(urljoin(base, given))[0] if isinstance(given, str) else base


class Document:
    """All subschemas of a schema by their addresses."""

    def __init__(self, schema: Any) -> None:
        self.root = Subschema(schema, _based("", schema), ())
        self._resources: dict[str, Subschema] = {"": self.root}
        self._anchors: dict[tuple[str, str], Subschema] = {}
        self._dynamic: dict[str, set[str]] = {}  # $dynamicAnchor -> bases that have it
        self.unevaluated = False
        self._walk(self.root, 0)

    def _walk(self, subschema: Subschema, depth: int) -> None:
        schema = subschema.schema
        if depth > 200:
            raise subschema.unsupported("$defs", "it is nested too deeply")
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise InvalidSchema(subschema.path, "a schema must be an object, true or false")
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and not DIALECT.fullmatch(dialect):
            raise subschema.unsupported("$schema", f"{dialect!r} is not a draft that is known here")
        if isinstance(schema.get("$id"), str) or not subschema.path:
            self._resources.setdefault(subschema.base, subschema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors.setdefault((subschema.base, schema[keyword]), subschema)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(schema["$dynamicAnchor"], set()).add(subschema.base)
        self.unevaluated |= "unevaluatedItems" in schema or "unevaluatedProperties" in schema
        for keyword in ONE:
            if keyword in schema:
                self._walk(subschema.sub(keyword), depth + 1)
        for keyword in MANY:
            if keyword in schema:
                if not isinstance(schema[keyword], list) or not schema[keyword]:
                    raise subschema.invalid(keyword, "it must be a list of schemas, not empty")
                for i in range(len(schema[keyword])):
                    self._walk(subschema.sub(keyword, i), depth + 1)
        for keyword in NAMED:
            if keyword in schema:
                if not isinstance(schema[keyword], dict):
                    raise subschema.invalid(keyword, "it must be an object of schemas")
                for name in schema[keyword]:
                    self._walk(subschema.sub(keyword, name), depth + 1)
        if isinstance(schema.get("dependencies"), dict):
            for name, value in schema["dependencies"].items():
                if not isinstance(value, list):
                    self._walk(subschema.sub("dependencies", name), depth + 1)

    def resolve(self, subschema: Subschema, keyword: str) -> Subschema:
        """Where $ref or $dynamicRef of a subschema leads."""
        reference = subschema.schema[keyword]
        if not isinstance(reference, str):
            raise subschema.invalid(keyword, "it must be a string")
        base, fragment = urldefrag(urljoin(subschema.base, reference))
        resource = self._resources.get(base)
        if resource is None:
            raise subschema.unsupported(keyword, f"{reference!r} leads out of the schema")
        fragment = unquote(fragment)
        if not fragment:
            found = resource
        elif fragment.startswith("/"):
            found = self._pointed(resource, fragment, subschema, keyword)
        elif (base, fragment) in self._anchors:
            found = self._anchors[base, fragment]
            dynamic = isinstance(found.schema, dict) and found.schema.get("$dynamicAnchor") == fragment
            if keyword == "$dynamicRef" and dynamic and len(self._dynamic[fragment]) > 1:
                raise subschema.unsupported(keyword, "several schemas have that $dynamicAnchor")
        else:
            raise subschema.unsupported(keyword, f"{reference!r} leads nowhere")
        return found

    def _pointed(self, resource: Subschema, fragment: str, subschema: Subschema, keyword: str) -> Subschema:
        at = resource
        for raw in fragment[1:].split("/"):
            key: Any = raw.replace("~1", "/").replace("~0", "~")
            if isinstance(at.schema, list) and key.isdigit():
                key = int(key)
            try:
                at = at.sub(key)
            except (KeyError, IndexError, TypeError):
                raise subschema.unsupported(keyword, f"{subschema.schema[keyword]!r} leads nowhere") from None
        if not isinstance(at.schema, dict | bool):
            raise subschema.unsupported(keyword, f"{subschema.schema[keyword]!r} leads to something that is no schema")
        self._walk(at, 0)
        return at
