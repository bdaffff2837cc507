"""JSON schemas (draft 2020-12) as sets of values, exactly. What cannot be represented raises UnsupportedKeyword.

A Ref names a set of values by conditions that all hold. (node, True): the node's schema accepts the value;
(node, False): it rejects the value. Nodes are subschemas, constants and conjunctions (schema_graph.py). References
are resolved only as far as needed, so a schema may contain itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from app.constrain import automaton, complement, keywords
from app.constrain.automaton import Dfa
from app.constrain.document import FOREIGN, Subschema, UnsupportedKeyword
from app.constrain.effort import TooComplex, spend
from app.constrain.schema_graph import Conjunction, Constant, Node, SchemaGraph
from app.constrain.value_sets import (
    FALSE,
    TRUE,
    ArraySet,
    ObjectSet,
    PropertyRules,
    Ref,
    ValueSet,
    all_values,
)
from app.openai.fields import Json

MAX_UNIONS = 200  # members of a union
MAX_DEPTH = 4  # levels of items and properties that `inhabited` looks into
# Keywords that may make a schema too complex, the likeliest first.
COSTLY = (
    "anyOf", "oneOf", "allOf", "not", "if", "pattern", "maxLength", "minLength", "multipleOf", "$ref", "type",
)  # fmt: skip
Union = list[ValueSet]


def _required(union: Union) -> int:
    """How many required properties its members have together. Each intersection copies them."""
    return sum(len(v.objects.required) for v in union if v.objects is not None)


class Schemas(SchemaGraph):
    """The sets of values that the subschemas of a document allow."""

    def __init__(self, schema: Json, strict: bool = False) -> None:
        super().__init__(schema, strict)
        self._unions: dict[tuple[int, bool], Union] = {}
        self._open: set[int] = set()  # nodes whose values are being worked out, to find endless references
        self._values: dict[Ref, Union] = {}
        self._inhabited: dict[Ref, bool] = {}

    # -- values

    def values(self, ref: Ref) -> Union:
        """Return the values of a Ref. Members that are certainly empty are left out."""
        if ref not in self._values:
            union = [all_values()]
            for node, sign in sorted(ref):
                union = self._intersect(union, self._signed(node, sign), self._nodes[node])
            self._values[ref] = [v.without_annotations() for v in union]
        return self._values[ref]

    def inhabited(self, ref: Ref, depth: int = 0) -> bool:
        """Return False where certainly no value satisfies the Ref."""
        if ref == TRUE or depth > MAX_DEPTH:
            return True
        spend(5)
        if ref not in self._inhabited:
            self._inhabited[ref] = True  # assumed meanwhile: the schema may contain itself
            self._inhabited[ref] = any(self._may_have_values(v, depth + 1) for v in self.values(ref))
        return self._inhabited[ref]

    def _may_have_values(self, v: ValueSet, depth: int) -> bool:
        if v.null or v.booleans or v.numbers or v.strings:
            return True
        if v.objects is not None and self._may_have_properties(v.objects, depth):
            return True
        return v.arrays is not None and self._may_have_items(v.arrays, depth)

    def _may_have_items(self, arrays: ArraySet, depth: int) -> bool:
        """Whether the items that must come may have values, and one at least is what `contains` needs."""
        n = arrays.prefix_length()
        first = range(min(arrays.low, n + 1))  # later items are like the last of these
        if not all(self.inhabited(arrays.item(i), depth) for i in first):
            return False
        end = n + 1 if arrays.high is None else min(arrays.high, n + 1)
        return all(
            any(self.inhabited(arrays.item(i) | c.ref, depth) for i in range(min(c.start, n), end))
            for c in arrays.contains
            if c.low
        )

    def _may_have_properties(self, objects: ObjectSet, depth: int) -> bool:
        """Whether the required properties may have values, and the others that must exist."""
        if not all(self.inhabited(self.field(objects, name), depth) for name in objects.required):
            return False
        rest = TRUE.union(*(layer.rest for layer in objects.layers))
        patterns = any(layer.patterns for layer in objects.layers)  # then names of their own may have other values
        if not objects.exists and (patterns or self.inhabited(rest, depth)):
            return True  # most objects: no field is looked at
        named = dict.fromkeys((*objects.required, *(name for layer in objects.layers for name in layer.named)))
        fields = {name: self.field(objects, name) for name in named}
        if not patterns and not all(
            self.inhabited(rest | ref, depth)
            or any(names.accepts(name) and self.inhabited(field | ref, depth) for name, field in fields.items())
            for names, ref in objects.exists
        ):
            return False
        if patterns or self.inhabited(rest, depth):
            return True
        return objects.low <= sum(self.inhabited(field, depth) for field in fields.values())

    def field(self, objects: ObjectSet, name: str) -> Ref:
        """Return the condition on the value of a property."""
        refs: list[Ref] = []
        if objects.names is not None and not objects.names.accepts(name):
            return FALSE
        spend(len(objects.layers))
        for layer in objects.layers:
            found = [layer.named[name]] if name in layer.named else []
            found += [ref for dfa, ref in layer.patterns if dfa.accepts(name)]
            refs += found or [layer.rest]
        return TRUE.union(*refs)

    def _intersect(self, a: Union, b: Union, at: Node) -> Union:
        """Return the values in both unions. `at`: the node that an error names."""
        if len(a) * len(b) > 20 * MAX_UNIONS:
            raise self._too_complex(at)
        spend(50 * len(a) * len(b) + len(b) * _required(a) + len(a) * _required(b))
        try:
            union = [v for x in a for y in b if not (v := x.intersect(y)).is_empty()]
        except TooComplex:
            raise self._too_complex(at) from None
        if len(union) > MAX_UNIONS:
            raise self._too_complex(at)
        return union

    def _too_complex(self, at: Node) -> UnsupportedKeyword:
        """Return the error for a schema that is too complex. It names the keyword that is the likeliest cause."""
        path = at.path if isinstance(at, Subschema) else ()
        given = at.schema if isinstance(at, Subschema) and isinstance(at.schema, dict) else {}
        keyword = next((k for k in COSTLY if k in given), "anyOf")
        return UnsupportedKeyword((*path, keyword), "it needs too many states or branches with the keywords beside it")

    def _signed(self, node: int, sign: bool) -> Union:
        """Return the values that a node accepts (sign True) or rejects."""
        key = (node, sign)
        if key not in self._unions:
            if sign:
                if node in self._open:
                    at = self._nodes[node]
                    path = at.path if isinstance(at, Subschema) else ()
                    why = "the schema refers to itself, and not from within an item or a property"
                    raise UnsupportedKeyword((*path, "$ref"), why)
                self._open.add(node)
                try:
                    self._unions[key] = self._positive(self._nodes[node])
                finally:
                    self._open.discard(node)
            else:
                self._unions[key] = self._complement(self._signed(node, True), self._nodes[node])
        return self._unions[key]

    def _positive(self, node: Node) -> Union:
        if isinstance(node, Subschema):
            return self._schema(node)
        if isinstance(node, Constant):
            return [keywords.constant(self, node.value)]
        return self.values(node.ref) if isinstance(node, Conjunction) else []

    # -- complements

    def _complement(self, union: Union, at: Node) -> Union:
        out = [all_values()]
        for v in union:
            out = self._intersect(out, complement.complement(self, v), at)
        return out

    # -- keywords

    def _schema(self, subschema: Subschema) -> Union:
        schema = subschema.schema
        for keyword in schema:
            if keyword in FOREIGN:
                raise subschema.unsupported(keyword, "it is not a keyword of draft 2020-12")
        union = self._intersect([all_values()], self._local(subschema), subschema)
        for keyword in ("$ref", "$dynamicRef"):
            if keyword in schema:
                target = self.document.resolve(subschema, keyword)
                union = self._intersect(union, self._union(self.ref(target)), subschema)
        for i in range(len(schema.get("allOf", ()))):
            union = self._intersect(union, self._union(self.ref(subschema.sub("allOf", i))), subschema)
        if "anyOf" in schema:
            union = self._intersect(union, self._any_of(subschema), subschema)
        if "oneOf" in schema:
            union = self._intersect(union, self._one_of(subschema), subschema)
        if "not" in schema:
            rejected = self._union(self.negated(self.ref(subschema.sub("not"))))
            union = self._intersect(union, _without_annotations(rejected), subschema)
        if "if" in schema:
            union = self._intersect(union, self._conditional(subschema), subschema)
        for other in self._dependent(subschema):
            union = self._intersect(union, other, subschema)
        if "unevaluatedProperties" in schema:
            union = [self._close_objects(v, self.ref(subschema.sub("unevaluatedProperties"))) for v in union]
        if "unevaluatedItems" in schema:
            union = [self._close_arrays(v, self.ref(subschema.sub("unevaluatedItems"))) for v in union]
        return [v for v in union if not v.is_empty()]

    def _union(self, ref: Ref) -> Union:
        """Return the values of a Ref with at most one condition, annotations included."""
        if not ref:
            return [all_values()]
        ((node, sign),) = ref
        return self._signed(node, sign)

    def _any_of(self, subschema: Subschema) -> Union:
        branches = [self._union(self.ref(subschema.sub("anyOf", i))) for i in range(len(subschema.schema["anyOf"]))]
        union = [v for branch in branches for v in branch]
        if (
            self.document.unevaluated and len(branches) <= 4
        ):  # a value that satisfies several branches is evaluated by each
            for size in range(2, len(branches) + 1):
                for chosen in combinations(branches, size):
                    both = chosen[0]
                    for branch in chosen[1:]:
                        both = self._intersect(both, branch, subschema)
                    union += both
        if len(union) > MAX_UNIONS:
            raise subschema.unsupported("anyOf", f"its branches have {len(union)} variants, more than {MAX_UNIONS}")
        return union

    def _one_of(self, subschema: Subschema) -> Union:
        refs = [self.ref(subschema.sub("oneOf", i)) for i in range(len(subschema.schema["oneOf"]))]
        out: Union = []
        for i, ref in enumerate(refs):
            union = self._union(ref)
            for j, other in enumerate(refs):
                spend(10)
                if i != j and self._overlap(union, self._union(other), subschema):
                    union = self._intersect(union, _without_annotations(self._union(self.negated(other))), subschema)
            out += union
        return out

    def _overlap(self, a: Union, b: Union, subschema: Subschema) -> bool:
        return any(self._may_have_values(v, 0) for v in self._intersect(a, b, subschema))

    def _conditional(self, subschema: Subschema) -> Union:
        condition = self.ref(subschema.sub("if"))
        yes, no = self._union(condition), _without_annotations(self._union(self.negated(condition)))
        if "then" in subschema.schema:
            yes = self._intersect(yes, self._union(self.ref(subschema.sub("then"))), subschema)
        if "else" in subschema.schema:
            no = self._intersect(no, self._union(self.ref(subschema.sub("else"))), subschema)
        return yes + no

    def _dependent(self, subschema: Subschema) -> Iterable[Union]:
        needs: list[tuple[str, Union]] = []
        for keyword in ("dependentRequired", "dependencies"):
            for name, value in keywords.object_of(subschema, keyword).items():
                if isinstance(value, list):
                    objects = ObjectSet(required=tuple(keywords.names_of(subschema, keyword, value)))
                    needs.append((name, [replace(all_values(), objects=objects)]))
                elif keyword == "dependencies":
                    needs.append((name, self._union(self.ref(subschema.sub(keyword, name)))))
                else:
                    raise subschema.invalid(keyword, "it must contain lists of property names")
        for name in keywords.object_of(subschema, "dependentSchemas"):
            needs.append((name, self._union(self.ref(subschema.sub("dependentSchemas", name)))))
        for name, needed in needs:
            without = replace(all_values(), objects=ObjectSet((PropertyRules({name: FALSE}),)))
            only = [ValueSet(objects=ObjectSet(required=(name,)))]
            yield [without, *self._intersect(only, needed, subschema)]

    def _close_objects(self, v: ValueSet, ref: Ref) -> ValueSet:
        if v.objects is None:
            return v
        seen, objects = v.evaluated, v.objects
        if not seen.every_name:
            layer = PropertyRules(dict.fromkeys(sorted(seen.names), TRUE), tuple((d, TRUE) for d in seen.patterns), ref)
            both = objects.intersect(ObjectSet((layer,)))
            assert both is not None
            objects = both
        return replace(v, objects=objects, evaluated=replace(seen, every_name=True))

    def _close_arrays(self, v: ValueSet, ref: Ref) -> ValueSet:
        if v.arrays is None or v.evaluated.every_item:
            return v
        rest = ref
        for contained in v.evaluated.contained:  # items that `contains` evaluated, or others
            rest = self.negated(self.negated(rest) | self.negated(contained))
        both = v.arrays.intersect(ArraySet((((TRUE,) * v.evaluated.items, rest),)))
        assert both is not None
        return replace(v, arrays=both, evaluated=replace(v.evaluated, every_item=True))

    # -- keywords that look at one value alone

    def _local(self, subschema: Subschema) -> Union:
        schema = subschema.schema
        union = [all_values()]
        if "type" in schema:
            union = [keywords.types(self, subschema)]
        if "const" in schema:
            union = self._intersect(union, [keywords.constant(self, schema["const"])], subschema)
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise subschema.invalid("enum", "it must be a list")
            union = self._intersect(union, keywords.enumerated(self, schema["enum"]), subschema)
        try:
            limits = keywords.limits(self, subschema)
            if limits.objects is not None and "propertyNames" in schema:
                limits = replace(limits, objects=replace(limits.objects, names=self._names(subschema)))
            return self._intersect(union, [limits], subschema)
        except TooComplex:
            raise self._too_complex(subschema) from None

    def _names(self, subschema: Subschema) -> Dfa:
        """Return the names that propertyNames allows: the strings among its values."""
        names = automaton.nothing()
        for v in self.values(self.ref(subschema.sub("propertyNames"))):
            if v.strings is not None:
                names = automaton.union(names, v.strings.as_dfa())
        return names


def _without_annotations(union: Union) -> Union:
    return [v.without_annotations() for v in union]
