"""Random regular expressions, grammars, schemas and structural tags, with large counts, deep and repeated at random."""

import json
from random import Random
from typing import Any

from app.answers.grammar import rules_of
from app.openai.formats import Format
from py_engine.errors import CODES, WispError


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


COUNTS = (0, 1, 2, 3, 7, 12, 50, 300, 2000, 10**5, 10**9, 2**64, -1, 1.5, 1e300, 1e-300, 10**400, 1e400, float("nan"))
ATOMS = words(
    ". a ab \\d \\w \\s \\S [a-z] [^a] [^a-z0-9] \\p{L} \\p{Lu} \\P{N} \\u{1F600} é 中 ^ $ \\b (?=a) \\1 [ ] "
    "( ) \\x4 * {3 [\\u0000-\\u{10FFFF}] (?<n>a) (?:b) [\\p{L}\\d] \\cA \\- -"
)
REPEATS = (
    "",
    "",
    "*",
    "+",
    "?",
    "{2}",
    "{3,}",
    "{0,12}",
    "{100}",
    "{1,1000}",
    "{2000}",
    "{99999}",
    "{2,1}",
    "{²}",
    "{" + "9" * 5000 + "}",
)
WORDS = ("a", "b", "x-y", "é", "a b", "~/", "$ref", "\ud800", "")


