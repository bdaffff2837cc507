"""Complements of sets of JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.constrain import automaton, numbers
from app.constrain.automaton import Dfa
from app.constrain.document import UnsupportedKeyword
from app.constrain.schema_graph import SchemaGraph
from app.constrain.value_sets import (
    BOOLEANS,
    FALSE,
    TRUE,
    ArraySet,
    Contains,
    ObjectSet,
    PropertyRules,
    StringSet,
    ValueSet,
)


def complement(graph: SchemaGraph, v: ValueSet) -> list[ValueSet]:
    """Return all values that are not in the set, as a union."""
    number = numbers.all_numbers() if v.numbers is None else None
    if v.numbers is not None and v.numbers is not numbers.all_numbers():
        left = automaton.difference(numbers.decimals(), v.numbers)
        number = None if left.is_empty() else left
    plain = ValueSet(
        not v.null,
        BOOLEANS - v.booleans,
        number,
        StringSet() if v.strings is None else v.strings.complement(),
        ArraySet() if v.arrays is None else None,
        ObjectSet() if v.objects is None else None,
    )
    out = [plain] if not plain.is_empty() else []
    if v.arrays is not None:
        out += [ValueSet(arrays=s) for s in _other_arrays(graph, v.arrays)]
    if v.objects is not None:
        out += [ValueSet(objects=t) for t in _other_objects(graph, v.objects)]
    return out


def _other_arrays(graph: SchemaGraph, s: ArraySet) -> Iterable[ArraySet]:
    """Yield the arrays that break one of the conditions, a set for each."""
    if s.unique is not None:
        raise UnsupportedKeyword(s.unique, "it is not supported inside not, oneOf or if")
    if s.low:
        yield ArraySet(high=s.low - 1)
    if s.high is not None:
        yield ArraySet(low=s.high + 1)
    for prefix, rest in s.layers:
        for i, ref in enumerate(prefix):
            if ref != TRUE:
                yield ArraySet(layers=(((TRUE,) * i + (graph.negated(ref),), TRUE),), low=i + 1)
        if rest != TRUE:
            yield ArraySet(contains=(Contains(len(prefix), graph.negated(rest), 1, None),))
    for c in s.contains:
        if c.low:
            yield ArraySet(contains=(replace(c, low=0, high=c.low - 1),))
        if c.high is not None:
            yield ArraySet(contains=(replace(c, low=c.high + 1, high=None),))


def _other_objects(graph: SchemaGraph, t: ObjectSet) -> Iterable[ObjectSet]:
    """Yield the objects that break one of the conditions, a set for each."""
    if t.low:
        yield ObjectSet(high=t.low - 1)
    if t.high is not None:
        yield ObjectSet(low=t.high + 1)
    for name in t.required:
        yield ObjectSet((PropertyRules({name: FALSE}),))
    for layer in t.layers:
        for name, ref in layer.named.items():
            if ref != TRUE:
                yield ObjectSet((PropertyRules({name: graph.negated(ref)}),), (name,))
        for dfa, ref in layer.patterns:
            if ref != TRUE:
                yield ObjectSet(exists=((dfa, graph.negated(ref)),))
        if layer.rest != TRUE:
            yield ObjectSet(exists=((_rest_names(layer), graph.negated(layer.rest)),))
    if t.names is not None:
        yield ObjectSet(exists=((automaton.complement(t.names), TRUE),))
    for dfa, ref in t.exists:
        yield ObjectSet((PropertyRules(patterns=((dfa, graph.negated(ref)),)),))


def _rest_names(layer: PropertyRules) -> Dfa:
    """Return the names that a layer's `rest` covers."""
    taken = automaton.of_words(layer.named)
    for dfa, _ in layer.patterns:
        taken = automaton.union(taken, dfa)
    return automaton.complement(taken)
