"""JSON schemas (draft 2020-12) as sets of values, keyword by keyword, exactly; what cannot be held is Refused.

A Ref names a set of values by conditions that all hold: (node, True) the node's schema holds, (node, False) it fails.
Nodes are subschemas, constants, or conjunctions of others. References are followed only as far as needed, so schemas
may contain themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from typing import Any

from app.constrain import automaton, complement, keywords
from app.constrain.automaton import Dfa, TooComplex
from app.constrain.document import FOREIGN, Place, Refused
from app.constrain.schema_graph import Conjunction, Constant, Node, SchemaGraph
from app.constrain.shapes import (
    FALSE,
    TRUE,
    Fields,
    Ref,
    Series,
    Thing,
    Values,
    every_value,
)

MOST_UNIONS = 200  # members of a union, after distribution
Union = list[Values]


class Schemas(SchemaGraph):
    """The sets of values that a document's subschemas allow. `strict`: the formats of strings are part of it."""

    def __init__(self, schema: Any, strict: bool = False) -> None:
        super().__init__(schema, strict)
        self._unions: dict[tuple[int, bool], Union] = {}
        self._open: set[int] = set()
        self._values: dict[Ref, Union] = {}
        self._inhabited: dict[Ref, bool] = {}

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

    def _positive(self, node: Node) -> Union:
        if isinstance(node, Place):
            return self._schema(node)
        if isinstance(node, Constant):
            return [keywords.constant(self, node.value)]
        return self.values(node.ref) if isinstance(node, Conjunction) else []

    # -- complements

    def _others(self, union: Union, at: Any) -> Union:
        out = [every_value()]
        for v in union:
            out = self._cross(out, complement.other(self, v), at)
        return out

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
            for name, value in keywords.object_of(place, keyword).items():
                if isinstance(value, list):
                    thing = Thing(required=tuple(keywords.names_of(place, keyword, value)))
                    needs.append((name, [replace(every_value(), thing=thing)]))
                elif keyword == "dependencies":
                    needs.append((name, self._union(self.ref(place.sub(keyword, name)))))
                else:
                    raise place.malformed(keyword, "it must hold lists of names")
        for name in keywords.object_of(place, "dependentSchemas"):
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
            union = [keywords.types(self, place)]
        if "const" in schema:
            union = self._cross(union, [keywords.constant(self, schema["const"])], place)
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise place.malformed("enum", "it must be a list")
            union = self._cross(union, keywords.enumerated(self, schema["enum"]), place)
        try:
            limits = keywords.bounds(self, place)
            if limits.thing is not None and "propertyNames" in schema:
                limits = replace(limits, thing=replace(limits.thing, names=self._names(place)))
            return self._cross(union, [limits], place)
        except TooComplex:
            raise self._too_complex(place) from None

    def _names(self, place: Place) -> Dfa:
        """The property names that propertyNames allows: the strings among its values."""
        names = automaton.nothing()
        for v in self.values(self.ref(place.sub("propertyNames"))):
            if v.text is not None:
                names = automaton.union(names, v.text.exact())
        return names


def _unseen(union: Union) -> Union:
    return [v.unseen() for v in union]
