"""Constraints on the form of an answer: response_format, and llama.cpp's grammar, regex and json_schema."""

from dataclasses import dataclass

from app.openai.fields import Body, Json, boolean, text, wrong_type, wrong_value

NAMES = frozenset(["response_format", "grammar", "regex", "json_schema"])
KINDS = ("text", "json_object", "json_schema", "grammar", "regex", "structural_tag")


@dataclass(frozen=True)
class Format:
    """A form that constrains the answer. `param`: the request field that gave it."""

    kind: str  # one of KINDS but "text"
    value: Json = None  # the schema, the grammar's text, the pattern, or the structural tag
    strict: bool = False  # JSON schemas only: `format` restricts strings
    param: str = "response_format"


def requested(body: Body) -> Format | None:
    """Return the form that a request specifies, or None. More than one is an error."""
    found = [f for f in (_response_format(body), _grammar(body), _regex(body), _schema(body)) if f is not None]
    if len(found) > 1:
        first, second = found[0].param.split(".")[0], found[1].param.split(".")[0]
        raise wrong_value(f"{first} and {second} exclude each other; give only one.", second)
    return found[0] if found else None


def _grammar(body: Body) -> Format | None:
    grammar = text(body, "grammar")
    return Format("grammar", grammar, param="grammar") if grammar else None


def _regex(body: Body) -> Format | None:
    pattern = text(body, "regex")
    return Format("regex", pattern, param="regex") if pattern else None


def _schema(body: Body) -> Format | None:
    schema = body.get("json_schema")
    if schema is None:
        return None
    return Format("json_schema", _check_schema(schema, "json_schema"), param="json_schema")


def _response_format(body: Body) -> Format | None:
    given = body.get("response_format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise wrong_type("response_format", "an object", given)
    kind = given.get("type")
    if not isinstance(kind, str):
        raise wrong_type("response_format.type", "a string", kind)
    if kind == "text":
        return None
    if kind == "json_object":
        param = "response_format.schema"
        if given.get("schema") is not None:  # llama.cpp accepts a schema here
            return Format("json_schema", _check_schema(given["schema"], param), param=param)
        return Format("json_object")
    if kind == "json_schema":
        return _json_schema(given)
    if kind in ("grammar", "regex"):
        value = given.get("pattern" if kind == "regex" else "grammar")
        name = "pattern" if kind == "regex" else "grammar"
        if not isinstance(value, str):
            raise wrong_type(f"response_format.{name}", "a string", value)
        return Format(kind, value, param=f"response_format.{name}")
    if kind == "structural_tag":
        value = given.get("format", given.get("structural_tag"))
        if not isinstance(value, dict):
            raise wrong_type("response_format.format", "an object", value)
        return Format(kind, value, param="response_format.format")
    raise wrong_value(
        f"response_format.type is {kind!r}; it must be one of {', '.join(KINDS)}.", "response_format.type"
    )


def _json_schema(given: Body) -> Format:
    outer = given.get("json_schema")
    if outer is None and given.get("schema") is not None:  # as llama.cpp has it, too
        param = "response_format.schema"
        return Format("json_schema", _check_schema(given["schema"], param), param=param)
    if not isinstance(outer, dict):
        raise wrong_type("response_format.json_schema", "an object", outer)
    param = "response_format.json_schema.schema"
    if "schema" not in outer:
        raise wrong_type(param, "a JSON schema", None)
    written = outer["strict"] == "true" if outer.get("strict") in ("true", "false") else outer.get("strict")
    strict = boolean({"strict": written}, "strict", param="response_format.json_schema.strict")
    return Format("json_schema", _check_schema(outer["schema"], param), strict, param)


def _check_schema(schema: Json, param: str) -> Json:
    if not isinstance(schema, dict | bool):
        raise wrong_type(param, "a JSON schema, an object", schema)
    return schema
