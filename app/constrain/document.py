"""A JSON schema as a document: its subschemas by address, its references, and the errors that name a keyword."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urldefrag, urljoin

from app.constrain.counts import count
from app.constrain.effort import spend
from app.openai.fields import Json

# Values of $schema: drafts in which the supported keywords have the same meaning as in draft 2020-12.
DIALECT = re.compile(r"https?://json-schema\.org/(draft-0[4-7]|draft/20(19-09|20-12))/schema#?")
# Keywords whose value is a schema, a list of schemas, or an object of schemas.
SINGLE_SUBSCHEMA = (
    "additionalProperties", "propertyNames", "items", "contains", "not", "if", "then", "else", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
)  # fmt: skip
SUBSCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SUBSCHEMA_OBJECTS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
# Keywords of other dialects. Ignoring them would allow values that the author excluded.
FOREIGN = frozenset(["$recursiveRef", "additionalItems", "extends", "disallow", "divisibleBy"])
MAX_DEPTH = 200


class UnsupportedKeyword(Exception):
    """A keyword that cannot be enforced exactly. `path`: the keys that lead to it."""

    def __init__(self, path: tuple[str, ...], why: str) -> None:
        super().__init__(why)
        self.path, self.why = path, why

    @property
    def keyword(self) -> str:
        """The name of the keyword."""
        return self.path[-1] if self.path else ""


class InvalidSchema(UnsupportedKeyword):
    """The value is not a JSON schema."""


@dataclass(frozen=True)
class Subschema:
    """A subschema with its base URI, and with the keys that lead to it for error messages."""

    schema: Json
    base: str
    path: tuple[str, ...]

    def unsupported(self, keyword: str, why: str) -> UnsupportedKeyword:
        """Return the error for a keyword that cannot be enforced."""
        return UnsupportedKeyword((*self.path, keyword), why)

    def invalid(self, keyword: str, why: str) -> InvalidSchema:
        """Return the error for a keyword whose value no schema may have."""
        return InvalidSchema((*self.path, keyword), why)

    def sub(self, *keys: str | int) -> Subschema:
        """Return the subschema below these keys."""
        found = self.schema
        for key in keys:
            found = found[key]
        path = (*self.path, *map(str, keys))
        return Subschema(found, _base_uri(self.base, found, path), path)


def _base_uri(base: str, schema: Json, path: tuple[str, ...]) -> str:
    given = schema.get("$id") if isinstance(schema, dict) else None
    return _joined(base, given, (*path, "$id"))[0] if isinstance(given, str) else base


def _joined(base: str, reference: str, path: tuple[str, ...]) -> tuple[str, str]:
    """(address, fragment) of a reference to a base URI."""
    try:
        address, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        raise InvalidSchema(path, "it is not a URI") from None
    return address, fragment


class Document:
    """A schema, with the addresses of its subschemas ($id, $anchor, $dynamicAnchor)."""

    def __init__(self, schema: Json) -> None:
        self.root = Subschema(schema, _base_uri("", schema, ()), ())
        self._resources: dict[str, Subschema] = {"": self.root}
        self._anchors: dict[tuple[str, str], Subschema] = {}
        self._dynamic: dict[str, set[str]] = {}  # $dynamicAnchor -> base URIs of the subschemas that have it
        self.unevaluated = False
        self._walked = set[int]()  # ids of the subschemas that were walked
        self._walk(self.root, 0)

    def _walk(self, subschema: Subschema, depth: int) -> None:
        schema = subschema.schema
        spend(4)
        self._walked.add(id(schema))
        if depth > MAX_DEPTH:
            raise subschema.unsupported("$defs", f"it is nested more than {MAX_DEPTH} levels deep")
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            raise InvalidSchema(subschema.path, "a schema must be an object, true or false")
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and not DIALECT.fullmatch(dialect):
            raise subschema.unsupported("$schema", f"{dialect!r} is not supported; use draft 2020-12")
        if isinstance(schema.get("$id"), str) or not subschema.path:
            self._resources.setdefault(subschema.base, subschema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._anchors.setdefault((subschema.base, schema[keyword]), subschema)
        if isinstance(schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(schema["$dynamicAnchor"], set()).add(subschema.base)
        self.unevaluated |= "unevaluatedItems" in schema or "unevaluatedProperties" in schema
        for keyword in SINGLE_SUBSCHEMA:
            if keyword in schema:
                self._walk(subschema.sub(keyword), depth + 1)
        for keyword in SUBSCHEMA_LISTS:
            if keyword in schema:
                if not isinstance(schema[keyword], list) or not schema[keyword]:
                    raise subschema.invalid(keyword, "it must be a non-empty list of schemas")
                for i in range(len(schema[keyword])):
                    self._walk(subschema.sub(keyword, i), depth + 1)
        for keyword in SUBSCHEMA_OBJECTS:
            if keyword in schema:
                if not isinstance(schema[keyword], dict):
                    raise subschema.invalid(keyword, "it must be an object whose values are schemas")
                for name in schema[keyword]:
                    self._walk(subschema.sub(keyword, name), depth + 1)
        if isinstance(schema.get("dependencies"), dict):
            for name, value in schema["dependencies"].items():
                if not isinstance(value, list):
                    self._walk(subschema.sub("dependencies", name), depth + 1)

    def resolve(self, subschema: Subschema, keyword: str) -> Subschema:
        """Return the subschema that $ref or $dynamicRef points to."""
        reference = subschema.schema[keyword]
        if not isinstance(reference, str):
            raise subschema.invalid(keyword, "it must be a string")
        base, fragment = _joined(subschema.base, reference, (*subschema.path, keyword))
        resource = self._resources.get(base)
        if resource is None:
            raise subschema.unsupported(keyword, f"{reference!r} is outside of the schema; copy its target into $defs")
        fragment = unquote(fragment)
        if not fragment:
            found = resource
        elif fragment.startswith("/"):
            found = self._by_pointer(resource, fragment, subschema, keyword)
        elif (base, fragment) in self._anchors:
            found = self._anchors[base, fragment]
            dynamic = isinstance(found.schema, dict) and found.schema.get("$dynamicAnchor") == fragment
            if keyword == "$dynamicRef" and dynamic and len(self._dynamic[fragment]) > 1:
                raise subschema.unsupported(keyword, "several subschemas have that $dynamicAnchor")
        else:
            raise subschema.unsupported(keyword, f"{reference!r} points to nothing in the schema")
        return found

    def _by_pointer(self, resource: Subschema, fragment: str, subschema: Subschema, keyword: str) -> Subschema:
        at, reference = resource, subschema.schema[keyword]
        for raw in fragment[1:].split("/"):
            key = raw.replace("~1", "/").replace("~0", "~")
            try:
                index = count(key) if isinstance(at.schema, list) else None
                at = at.sub(key if index is None else index)
            except (KeyError, IndexError, TypeError):
                raise subschema.unsupported(keyword, f"{reference!r} points to nothing in the schema") from None
        if not isinstance(at.schema, dict | bool):
            raise subschema.unsupported(keyword, f"{reference!r} points to something that is not a schema")
        if id(at.schema) not in self._walked:
            self._walk(at, 0)
        return at
