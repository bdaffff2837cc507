"""JSON schemas (draft 2020-12) as sets of values, keyword by keyword, exactly; what cannot be held is Refused.

A Ref names a set of values by conditions that all hold: (node, True) the node's schema holds, (node, False) it fails.
Nodes are subschemas, constants, or conjunctions of others. References are followed only as far as needed, so schemas
may contain themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

from app.constrain import automaton, numbers, regex
from app.constrain.automaton import Dfa, TooComplex
from app.constrain.document import ANNOTATIONS, FOREIGN, Document, Place, Refused
from app.constrain.formats import FORMATS
from app.constrain.shapes import (
    BOOLS,
    FALSE,
    TRUE,
    Contains,
    Fields,
    Ref,
    Seen,
    Series,
    Text,
    Thing,
    Values,
    every_value,
)

MOST_UNIONS = 200  # members of a union, after distribution
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_LOCAL = frozenset(
    ["type", "const", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength",
     "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains", "contains",
     "items", "prefixItems", "maxProperties", "minProperties", "required", "properties", "patternProperties",
     "additionalProperties", "propertyNames"]
)  # fmt: skip
_JOINING = frozenset(
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
     "dependentRequired", "dependencies", "unevaluatedItems", "unevaluatedProperties"]
)  # fmt: skip
Union = list[Values]


class Schemas:
    """The sets of values that a document's subschemas allow. `strict`: the formats of strings are part of it."""

    def __init__(self, schema: Any, strict: bool = False) -> None:
        self.document = Document(schema)
        self._strict = strict
        self._nodes: list[Place | tuple[str, Any]] = [("false", None)]
        self._numbers: dict[Any, int] = {}
        self._unions: dict[tuple[int, bool], Union] = {}
        self._open: set[int] = set()
        self._values: dict[Ref, Union] = {}
        self._inhabited: dict[Ref, bool] = {}
        self.root = self.ref(self.document.root)

    # -- nodes

    def ref(self, place: Place) -> Ref:
        """The values of a subschema."""
        if isinstance(place.schema, bool):
            return TRUE if place.schema else FALSE
        return self._ref((id(place.schema), place.base), place)

    def const(self, value: Any) -> Ref:
        """One value."""
        return self._ref(("const", _key(value)), ("const", value))

    def negated(self, ref: Ref) -> Ref:
        """All other values."""
        if ref == TRUE:
            return FALSE
        if len(ref) == 1:
            ((node, sign),) = ref
            return TRUE if node == 0 else frozenset([(node, not sign)])
        ((node, _),) = self._ref(("all", ref), ("all", ref))
        return frozenset([(node, False)])

    def _ref(self, key: Any, node: Place | tuple[str, Any]) -> Ref:
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
        return frozenset([(self._numbers[key], True)])

    def places(self, ref: Ref) -> list[Place]:
        """The subschemas that hold for a Ref."""
        nodes = [self._nodes[node] for node, sign in ref if sign]
        return [node for node in nodes if isinstance(node, Place)]

    # -- values

    def values(self, ref: Ref) -> Union:
        """The union of sets that the Ref stands for, without those that are empty for sure."""
        if ref not in self._values:
            union = [every_value()]
            for node, sign in sorted(ref):
                union = self._cross(union, self._signed(node, sign), self._nodes[node])
            self._values[ref] = [v.unseen() for v in union]
        return self._values[ref]

    def inhabited(self, ref: Ref, depth: int = 0) -> bool:
        """False where it is certain that no value fits."""
        if ref == TRUE or depth > 4:
            return True
        if ref not in self._inhabited:
            self._inhabited[ref] = True  # while it is looked at: a schema within itself
            self._inhabited[ref] = any(self._may_be(v, depth + 1) for v in self.values(ref))
        return self._inhabited[ref]

    def _may_be(self, v: Values, depth: int) -> bool:
        if v.null or v.bools or v.number or v.text:
            return True
        if v.thing is not None and all(self.inhabited(self.field(v.thing, n), depth) for n in v.thing.required):
            return True
        return v.series is not None and all(self.inhabited(v.series.item(i), depth) for i in range(v.series.low))

    def field(self, thing: Thing, name: str) -> Ref:
        """What holds for the value of a property."""
        refs: list[Ref] = []
        if thing.names is not None and not thing.names.accepts(name):
            return FALSE
        for layer in thing.layers:
            found = [layer.named[name]] if name in layer.named else []
            found += [ref for dfa, ref in layer.patterns if dfa.accepts(name)]
            refs += found or [layer.rest]
        return TRUE.union(*refs)

    def _cross(self, a: Union, b: Union, at: Any) -> Union:
        if len(a) * len(b) > 20 * MOST_UNIONS:
            raise self._too_complex(at)
        try:
            union = [v for x in a for y in b if not (v := x.both(y)).none()]
        except TooComplex:
            raise self._too_complex(at) from None
        if len(union) > MOST_UNIONS:
            raise self._too_complex(at)
        return union

    def _too_complex(self, at: Any) -> Refused:
        path = at.path if isinstance(at, Place) else ()
        keywords = at.schema if isinstance(at, Place) and isinstance(at.schema, dict) else {}
        order = (
            "anyOf",
            "oneOf",
            "allOf",
            "not",
            "if",
            "pattern",
            "maxLength",
            "minLength",
            "multipleOf",
            "$ref",
            "type",
        )
        keyword = next((k for k in order if k in keywords), "anyOf")
        return Refused((*path, keyword), "with what stands beside it, it is too complex")

    def _signed(self, node: int, sign: bool) -> Union:
        key = (node, sign)
        if key not in self._unions:
            if sign:
                if node in self._open:
                    at = self._nodes[node]
                    path = at.path if isinstance(at, Place) else ()
                    raise Refused((*path, "$ref"), "the schema refers to itself without an end")
                self._open.add(node)
                try:
                    self._unions[key] = self._positive(self._nodes[node])
                finally:
                    self._open.discard(node)
            else:
                self._unions[key] = self._others(self._signed(node, True), self._nodes[node])
        return self._unions[key]

    def _positive(self, node: Place | tuple[str, Any]) -> Union:
        if isinstance(node, Place):
            return self._schema(node)
        kind, value = node
        if kind == "const":
            return [self._constant(value)]
        return self.values(value) if kind == "all" else []

    # -- complements

    def _others(self, union: Union, at: Any) -> Union:
        out = [every_value()]
        for v in union:
            out = self._cross(out, self._other(v), at)
        return out

    def _other(self, v: Values) -> Union:
        number = numbers.every() if v.number is None else None
        if v.number is not None and v.number is not numbers.every():
            left = automaton.without(numbers.plain(), v.number)
            number = None if left.empty() else left
        plain = Values(
            not v.null,
            BOOLS - v.bools,
            number,
            Text() if v.text is None else v.text.others(),
            Series() if v.series is None else None,
            Thing() if v.thing is None else None,
        )
        out = [plain] if not plain.none() else []
        if v.series is not None:
            out += [Values(series=s) for s in self._other_series(v.series)]
        if v.thing is not None:
            out += [Values(thing=t) for t in self._other_things(v.thing)]
        return out

    def _other_series(self, s: Series) -> Iterable[Series]:
        if s.unique is not None:
            raise Refused(s.unique, "its opposite is not supported")
        if s.low:
            yield Series(high=s.low - 1)
        if s.high is not None:
            yield Series(low=s.high + 1)
        for prefix, rest in s.layers:
            for i, ref in enumerate(prefix):
                if ref != TRUE:
                    yield Series(layers=(((TRUE,) * i + (self.negated(ref),), TRUE),), low=i + 1)
            if rest != TRUE:
                yield Series(contains=(Contains(len(prefix), self.negated(rest), 1, None),))
        for c in s.contains:
            if c.low:
                yield Series(contains=(replace(c, low=0, high=c.low - 1),))
            if c.high is not None:
                yield Series(contains=(replace(c, low=c.high + 1, high=None),))

    def _other_things(self, t: Thing) -> Iterable[Thing]:
        if t.low:
            yield Thing(high=t.low - 1)
        if t.high is not None:
            yield Thing(low=t.high + 1)
        for name in t.required:
            yield Thing((Fields({name: FALSE}),))
        for layer in t.layers:
            for name, ref in layer.named.items():
                if ref != TRUE:
                    yield Thing((Fields({name: self.negated(ref)}),), (name,))
            for dfa, ref in layer.patterns:
                if ref != TRUE:
                    yield Thing(some=((dfa, self.negated(ref)),))
            if layer.rest != TRUE:
                yield Thing(some=((_rest_names(layer), self.negated(layer.rest)),))
        if t.names is not None:
            yield Thing(some=((automaton.others(t.names), TRUE),))
        for dfa, ref in t.some:
            yield Thing((Fields(patterns=((dfa, self.negated(ref)),)),))

    # -- keywords

    def _schema(self, place: Place) -> Union:
        schema = place.schema
        for keyword in schema:
            if keyword in FOREIGN:
                raise place.refuse(keyword, "it is not a keyword of draft 2020-12")
        union = self._cross([every_value()], self._local(place), place)
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                target = self.document.resolve(place, keyword)
                union = self._cross(union, self._union(self.ref(target)), place)
        for i in range(len(schema.get("allOf", ()))):
            union = self._cross(union, self._union(self.ref(place.sub("allOf", i))), place)
        if "anyOf" in schema:
            union = self._cross(union, self._any_of(place), place)
        if "oneOf" in schema:
            union = self._cross(union, self._one_of(place), place)
        if "not" in schema:
            union = self._cross(union, _unseen(self._union(self.negated(self.ref(place.sub("not"))))), place)
        if "if" in schema:
            union = self._cross(union, self._conditional(place), place)
        for other in self._dependent(place):
            union = self._cross(union, other, place)
        if "unevaluatedProperties" in schema:
            union = [self._no_other_fields(v, self.ref(place.sub("unevaluatedProperties"))) for v in union]
        if "unevaluatedItems" in schema:
            union = [self._no_other_items(v, self.ref(place.sub("unevaluatedItems"))) for v in union]
        return [v for v in union if not v.none()]

    def _union(self, ref: Ref) -> Union:
        """Of a Ref with one condition at most, with its annotations."""
        if not ref:
            return [every_value()]
        ((node, sign),) = ref
        return self._signed(node, sign)

    def _any_of(self, place: Place) -> Union:
        branches = [self._union(self.ref(place.sub("anyOf", i))) for i in range(len(place.schema["anyOf"]))]
        union = [v for branch in branches for v in branch]
        if self.document.unevaluated and len(branches) <= 4:  # what holds for several counts as seen by several
            for size in range(2, len(branches) + 1):
                for chosen in combinations(branches, size):
                    both = chosen[0]
                    for branch in chosen[1:]:
                        both = self._cross(both, branch, place)
                    union += both
        if len(union) > MOST_UNIONS:
            raise place.refuse("anyOf", "it has too many branches")
        return union

    def _one_of(self, place: Place) -> Union:
        refs = [self.ref(place.sub("oneOf", i)) for i in range(len(place.schema["oneOf"]))]
        out: Union = []
        for i, ref in enumerate(refs):
            union = self._union(ref)
            for j, other in enumerate(refs):
                if i != j and self._meet(union, self._union(other), place):
                    union = self._cross(union, _unseen(self._union(self.negated(other))), place)
            out += union
        return out

    def _meet(self, a: Union, b: Union, place: Place) -> bool:
        return any(self._may_be(v, 0) for v in self._cross(a, b, place))

    def _conditional(self, place: Place) -> Union:
        condition = self.ref(place.sub("if"))
        yes, no = self._union(condition), _unseen(self._union(self.negated(condition)))
        if "then" in place.schema:
            yes = self._cross(yes, self._union(self.ref(place.sub("then"))), place)
        if "else" in place.schema:
            no = self._cross(no, self._union(self.ref(place.sub("else"))), place)
        return yes + no

    def _dependent(self, place: Place) -> Iterable[Union]:
        needs: list[tuple[str, Union]] = []
        for keyword in ("dependentRequired", "dependencies"):
            for name, value in _object(place, keyword).items():
                if isinstance(value, list):
                    thing = Thing(required=tuple(_names(place, keyword, value)))
                    needs.append((name, [replace(every_value(), thing=thing)]))
                elif keyword == "dependencies":
                    needs.append((name, self._union(self.ref(place.sub(keyword, name)))))
                else:
                    raise place.malformed(keyword, "it must hold lists of names")
        for name in _object(place, "dependentSchemas"):
            needs.append((name, self._union(self.ref(place.sub("dependentSchemas", name)))))
        for name, needed in needs:
            without = replace(every_value(), thing=Thing((Fields({name: FALSE}),)))
            only = [Values(thing=Thing(required=(name,)))]
            yield [without, *self._cross(only, needed, place)]

    def _no_other_fields(self, v: Values, ref: Ref) -> Values:
        if v.thing is None:
            return v
        seen, thing = v.seen, v.thing
        if not seen.every_name:
            layer = Fields(dict.fromkeys(sorted(seen.names), TRUE), tuple((d, TRUE) for d in seen.patterns), ref)
            both = thing.both(Thing((layer,)))
            assert both is not None
            thing = both
        return replace(v, thing=thing, seen=replace(seen, every_name=True))

    def _no_other_items(self, v: Values, ref: Ref) -> Values:
        if v.series is None or v.seen.every_item:
            return v
        rest = ref
        for contained in v.seen.contained:  # items are that, or the other
            rest = self.negated(self.negated(rest) | self.negated(contained))
        both = v.series.both(Series((((TRUE,) * v.seen.items, rest),)))
        assert both is not None
        return replace(v, series=both, seen=replace(v.seen, every_item=True))

    # -- keywords about one value by itself

    def _local(self, place: Place) -> Union:
        schema = place.schema
        union = [every_value()]
        if "type" in schema:
            union = [self._types(place)]
        if "const" in schema:
            union = self._cross(union, [self._constant(schema["const"])], place)
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise place.malformed("enum", "it must be a list")
            union = self._cross(union, self._enumerated(schema["enum"]), place)
        try:
            return self._cross(union, [self._bounds(place)], place)
        except TooComplex:
            raise self._too_complex(place) from None

    def _types(self, place: Place) -> Values:
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

    def _constant(self, value: Any) -> Values:
        if value is None:
            return Values(null=True)
        if isinstance(value, bool):
            return Values(bools=frozenset([value]))
        if isinstance(value, int | float):
            return Values(number=numbers.equal(_decimal(value)))
        if isinstance(value, str):
            return Values(text=Text(automaton.texts([value])))
        if isinstance(value, list):
            prefix = tuple(self.const(v) for v in value)
            return Values(series=Series(((prefix, FALSE),), len(value), len(value)))
        named = {name: self.const(v) for name, v in value.items()}
        return Values(thing=Thing((Fields(named, rest=FALSE),), tuple(named)))

    def _enumerated(self, values: list[Any]) -> Union:
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
                out.append(self._constant(value))
        text = Text(automaton.texts(single["words"])) if single["words"] else None
        scalars = Values(single["null"], frozenset(single["bools"]), number, text)
        return out if scalars.none() else [scalars, *out]

    def _bounds(self, place: Place) -> Values:
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
        series, thing, seen = self._series(place), self._thing(place), self._annotated(place)
        text = self._text(place)
        return Values(True, BOOLS, None if number.empty() else number, text, series, thing, seen)

    def _text(self, place: Place) -> Text | None:
        low, high = _count(place, "minLength") or 0, _count(place, "maxLength")
        if max(low, high or 0) > 1_000_000:
            raise place.refuse("maxLength" if high else "minLength", "it is too large")
        text: Text | None = Text(None, low, high)
        if high is not None and low > high:
            return None
        if "pattern" in place.schema:
            text = text.both(Text(_pattern(place, "pattern", place.schema["pattern"]))) if text else None
        name = place.schema.get("format")
        if name is not None and not isinstance(name, str):
            raise place.malformed("format", "it must be a string")
        if name is not None and self._strict:
            if name not in FORMATS:
                raise place.refuse("format", f"{name!r} is not supported with strict: true")
            text = text.both(Text(regex.fullmatch(FORMATS[name]))) if text else None
        return text

    def _series(self, place: Place) -> Series | None:
        schema = place.schema
        low, high = _count(place, "minItems") or 0, _count(place, "maxItems")
        prefix = tuple(self.ref(place.sub("prefixItems", i)) for i in range(len(schema.get("prefixItems", ()))))
        rest = self.ref(place.sub("items")) if "items" in schema else TRUE
        contains: tuple[Contains, ...] = ()
        if "contains" in schema:
            least, most = _count(place, "minContains"), _count(place, "maxContains")
            least = 1 if least is None else least
            contains = (Contains(0, self.ref(place.sub("contains")), least, most),)
            if most is not None and least > most:
                return None
        unique = schema.get("uniqueItems")
        if unique is not None and not isinstance(unique, bool):
            raise place.malformed("uniqueItems", "it must be true or false")
        if high is not None and low > high:
            return None
        layers = ((prefix, rest),) if prefix or rest != TRUE else ()
        return Series(layers, low, high, contains, (*place.path, "uniqueItems") if unique else None)

    def _thing(self, place: Place) -> Thing | None:
        schema = place.schema
        low, high = _count(place, "minProperties") or 0, _count(place, "maxProperties")
        if high is not None and low > high:
            return None
        named = {name: self.ref(place.sub("properties", name)) for name in schema.get("properties", ())}
        patterns = tuple(
            (_pattern(place, "patternProperties", p), self.ref(place.sub("patternProperties", p)))
            for p in schema.get("patternProperties", ())
        )
        rest = self.ref(place.sub("additionalProperties")) if "additionalProperties" in schema else TRUE
        names = None
        if "propertyNames" in schema:
            names = automaton.nothing()
            for v in self.values(self.ref(place.sub("propertyNames"))):
                if v.text is not None:
                    names = automaton.union(names, v.text.exact())
        required = tuple(_names(place, "required", schema.get("required", [])))
        layers = (Fields(named, patterns, rest),) if named or patterns or rest != TRUE else ()
        return Thing(layers, required, low, high, names)

    def _annotated(self, place: Place) -> Seen:
        schema = place.schema
        return Seen(
            frozenset(schema.get("properties", ())),
            tuple(_pattern(place, "patternProperties", p) for p in schema.get("patternProperties", ())),
            "additionalProperties" in schema,
            len(schema.get("prefixItems", ())),
            "items" in schema,
            (self.ref(place.sub("contains")),) if "contains" in schema else (),
        )


def _unseen(union: Union) -> Union:
    return [v.unseen() for v in union]


def _rest_names(layer: Fields) -> Dfa:
    """Names that a layer's `rest` is about."""
    taken = automaton.texts(layer.named)
    for dfa, _ in layer.patterns:
        taken = automaton.union(taken, dfa)
    return automaton.others(taken)


def _decimal(value: float) -> Decimal:
    return Decimal(repr(value))


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


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


def _object(place: Place, keyword: str) -> dict[str, Any]:
    value = place.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise place.malformed(keyword, "it must be an object")
    return value


def _names(place: Place, keyword: str, value: Any) -> list[str]:
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


assert not (_LOCAL | _JOINING) & (ANNOTATIONS | FOREIGN)