def pattern(rng: Random, depth: int) -> str:
    """A random regular expression."""
    if depth <= 0:
        return rng.choice(ATOMS) + rng.choice(REPEATS)
    inner = [pattern(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    return f"({rng.choice(('', '|')).join(inner)}){rng.choice(REPEATS)}"


def grammar(rng: Random) -> str:
    """A random grammar, sometimes damaged."""
    names = [f"r{i}" for i in range(rng.choice((1, 3, 300)))]

    def body(depth: int) -> str:
        atoms = ('"a"', '"é\\n"', "[a-z]", "[^\\n]", ".", rng.choice(names), "root", '""', "'b'")
        if depth <= 0:
            return rng.choice(atoms) + rng.choice(REPEATS)
        inner = rng.choice((" ", " | ")).join(body(depth - 1) for _ in range(rng.randrange(1, 4)))
        return f"({inner}){rng.choice(REPEATS)}"

    lines = [f"{name} ::= {body(rng.randrange(4))}" for name in ["root", *names]]
    text = "\n".join(lines)
    if rng.random() < 0.2:
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice('()[]{}"|=\\\0') * rng.choice((1, 1, 5000)) + text[at + 1 :]
    return text


def schema(rng: Random, depth: int) -> Any:
    """A random JSON schema."""
    if depth <= 0 or rng.random() < 0.05:
        return rng.choice((True, False, {}, {"type": "string"}, {"type": "integer"}, {"const": 1}, {"$ref": "#"}))
    count, less = rng.choice(COUNTS), depth - 1
    several = lambda: [schema(rng, less) for _ in range(rng.choice((1, 1, 2, 2, 3, 12 if depth < 2 else 2)))]  # noqa: E731
    named = lambda: {name: schema(rng, less) for name in rng.sample(WORDS, rng.randrange(1, 6))}  # noqa: E731
    values = [
        rng.choice((i, i / 7, f"v{i}" * rng.choice((3, 3, 3, 9000)), None, [i], {"a": i}, True))
        for i in range(rng.choice((1, 2, 5, 5, 300 if depth < 2 else 3)))
    ]
    makers: dict[str, Any] = {
        "type": lambda: rng.choice(("string", "number", "integer", "array", "object", ["null", "array"], "none", 5)),
        "enum": lambda: values,
        "const": lambda: rng.choice(values),
        "pattern": lambda: pattern(rng, rng.randrange(3)),
        "items": lambda: schema(rng, less),
        "contains": lambda: schema(rng, less),
        "not": lambda: schema(rng, less),
        "if": lambda: schema(rng, less),
        "then": lambda: schema(rng, less),
        "propertyNames": lambda: schema(rng, less),
        "additionalProperties": lambda: schema(rng, less),
        "unevaluatedProperties": lambda: schema(rng, less),
        "unevaluatedItems": lambda: schema(rng, less),
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "prefixItems": several,
        "properties": named,
        "dependentSchemas": named,
        "$defs": named,
        "patternProperties": lambda: {pattern(rng, 1): schema(rng, less) for _ in range(rng.choice((1, 2, 6)))},
        "required": lambda: rng.sample(WORDS, 2),
        "uniqueItems": lambda: True,
        "$ref": lambda: rng.choice(("#", "#/$defs/a", "#/anyOf/0", "#/anyOf/²", "#/anyOf/" + "9" * 5000, "http://[/")),
        "format": lambda: rng.choice(("date", "uuid", "email", 5)),
        "$id": lambda: rng.choice(("http://x/y", "y", "http://[/", "#")),
    }
    counted = (
        "minItems maxItems minLength maxLength minimum maximum exclusiveMinimum multipleOf minContains maxContains "
    )
    for name in words(counted + "minProperties maxProperties"):
        makers[name] = lambda: count
    names = rng.sample(list(makers), rng.randrange(1, 5))
    return {name: makers[name]() for name in names}


def chain(rng: Random) -> Any:
    """A schema whose definitions refer to each other, one after the other."""
    times, last = rng.choice((3, 30, 150, 1500)), schema(rng, 2)
    around = rng.choice(
        (
            '{"properties":{"a":@}}',
            '{"items":@}',
            '{"anyOf":[@,true]}',
            '{"not":@}',
            '{"allOf":[@]}',
            '{"allOf":[@,@]}',
            '{"oneOf":[@,@]}',
            '{"anyOf":[@,@]}',
            '{"allOf":[@,{"not":@}]}',
            '{"if":@,"then":@}',
        )
    )
    links = {f"d{i}": json.loads(around.replace("@", f'{{"$ref":"#/$defs/d{i + 1}"}}')) for i in range(times)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{times}": last}}


def wide(rng: Random) -> Any:
    """A schema with many properties that refer to it or to each other."""
    names = [f"p{i}" for i in range(rng.choice((20, 300, 2000)))]
    kinds = (
        lambda: {"$ref": "#"},
        lambda: {"$ref": f"#/properties/{rng.choice(names)}"},
        lambda: schema(rng, 1),
    )
    inner = rng.choice(kinds)
    found: Any = {"type": "object", "properties": {name: inner() for name in names}}
    if rng.random() < 0.6:
        found["required"] = rng.sample(names, rng.choice((1, len(names) // 2, len(names))))
    return found if rng.random() < 0.8 else {"not": found}


def case(rng: Random) -> Format:
    """A form of an answer."""
    kind = rng.choice(("regex", "grammar", "json_schema", "json_schema", "structural_tag"))
    if kind == "regex":
        return Format(kind, pattern(rng, rng.choice((0, 1, 2, 3, 4))) if rng.random() < 0.99 else "(" * 50_000)
    if kind == "grammar":
        return Format(kind, grammar(rng))
    if kind == "json_schema" and rng.random() < 0.1:
        return Format(kind, chain(rng), rng.random() < 0.3)
    if kind == "json_schema" and rng.random() < 0.01:  # very many values, in a keyword that says nothing
        return Format(
            kind,
            {
                "x-notes": [rng.choice(({"a": 1}, [], 1, "a"))] * rng.choice((90_000, 150_000)),
                "anyOf": [schema(rng, 1)],
            },
        )
    if kind == "json_schema" and rng.random() < 0.03:
        return Format(kind, wide(rng), rng.random() < 0.3)
    if kind == "json_schema":
        return Format(kind, schema(rng, rng.randrange(1, 5)), rng.random() < 0.3)
    inner = rng.choice(
        (
            {"type": "any_text"},
            {"type": "regex", "pattern": pattern(rng, 2)},
            {"type": "grammar", "grammar": grammar(rng)},
        )
    )
    tag: Any = {"type": "tag", "begin": rng.choice(("<a>", "", 5)), "content": inner, "end": rng.choice(("</a>", ""))}
    for _ in range(rng.choice((0, 1, 3, 8))):
        tag = {"type": rng.choice(("sequence", "or")), "elements": [tag] * rng.choice((1, 2))}
    triggers: Any = {"type": "triggered_tags", "triggers": ["<"], "tags": [tag]}
    return Format(kind, rng.choice((tag, triggers)))


def run(form: Format) -> None:
    """Write its grammar."""
    try:
        rules_of(form)
    except WispError as error:
        if error.code not in CODES or error.code == "internal_error":
            raise AssertionError(error.code) from error
