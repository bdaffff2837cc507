"""The keywords of a JSON schema that are about a value by itself, as sets of values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from app.constrain import automaton, numbers, regex
from app.constrain.automaton import Dfa, TooComplex
from app.constrain.document import Place
from app.constrain.formats import FORMATS
from app.constrain.schema_graph import SchemaGraph
from app.constrain.shapes import BOOLS, FALSE, TRUE, Contains, Fields, Seen, Series, Text, Thing, Values
from app.constrain.texts import MOST_CHARACTERS

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def types(graph: SchemaGraph, place: Place) -> Values:
    """The values of the types that are named."""
    given = place.schema["type"]
    types = given if isinstance(given, list) else [given]
    if not types or any(t not in TYPES for t in types):
        raise place.malformed("type", f"it must be one of {', '.join(TYPES)}, or a list of them")
    number = numbers.every() if "number" in types else numbers.integers() if "integer" in types else None
    return Values(
        "null" in types,
        BOOLS if "boolean" in types else frozenset(),
        number,
        Text() if "string" in types else None,
        Series() if "array" in types else None,
        Thing() if "object" in types else None,
    )


def constant(graph: SchemaGraph, value: Any) -> Values:
    """One value."""
    if value is None:
        return Values(null=True)
    if isinstance(value, bool):
        return Values(bools=frozenset([value]))
    if isinstance(value, int | float):
        return Values(number=numbers.equal(_decimal(value)))
    if isinstance(value, str):
        return Values(text=Text(automaton.texts([value])))
    if isinstance(value, list):
        prefix = tuple(graph.const(v) for v in value)
        return Values(series=Series(((prefix, FALSE),), len(value), len(value)))
    named = {name: graph.const(v) for name, v in value.items()}
    return Values(thing=Thing((Fields(named, rest=FALSE),), tuple(named)))


def enumerated(graph: SchemaGraph, values: list[Any]) -> list[Values]:
    """A list of values."""
    single: dict[str, Any] = {"null": False, "bools": set(), "words": []}
    number: Dfa | None = None
    out = []
    for value in values:
        if value is None:
            single["null"] = True
        elif isinstance(value, bool):
            single["bools"].add(value)
        elif isinstance(value, str):
            single["words"].append(value)
        elif isinstance(value, int | float):
            one = numbers.equal(_decimal(value))
            number = one if number is None else automaton.union(number, one)
        else:
            out.append(constant(graph, value))
    text = Text(automaton.texts(single["words"])) if single["words"] else None
    scalars = Values(single["null"], frozenset(single["bools"]), number, text)
    return out if scalars.none() else [scalars, *out]


def bounds(graph: SchemaGraph, place: Place) -> Values:
    """What the keywords about single types leave."""
    number = numbers.every()
    for keyword, make, exclusive in (
        ("minimum", numbers.at_least, False),
        ("exclusiveMinimum", numbers.at_least, True),
        ("maximum", numbers.at_most, False),
        ("exclusiveMaximum", numbers.at_most, True),
    ):
        value = _number(place, keyword)
        if value is not None:
            made = make(value, exclusive)
            number = made if number is numbers.every() else automaton.both(number, made)
    step = _number(place, "multipleOf")
    if step is not None:
        if step <= 0:
            raise place.malformed("multipleOf", "it must be greater than 0")
        try:
            made = numbers.multiples(step)
            number = made if number is numbers.every() else automaton.both(number, made)
        except TooComplex:
            raise place.refuse("multipleOf", "it takes too many remainders into account") from None
    return Values(
        True,
        BOOLS,
        None if number.empty() else number,
        texts(graph, place),
        series(graph, place),
        thing(graph, place),
        annotated(graph, place),
    )


def texts(graph: SchemaGraph, place: Place) -> Text | None:
    """Strings."""
    low, high = _count(place, "minLength") or 0, _count(place, "maxLength")
    if max(low, high or 0) > MOST_CHARACTERS:
        raise place.refuse("maxLength" if high else "minLength", "it is too large")
    text: Text | None = Text(None, low, high)
    if high is not None and low > high:
        return None
    if "pattern" in place.schema:
        text = text.both(Text(_pattern(place, "pattern", place.schema["pattern"]))) if text else None
    name = place.schema.get("format")
    if name is not None and not isinstance(name, str):
        raise place.malformed("format", "it must be a string")
    if name is not None and graph.strict:
        if name not in FORMATS:
            raise place.refuse("format", f"{name!r} is not supported with strict: true")
        text = text.both(Text(regex.fullmatch(FORMATS[name]))) if text else None
    return text


def series(graph: SchemaGraph, place: Place) -> Series | None:
    """Arrays."""
    schema = place.schema
    low, high = _count(place, "minItems") or 0, _count(place, "maxItems")
    prefix = tuple(graph.ref(place.sub("prefixItems", i)) for i in range(len(schema.get("prefixItems", ()))))
    rest = graph.ref(place.sub("items")) if "items" in schema else TRUE
    contains: tuple[Contains, ...] = ()
    if "contains" in schema:
        least, most = _count(place, "minContains"), _count(place, "maxContains")
        least = 1 if least is None else least
        contains = (Contains(0, graph.ref(place.sub("contains")), least, most),)
        if most is not None and least > most:
            return None
    unique = schema.get("uniqueItems")
    if unique is not None and not isinstance(unique, bool):
        raise place.malformed("uniqueItems", "it must be true or false")
    if high is not None and low > high:
        return None
    layers = ((prefix, rest),) if prefix or rest != TRUE else ()
    return Series(layers, low, high, contains, (*place.path, "uniqueItems") if unique else None)


def thing(graph: SchemaGraph, place: Place) -> Thing | None:
    """Objects."""
    schema = place.schema
    low, high = _count(place, "minProperties") or 0, _count(place, "maxProperties")
    if high is not None and low > high:
        return None
    named = {name: graph.ref(place.sub("properties", name)) for name in schema.get("properties", ())}
    patterns = tuple(
        (_pattern(place, "patternProperties", p), graph.ref(place.sub("patternProperties", p)))
        for p in schema.get("patternProperties", ())
    )
    rest = graph.ref(place.sub("additionalProperties")) if "additionalProperties" in schema else TRUE
    required = tuple(names_of(place, "required", schema.get("required", [])))
    layers = (Fields(named, patterns, rest),) if named or patterns or rest != TRUE else ()
    return Thing(layers, required, low, high)


def annotated(graph: SchemaGraph, place: Place) -> Seen:
    """What counts as evaluated."""
    schema = place.schema
    return Seen(
        frozenset(schema.get("properties", ())),
        tuple(_pattern(place, "patternProperties", p) for p in schema.get("patternProperties", ())),
        "additionalProperties" in schema,
        len(schema.get("prefixItems", ())),
        "items" in schema,
        (graph.ref(place.sub("contains")),) if "contains" in schema else (),
    )


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value))


def _number(place: Place, keyword: str) -> Decimal | None:
    value = place.schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise place.malformed(keyword, "it must be a number")
    return _decimal(value)


def _count(place: Place, keyword: str) -> int | None:
    value = _number(place, keyword)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise place.malformed(keyword, "it must be an integer that is not negative")
    return int(value)


def object_of(place: Place, keyword: str) -> dict[str, Any]:
    value = place.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise place.malformed(keyword, "it must be an object")
    return value


def names_of(place: Place, keyword: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise place.malformed(keyword, "it must be a list of names")
    return value


def _pattern(place: Place, keyword: str, pattern: Any) -> Dfa:
    if not isinstance(pattern, str):
        raise place.malformed(keyword, "it must be a regular expression")
    try:
        return regex.search(pattern)
    except regex.BadPattern as error:
        raise place.malformed(keyword, f"{pattern!r} is not a regular expression: {error}") from None
    except regex.Unsupported as error:
        raise place.refuse(keyword, f"{pattern!r} has {error}, which is not supported") from None
    except TooComplex:
        raise place.refuse(keyword, f"{pattern!r} is too complex") from None
