"""Keywords of a JSON schema that look at one value alone, as sets of values."""

from __future__ import annotations

from decimal import Decimal

from app.constrain import automaton, numbers, regex
from app.constrain.automaton import Dfa
from app.constrain.document import Subschema
from app.constrain.effort import TooComplex
from app.constrain.formats import FORMATS
from app.constrain.schema_graph import SchemaGraph
from app.constrain.strings import MAX_CHARACTERS
from app.constrain.value_sets import (
    BOOLEANS,
    FALSE,
    TRUE,
    ArraySet,
    Contains,
    Evaluated,
    ObjectSet,
    PropertyRules,
    StringSet,
    ValueSet,
)
from app.openai.fields import Json

MAX_ITEMS = 100_000
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")


def types(graph: SchemaGraph, subschema: Subschema) -> ValueSet:
    """Return the values of the types that `type` names."""
    given = subschema.schema["type"]
    types = given if isinstance(given, list) else [given]
    if not types or any(t not in TYPES for t in types):
        raise subschema.invalid("type", f"it must be one of {', '.join(TYPES)}, or a list of them")
    number = numbers.all_numbers() if "number" in types else numbers.integers() if "integer" in types else None
    return ValueSet(
        "null" in types,
        BOOLEANS if "boolean" in types else frozenset(),
        number,
        StringSet() if "string" in types else None,
        ArraySet() if "array" in types else None,
        ObjectSet() if "object" in types else None,
    )


def constant(graph: SchemaGraph, value: Json) -> ValueSet:
    """Return the set of one value."""
    if value is None:
        return ValueSet(null=True)
    if isinstance(value, bool):
        return ValueSet(booleans=frozenset([value]))
    if isinstance(value, int | float):
        return ValueSet(numbers=numbers.among([_decimal(value)]))
    if isinstance(value, str):
        return ValueSet(strings=StringSet(automaton.of_words([value])))
    if isinstance(value, list):
        prefix = tuple(graph.const(v) for v in value)
        return ValueSet(arrays=ArraySet(((prefix, FALSE),), len(value), len(value)))
    named = {name: graph.const(v) for name, v in value.items()}
    return ValueSet(objects=ObjectSet((PropertyRules(named, rest=FALSE),), tuple(named)))


def enumerated(graph: SchemaGraph, values: list[Json]) -> list[ValueSet]:
    """Return the set of some values, as a union."""
    null, booleans = False, set()
    words: list[str] = []
    equals: list[Decimal] = []
    out = []
    for value in values:
        if value is None:
            null = True
        elif isinstance(value, bool):
            booleans.add(value)
        elif isinstance(value, str):
            words.append(value)
        elif isinstance(value, int | float):
            equals.append(_decimal(value))
        else:
            out.append(constant(graph, value))
    strings = StringSet(automaton.of_words(words)) if words else None
    number = numbers.among(equals) if equals else None
    scalars = ValueSet(null, frozenset(booleans), number, strings)
    return out if scalars.is_empty() else [scalars, *out]


def limits(graph: SchemaGraph, subschema: Subschema) -> ValueSet:
    """Return the values that satisfy the keywords for numbers, strings, arrays and objects."""
    number = numbers.all_numbers()
    for keyword, make, exclusive in (
        ("minimum", numbers.at_least, False),
        ("exclusiveMinimum", numbers.at_least, True),
        ("maximum", numbers.at_most, False),
        ("exclusiveMaximum", numbers.at_most, True),
    ):
        value = _number(subschema, keyword)
        if value is not None:
            made = make(value, exclusive)
            number = made if number is numbers.all_numbers() else automaton.intersection(number, made)
    step = _number(subschema, "multipleOf")
    if step is not None:
        if step <= 0:
            raise subschema.invalid("multipleOf", "it must be greater than 0")
        try:
            made = numbers.multiples(step)
            number = made if number is numbers.all_numbers() else automaton.intersection(number, made)
        except TooComplex:
            raise subschema.unsupported(
                "multipleOf", "it has too many remainders; use a number with fewer digits"
            ) from None
    return ValueSet(
        True,
        BOOLEANS,
        None if number.is_empty() else number,
        strings(graph, subschema),
        arrays(graph, subschema),
        objects(graph, subschema),
        evaluated(graph, subschema),
    )


def strings(graph: SchemaGraph, subschema: Subschema) -> StringSet | None:
    """Return the strings that minLength, maxLength, pattern and (strict) format allow."""
    low, high = _count(subschema, "minLength") or 0, _count(subschema, "maxLength")
    if max(low, high or 0) > MAX_CHARACTERS:
        raise subschema.unsupported("maxLength" if high else "minLength", f"it is larger than {MAX_CHARACTERS}")
    text: StringSet | None = StringSet(None, low, high)
    if high is not None and low > high:
        return None
    if "pattern" in subschema.schema:
        text = text.intersect(StringSet(_pattern(subschema, "pattern", subschema.schema["pattern"]))) if text else None
    name = subschema.schema.get("format")
    if name is not None and not isinstance(name, str):
        raise subschema.invalid("format", "it must be a string")
    if name is not None and graph.strict:
        if name not in FORMATS:
            raise subschema.unsupported("format", f"{name!r} is not supported with strict: true")
        text = text.intersect(StringSet(regex.fullmatch(FORMATS[name]))) if text else None
    return text


