# ruff: noqa: E501, RUF001
"""Schemas with every keyword of draft 2020-12, and values to validate against each of them with `jsonschema`."""

from typing import Any

S: dict[str, Any] = {"type": "string"}
I: dict[str, Any] = {"type": "integer"}  # noqa: E741
N: dict[str, Any] = {"type": "number"}
B: dict[str, Any] = {"type": "boolean"}
OPEN = {"a": 1, "b": "x"}


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """An object schema without additional properties."""
    return {
        "type": "object", "properties": properties, "required": list(required), "additionalProperties": False, **more,
    }  # fmt: skip


def arr(items: Any, **more: Any) -> dict[str, Any]:
    """An array schema."""
    return {"type": "array", "items": items, **more}


SCHEMAS: dict[str, list[Any]] = {
    "booleans": [True, {}, {"not": False}],
    "type": [
        S, I, N, B, {"type": "null"}, {"type": "array"}, {"type": "object"},
        {"type": ["string", "null"]}, {"type": ["integer", "string"]}, {"type": ["number", "boolean", "null"]},
        {"type": ["object", "array"]}, {"type": ["integer", "number"]},
    ],
    "const": [
        {"const": 5}, {"const": -0.5}, {"const": "é\n\"\\/"}, {"const": None}, {"const": True}, {"const": [1, "a"]},
        {"const": {"a": {"b": []}}}, {"const": 1.0}, {"const": "🚀"}, {"const": 1200}, {"const": ""}, {"const": {}},
    ],
    "enum": [
        {"enum": ["red", "green", "blue"]}, {"enum": [1, 2.5, "1", None, False]}, {"enum": [[], [1], {"a": 1}]},
        {"type": "string", "enum": ["a", 1, "b"]}, {"enum": ["", " ", "\t"]}, {"enum": ["a", "ab", "abc"]},
        {"enum": [0, False]}, {"enum": ["日本", "中国"]},
    ],
    "minimum": [
        {"type": "integer", "minimum": 3}, {"type": "integer", "minimum": -3}, {"type": "number", "minimum": 0.5},
        {"minimum": 0}, {"type": "integer", "minimum": 99}, {"type": "number", "minimum": -12.75},
    ],
    "maximum": [
        {"type": "integer", "maximum": 3}, {"type": "integer", "maximum": -3}, {"type": "number", "maximum": 0.5},
        {"maximum": 0}, {"type": "integer", "maximum": 1000}, {"type": "integer", "minimum": 1, "maximum": 10},
        {"type": "number", "minimum": 1.25, "maximum": 1.5}, {"type": "integer", "minimum": -5, "maximum": 5},
    ],
    "exclusiveMinimum": [
        {"type": "number", "exclusiveMinimum": 0}, {"type": "integer", "exclusiveMinimum": -1},
        {"type": "number", "exclusiveMinimum": 1.5, "maximum": 2},
    ],
    "exclusiveMaximum": [
        {"type": "number", "exclusiveMaximum": 0}, {"type": "integer", "exclusiveMaximum": 10},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 3},
    ],
    "multipleOf": [
        {"type": "integer", "multipleOf": 3}, {"type": "number", "multipleOf": 0.01},
        {"type": "number", "multipleOf": 2.5}, {"multipleOf": 7, "minimum": 0, "maximum": 50},
        {"type": "number", "multipleOf": 0.5, "minimum": 0.4, "maximum": 1.6}, {"type": "integer", "multipleOf": 100},
    ],
    "minLength": [
        {"type": "string", "minLength": 1}, {"type": "string", "minLength": 3}, {"minLength": 2},
        {"type": "string", "minLength": 2, "maxLength": 3},
    ],
    "maxLength": [
        {"type": "string", "maxLength": 0}, {"type": "string", "maxLength": 2}, {"maxLength": 5},
        {"type": "string", "maxLength": 200},
    ],
    "pattern": [
        {"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "a"}, {"pattern": "^x"},
        {"type": "string", "pattern": "^(foo|bar)-[0-9]{2,3}$"}, {"type": "string", "pattern": "[A-Z].*[0-9]$"},
        {"type": "string", "pattern": "^.{2}$"}, {"type": "string", "pattern": "^[^a-c]*$", "maxLength": 3},
        {"type": "string", "pattern": "^é+$"}, {"type": "string", "pattern": "^[а-я]{1,4}$"},
        {"type": "string", "pattern": "^(ab)*$", "minLength": 3}, {"type": "string", "pattern": "^$|^none$"},
        {"type": "string", "pattern": "^\\\\d\"\\n?$"}, {"type": "string", "pattern": "^[一-龥]{1,3}$"},
        {"type": "string", "pattern": "^(?:[01][0-9]|2[0-3]):[0-5][0-9]$"}, {"allOf": [{"pattern": "a"}, {"pattern": "b"}]},
        {"type": "string", "pattern": "x{2,}y?z*$"},
    ],
    "format": [{"type": "string", "format": "date"}, {"format": "nonsense"}],  # an annotation in this draft
    "items": [
        arr(I), arr(S, minItems=1), {"items": B}, arr(arr(I)), arr(False), arr(True),
        arr({"type": ["string", "null"]}, maxItems=2),
    ],
    "prefixItems": [
        {"type": "array", "prefixItems": [I, S]}, {"type": "array", "prefixItems": [I, S], "items": False},
        {"type": "array", "prefixItems": [I], "items": S}, {"prefixItems": [B, False]},
        {"type": "array", "prefixItems": [I, S, B], "minItems": 2, "maxItems": 2},
        {"type": "array", "prefixItems": [I, I], "items": S, "minItems": 3},
    ],
    "minItems": [arr(I, minItems=2), arr(I, minItems=1, maxItems=1), {"minItems": 1}],
    "maxItems": [arr(I, maxItems=2), arr(S, maxItems=0), {"maxItems": 1}, arr(I, minItems=2, maxItems=4)],
    "uniqueItems": [
        arr({"enum": ["a", "b", "c"]}, uniqueItems=True), arr(B, uniqueItems=True),
        arr({"enum": [1, 2]}, uniqueItems=True, minItems=1), {"type": "array", "uniqueItems": False},
        {"type": "array", "prefixItems": [I, S], "items": False, "uniqueItems": True},
        arr({"enum": [None, "x"]}, uniqueItems=True, minItems=2),
    ],
    "properties that no value has": [
        obj({"a": obj({"b": I}, minProperties=2), "c": I}), obj({"a": arr(I, contains=S), "c": I}),
        obj({"a": {"type": "array", "prefixItems": [I], "maxItems": 1, "contains": S}, "c": I}),
        obj({"a": {"type": "object", "additionalProperties": I, "not": {"additionalProperties": N}}, "c": I}),
    ],
    "contains": [
        {"type": "array", "contains": I}, arr({"type": ["integer", "string"]}, contains=S),
        {"type": "array", "contains": {"const": 5}, "maxItems": 3},
        {"type": "array", "contains": {"type": "object"}, "items": {"type": ["object", "null"]}},
    ],
    "minContains": [
        arr({"type": ["integer", "null"]}, contains=I, minContains=2),
        arr({"type": ["integer", "null"]}, contains=I, minContains=0),
        arr({"type": ["integer", "null"]}, contains=I, minContains=1, maxContains=2),
    ],
    "maxContains": [
        arr({"enum": [1, "x"]}, contains={"const": 1}, maxContains=1),
        arr({"enum": [1, "x"]}, contains={"const": 1}, minContains=0, maxContains=1, maxItems=3),
    ],
    "properties": [
        obj({}), obj({"a": I}), obj({"a": I, "b": S}, "a"), obj({"a": I, "b": S}, "a", "b"), {"properties": {"a": I}},
        {"type": "object", "properties": {"a": I, "b": False}}, obj({"a": obj({"b": arr(I)}, "b")}, "a"),
        obj({"é\"": I, "x y": S}), obj(dict.fromkeys("abcdefg", I), "a", "g"), obj(dict.fromkeys("abcdefgh", I)),
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a", "b"]},
    ],
    "required": [{"required": ["a"]}, {"type": "object", "required": ["a", "b"]}, {"required": []}],
    "additionalProperties": [
        {"type": "object", "additionalProperties": I}, {"type": "object", "properties": {"a": S}, "additionalProperties": I},
        {"additionalProperties": False}, {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {"a": S}, "required": ["a"], "additionalProperties": {"type": ["null", "boolean"]}},
        {"type": "object", "patternProperties": {"^a": I}, "additionalProperties": S},
    ],
    "patternProperties": [
        {"type": "object", "patternProperties": {"^a": I}}, {"patternProperties": {"a": I, "b": {"minimum": 3}}},
        {"type": "object", "patternProperties": {"^[a-c]$": B}, "additionalProperties": False},
        {"type": "object", "properties": {"ab": {"minimum": 2}}, "patternProperties": {"^a": I}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"x": False}},
    ],
    "propertyNames": [
        {"type": "object", "propertyNames": {"maxLength": 2}}, {"propertyNames": {"pattern": "^[ab]"}},
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": I},
        {"type": "object", "propertyNames": False}, {"type": "object", "properties": {"a": I}, "propertyNames": {"const": "a"}},
    ],
    "minProperties": [
        {"type": "object", "minProperties": 1}, {"type": "object", "minProperties": 2, "additionalProperties": I},
        obj({"a": I, "b": I, "c": I}, minProperties=2), {"minProperties": 1},
    ],
    "maxProperties": [
        {"type": "object", "maxProperties": 1}, obj({"a": I, "b": I, "c": I}, maxProperties=2), {"maxProperties": 0},
        {"type": "object", "additionalProperties": S, "minProperties": 1, "maxProperties": 2},
    ],
    "dependentRequired": [
        {"type": "object", "dependentRequired": {"a": ["b"]}}, obj({"a": I, "b": S}, dependentRequired={"a": ["b"]}),
        obj({"a": I, "b": I, "c": I}, dependentRequired={"a": ["b"], "b": ["c"]}), {"dependentRequired": {"a": []}},
    ],
    "dependentSchemas": [
        {"dependentSchemas": {"a": {"properties": {"b": I}}}}, {"dependentSchemas": {"a": False}},
        {"type": "object", "dependentSchemas": {"a": {"required": ["b"]}, "b": {"minProperties": 2}}},
    ],
    "allOf": [
        {"allOf": [I, {"minimum": 3}]}, {"allOf": [{"required": ["a"]}, {"properties": {"a": I}}]},
        {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]},
        {"allOf": [obj({"a": I, "b": S}), {"required": ["b"]}]}, {"allOf": [{"minLength": 2}, {"maxLength": 3}, S]},
        {"allOf": [{"items": I}, {"items": {"minimum": 2}}, {"type": "array"}]},
    ],
    "anyOf": [
        {"anyOf": [S, I]}, {"anyOf": [{"minimum": 5}, {"maximum": 2}]}, {"anyOf": [obj({"a": I}, "a"), obj({"b": S}, "b")]},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"anyOf": [True, I]}, {"anyOf": [False, I]},
        {"anyOf": [arr(I), arr(S)]}, {"type": "string", "anyOf": [{"pattern": "^a"}, {"minLength": 3}]},
    ],
    "oneOf": [
        {"oneOf": [S, I]}, {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, {"oneOf": [I, N]},
        {"oneOf": [obj({"kind": {"const": "x"}, "v": I}, "kind"), obj({"kind": {"const": "y"}, "v": S}, "kind")]},
        {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"oneOf": [{"maxLength": 2}, {"minLength": 2}]},
        {"type": "integer", "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, {"oneOf": [{"const": 1}, {"enum": [1, 2]}]},
        {"type": "array", "oneOf": [{"minItems": 2}, {"items": I}]},
    ],
    "not": [
        {"not": S}, {"not": {"const": 5}}, {"type": "integer", "not": {"minimum": 5}}, {"type": "string", "not": {"pattern": "a"}},
        {"type": "object", "not": {"required": ["a"]}}, {"type": "string", "not": {"enum": ["a", "b"]}},
        {"not": {"not": I}}, {"type": "array", "not": {"minItems": 2}}, {"type": "array", "not": {"items": I}},
        {"type": "object", "not": {"properties": {"a": I}}}, {"type": "number", "not": {"multipleOf": 2}},
        {"type": "object", "not": {"additionalProperties": I}}, {"not": {"anyOf": [I, S]}}, {"not": {"allOf": [I, {"minimum": 2}]}},
        {"type": "array", "not": {"contains": I}}, {"not": {"type": ["object", "array", "number"]}},
    ],
    "if": [
        {"if": I, "then": {"minimum": 3}, "else": S}, {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
        {"type": "object", "properties": {"k": {"enum": ["x", "y"]}, "v": True}, "required": ["k", "v"],
         "if": {"properties": {"k": {"const": "x"}}}, "then": {"properties": {"v": I}}, "else": {"properties": {"v": S}}},
        {"if": {"const": 1}, "else": {"type": "null"}}, {"then": I}, {"if": True, "then": S, "else": I},
    ],
    "$ref": [
        {"$ref": "#/$defs/n", "$defs": {"n": I}}, {"$ref": "#/$defs/n", "maximum": 3, "$defs": {"n": I}},
        obj({"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "v": I}, "v"),
        {"$defs": {"tree": obj({"v": I, "kids": arr({"$ref": "#/$defs/tree"})}, "v", "kids")}, "$ref": "#/$defs/tree"},
        arr({"$ref": "#/$defs/a%20b~1c"}) | {"$defs": {"a b/c": S}}, {"definitions": {"x": B}, "items": {"$ref": "#/definitions/x"}},
        {"$id": "https://wisp.test/a", "$ref": "b", "$defs": {"b": {"$id": "b", "type": "string"}}},
        {"anyOf": [{"type": "null"}, arr({"$ref": "#"})]},
    ],
    "$anchor": [{"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "integer"}}}],
    "$dynamicRef": [
        {"$dynamicAnchor": "node", "type": ["array", "null"], "items": {"$dynamicRef": "#node"}},
    ],
    "unevaluatedProperties": [
        {"type": "object", "properties": {"a": I}, "unevaluatedProperties": False},
        {"allOf": [{"properties": {"a": I}}], "properties": {"b": S}, "unevaluatedProperties": False, "type": "object"},
        {"anyOf": [{"properties": {"a": I}, "required": ["a"]}, {"properties": {"b": S}, "required": ["b"]}],
         "unevaluatedProperties": False, "type": "object"},
        {"if": {"properties": {"a": I}, "required": ["a"]}, "then": {"properties": {"b": S}},
         "unevaluatedProperties": False, "type": "object"},
        {"type": "object", "patternProperties": {"^a": I}, "unevaluatedProperties": S},
        {"$ref": "#/$defs/base", "properties": {"b": S}, "unevaluatedProperties": False,
         "$defs": {"base": {"type": "object", "properties": {"a": I}}}},
    ],
    "unevaluatedItems": [
        {"type": "array", "prefixItems": [I], "unevaluatedItems": False},
        {"type": "array", "allOf": [{"prefixItems": [I, S]}], "unevaluatedItems": False},
        {"type": "array", "prefixItems": [I], "unevaluatedItems": S}, {"type": "array", "contains": I, "unevaluatedItems": S},
        {"type": "array", "anyOf": [{"prefixItems": [I]}, {"prefixItems": [S, S]}], "unevaluatedItems": False},
        {"type": "array", "items": I, "unevaluatedItems": False},
    ],
    "annotations": [
        {"title": "t", "description": "d", "default": 5, "examples": [1], "deprecated": True, "readOnly": True,
         "writeOnly": True, "$comment": "c", "type": "integer"},
        {"type": "string", "contentEncoding": "base64", "contentMediaType": "text/plain", "contentSchema": False},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$vocabulary": {}, "x-mine": {"type": "null"}, "type": "string"},
    ],
    "as people write them": [
        obj({"name": S, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": ["string", "null"]}},
            "name", "age"),
        obj({"steps": arr(obj({"explanation": S, "output": S}, "explanation", "output"), minItems=1), "answer": S},
            "steps", "answer"),
        obj({"items": arr({"anyOf": [obj({"t": {"const": "text"}, "v": S}, "t", "v"), obj({"t": {"const": "n"}, "v": N}, "t")]})},
            "items"),
        {"type": "object", "properties": {"tags": arr({"enum": ["a", "b"]}, uniqueItems=True), "at": arr(N, minItems=2, maxItems=2)},
         "required": ["tags"]},
    ],
}  # fmt: skip

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 3, 5, 6, 7, 10, 99, 100, 1200, -5, -3, 1.0, 0.5, -0.5, 1.25, 1.5, 2.5, 0.01, 12.345,
    -12.75, 1e3, "", "a", "b", "ab", "abc", "ababab", "red", "1", " ", "x", "xx", "é", "éé", "é\n\"\\/", "🚀", "日本", "мир",
    "foo-12", "none", "23:59", "A1", "zzz", "abcdef", "\t", "2024-02-30", "\\d\"", [], [1], ["a"], [1, "a"], ["a", "b"],
    ["a", "a"], [1, 2], [2, 2], [1, 2, 3], [5], [None], [True, False], [True, True], [1, "x"], ["x", 1, 1], [None, "x"],
    [1, None, 2], [[1], []], [[], [None]], [{}], [1, "x", True], [1, 2, "z"], ["s", "t"], [{"a": 1}, None], [1, 1, 1, 1, 1],
    {}, {"a": 1}, {"a": 3}, {"b": "x"}, {"a": 1, "b": "x"}, {"b": "x", "a": 1}, {"a": "x"}, {"a": None}, {"b": 5},
    {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, {"c": 3, "a": 1}, {"ab": 2}, {"ab": 1}, {"abc": 1}, {"x": 1}, {"xyz": True},
    {"a": {"b": []}}, {"a": {"b": [1, 2]}}, {"é\"": 1}, {"x y": "s"}, {"a": 1, "g": 7}, {"v": 1}, {"v": 1, "next": {"v": 2}},
    {"v": 1, "next": None}, {"v": 1, "kids": []}, {"v": 1, "kids": [{"v": 2, "kids": []}]}, {"kind": "x", "v": 1},
    {"kind": "y", "v": 1}, {"kind": "y", "v": "s"}, {"k": "x", "v": 1}, {"k": "y", "v": 1}, {"k": "y", "v": "s"},
    {"name": "Ada", "age": 36}, {"age": 200, "name": ""}, {"a": True}, {"a": 1, "z": None}, {"a": "s", "z": None},
    {"steps": [{"explanation": "e", "output": "o"}], "answer": "4"}, {"tags": ["a", "b"]}, {"tags": ["a", "a"]},
    {"items": [{"t": "text", "v": "s"}, {"t": "n", "v": 1}]}, {"items": [{"t": "text", "v": 1}]},
]  # fmt: skip

# Schemas that must be refused, with the keyword that the error names.
UNSUPPORTED: list[tuple[Any, str]] = [
    (arr(I, uniqueItems=True), "uniqueItems"), ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"$ref": "https://example.com/s.json"}, "$ref"), ({"$ref": "#/$defs/none"}, "$ref"), ({"$ref": "#"}, "$ref"),
    ({"type": "string", "pattern": "^(?=a)b"}, "pattern"), ({"type": "string", "pattern": "(a)\\1"}, "pattern"),
    ({"multipleOf": 0.1234567}, "multipleOf"), ({"disallow": "string"}, "disallow"),
    ({"type": "array", "additionalItems": False}, "additionalItems"), (obj({"a": {"divisibleBy": 2}}), "divisibleBy"),
    ({"$schema": "https://example.com/mine"}, "$schema"), ({"not": arr({"enum": [1]}, uniqueItems=True)}, "uniqueItems"),
    ({"patternProperties": dict.fromkeys("abcdef", I)}, "patternProperties"),
    (arr(I, contains=I, maxContains=1, minItems=3), "contains"),
]  # fmt: skip
INVALID: list[tuple[Any, str]] = [
    ({"type": "text"}, "type"), ({"type": []}, "type"), ({"minLength": -1}, "minLength"), ({"minimum": "3"}, "minimum"),
    ({"pattern": "("}, "pattern"), ({"pattern": 5}, "pattern"), ({"required": "a"}, "required"), ({"items": 5}, "items"),
    ({"properties": []}, "properties"), ({"allOf": []}, "allOf"), ({"enum": 3}, "enum"), ({"multipleOf": 0}, "multipleOf"),
    ({"items": [I]}, "items"), ({"type": "string", "minLength": 3, "maxLength": 2}, ""), (False, ""), ({"enum": []}, ""),
    (obj({"a": I}, "a", minProperties=2), ""), (arr(I, contains=S), ""), (arr(arr(I, contains=S), minItems=1), ""),
]  # fmt: skip
