"""Constraints on the form of an answer: response_format, llama.cpp's grammar, regex and json_schema, and vLLM's.

Source of vLLM's: docs/features/structured_outputs.md of vLLM, and the fields of its StructuredOutputsParams.
"""

from dataclasses import dataclass

from app.openai import structural_tags
from app.openai.fields import Body, Json, boolean, mapping, text, unsupported, wrong_type, wrong_value
from py_engine import json_input
from py_engine.errors import WispError

VLLM_KINDS = ("json", "regex", "choice", "grammar", "structural_tag")
# The fields that requests had before structured_outputs.
OLDER_NAMES = {kind if kind == "structural_tag" else f"guided_{kind}": kind for kind in VLLM_KINDS}
# What structured_outputs may have beside a form -> the values that change nothing. Others are not implemented.
_VLLM_OPTIONS: dict[str, tuple[Json, ...]] = {
    "whitespace_pattern": (None,),
    "disable_any_whitespace": (None, False),
    "disable_additional_properties": (None, False),
    "disable_fallback": (None, False),
    "_backend": (None,),  # vLLM's own fields, which it writes with the others
    "_backend_was_auto": (None, False),
}
NAMES = frozenset(["response_format", "grammar", "regex", "json_schema", "structured_outputs", *OLDER_NAMES])
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
    given = [_response_format(body), _grammar(body), _regex(body), _schema(body), _structured_outputs(body)]
    given += [_of_vllm(kind, body.get(name), name) for name, kind in OLDER_NAMES.items()]
    found = [form for form in given if form is not None]
    if len(found) > 1:
        raise _exclude_each_other(*(form.param.split(".")[0] for form in found[:2]))
    return found[0] if found else None


def _exclude_each_other(first: str, second: str) -> WispError:
    return wrong_value(f"{first} and {second} exclude each other; give only one.", second)


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


def _structured_outputs(body: Body) -> Format | None:
    """Read vLLM's object, which has one form."""
    given = mapping(body, "structured_outputs")
    if given is None:
        return None
    found = []
    for name, value in given.items():
        param = f"structured_outputs.{name}"
        if name in VLLM_KINDS:
            form = _of_vllm(name, value, param)
        elif name == "json_object":
            form = Format("json_object", param=param) if boolean(given, name, param=param) else None
        elif value in _VLLM_OPTIONS.get(name, ()):
            form = None
        else:
            raise unsupported(f"{param} is not supported by this engine; leave it out.", param)
        if form is not None:
            found.append(form)
    if len(found) > 1:
        raise _exclude_each_other(found[0].param, found[1].param)
    if not found:
        kinds = ", ".join((*VLLM_KINDS, "json_object"))
        raise wrong_value(f"structured_outputs has no form; give one of {kinds}.", "structured_outputs")
    return found[0]


def _of_vllm(kind: str, value: Json, param: str) -> Format | None:
    """The form of one of VLLM_KINDS; None where it is absent, or an empty text, as in llama.cpp's fields."""
    if value is None:
        return None
    if kind == "json":
        return Format("json_schema", _check_schema(_parsed(value, param), param), param=param)
    if kind == "choice":
        return Format("structural_tag", _choice(value, param), param=param)
    if kind == "structural_tag":
        return _structural_tag(_parsed(value, param), param)
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    return Format(kind, value, param=param) if value else None


def _structural_tag(given: Json, param: str) -> Format:
    if not isinstance(given, dict):
        raise wrong_type(param, "an object", given)
    tree, where = structural_tags.tree_of(given, param)
    return Format("structural_tag", tree, param=where)


def _parsed(value: Json, param: str) -> Json:
    """A schema or a structural tag, which may be written as a text."""
    if not isinstance(value, str):
        return value
    try:
        return json_input.parse(value)
    except ValueError as error:
        raise wrong_value(f"{param} is a text that is no JSON: {error}.", param) from None


def _choice(texts: Json, param: str) -> Json:
    """The structural tag for one of some texts."""
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise wrong_type(param, "a list of strings", texts)
    if not texts:
        raise wrong_value(f"{param} is empty; give at least one text.", param)
    return {"type": "or", "elements": [{"type": "const_string", "value": one} for one in dict.fromkeys(texts)]}


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
        return _structural_tag(given, "response_format")
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