def arrays(graph: SchemaGraph, subschema: Subschema) -> ArraySet | None:
    """Return the arrays that items, prefixItems, contains and the counts allow."""
    schema = subschema.schema
    low, high = _count(subschema, "minItems") or 0, _count(subschema, "maxItems")
    for keyword, count in (("minItems", low), ("maxItems", high)):
        if count is not None and count > MAX_ITEMS:
            raise subschema.unsupported(keyword, f"it is larger than {MAX_ITEMS}")
    prefix = tuple(graph.ref(subschema.sub("prefixItems", i)) for i in range(len(schema.get("prefixItems", ()))))
    rest = graph.ref(subschema.sub("items")) if "items" in schema else TRUE
    contains: tuple[Contains, ...] = ()
    if "contains" in schema:
        least, most = _count(subschema, "minContains"), _count(subschema, "maxContains")
        least = 1 if least is None else least
        contains = (Contains(0, graph.ref(subschema.sub("contains")), least, most),)
        if most is not None and least > most:
            return None
    unique = schema.get("uniqueItems")
    if unique is not None and not isinstance(unique, bool):
        raise subschema.invalid("uniqueItems", "it must be true or false")
    if high is not None and low > high:
        return None
    layers = ((prefix, rest),) if prefix or rest != TRUE else ()
    return ArraySet(layers, low, high, contains, (*subschema.path, "uniqueItems") if unique else None)


def objects(graph: SchemaGraph, subschema: Subschema) -> ObjectSet | None:
    """Return the objects that properties, required and the counts allow; propertyNames is schema.py's."""
    schema = subschema.schema
    low, high = _count(subschema, "minProperties") or 0, _count(subschema, "maxProperties")
    if high is not None and low > high:
        return None
    named = {name: graph.ref(subschema.sub("properties", name)) for name in schema.get("properties", ())}
    patterns = tuple(
        (_pattern(subschema, "patternProperties", p), graph.ref(subschema.sub("patternProperties", p)))
        for p in schema.get("patternProperties", ())
    )
    rest = graph.ref(subschema.sub("additionalProperties")) if "additionalProperties" in schema else TRUE
    required = tuple(names_of(subschema, "required", schema.get("required", [])))
    layers = (PropertyRules(named, patterns, rest),) if named or patterns or rest != TRUE else ()
    return ObjectSet(layers, required, low, high)


def evaluated(graph: SchemaGraph, subschema: Subschema) -> Evaluated:
    """Return what the subschema evaluates, for unevaluatedProperties and unevaluatedItems."""
    schema = subschema.schema
    return Evaluated(
        frozenset(schema.get("properties", ())),
        tuple(_pattern(subschema, "patternProperties", p) for p in schema.get("patternProperties", ())),
        "additionalProperties" in schema,
        len(schema.get("prefixItems", ())),
        "items" in schema,
        (graph.ref(subschema.sub("contains")),) if "contains" in schema else (),
    )


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value))


def _number(subschema: Subschema, keyword: str) -> Decimal | None:
    value = subschema.schema.get(keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise subschema.invalid(keyword, "it must be a number")
    return _decimal(value)


def _count(subschema: Subschema, keyword: str) -> int | None:
    value = _number(subschema, keyword)
    if value is None:
        return None
    if value != int(value) or value < 0:
        raise subschema.invalid(keyword, "it must be a non-negative integer")
    return int(value)


def object_of(subschema: Subschema, keyword: str) -> dict[str, Json]:
    value = subschema.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise subschema.invalid(keyword, "it must be an object")
    return value


def names_of(subschema: Subschema, keyword: str, value: Json) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise subschema.invalid(keyword, "it must be a list of property names")
    return value


def _pattern(subschema: Subschema, keyword: str, pattern: Json) -> Dfa:
    if not isinstance(pattern, str):
        raise subschema.invalid(keyword, "it must be a regular expression")
    try:
        return regex.search(pattern)
    except regex.BadPattern as error:
        raise subschema.invalid(keyword, f"{pattern!r} is not a regular expression: it has {error}") from None
    except regex.Unsupported as error:
        raise subschema.unsupported(keyword, f"{pattern!r} has {error}, which is not supported") from None
    except TooComplex:
        raise subschema.unsupported(keyword, f"{pattern!r} needs an automaton with too many states") from None
