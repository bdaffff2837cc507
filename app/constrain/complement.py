"""What a set of JSON values leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from app.constrain import automaton, numbers
from app.constrain.automaton import Dfa
from app.constrain.document import Refused
from app.constrain.schema_graph import SchemaGraph
from app.constrain.shapes import BOOLS, FALSE, TRUE, Contains, Fields, Series, Text, Thing, Values


def other(graph: SchemaGraph, v: Values) -> list[Values]:
    """What is not among the values, as a union."""
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
        out += [Values(series=s) for s in other_series(graph, v.series)]
    if v.thing is not None:
        out += [Values(thing=t) for t in other_things(graph, v.thing)]
    return out


def other_series(graph: SchemaGraph, s: Series) -> Iterable[Series]:
    if s.unique is not None:
        raise Refused(s.unique, "its opposite is not supported")
    if s.low:
        yield Series(high=s.low - 1)
    if s.high is not None:
        yield Series(low=s.high + 1)
    for prefix, rest in s.layers:
        for i, ref in enumerate(prefix):
            if ref != TRUE:
                yield Series(layers=(((TRUE,) * i + (graph.negated(ref),), TRUE),), low=i + 1)
        if rest != TRUE:
            yield Series(contains=(Contains(len(prefix), graph.negated(rest), 1, None),))
    for c in s.contains:
        if c.low:
            yield Series(contains=(replace(c, low=0, high=c.low - 1),))
        if c.high is not None:
            yield Series(contains=(replace(c, low=c.high + 1, high=None),))


def other_things(graph: SchemaGraph, t: Thing) -> Iterable[Thing]:
    if t.low:
        yield Thing(high=t.low - 1)
    if t.high is not None:
        yield Thing(low=t.high + 1)
    for name in t.required:
        yield Thing((Fields({name: FALSE}),))
    for layer in t.layers:
        for name, ref in layer.named.items():
            if ref != TRUE:
                yield Thing((Fields({name: graph.negated(ref)}),), (name,))
        for dfa, ref in layer.patterns:
            if ref != TRUE:
                yield Thing(some=((dfa, graph.negated(ref)),))
        if layer.rest != TRUE:
            yield Thing(some=((_rest_names(layer), graph.negated(layer.rest)),))
    if t.names is not None:
        yield Thing(some=((automaton.others(t.names), TRUE),))
    for dfa, ref in t.some:
        yield Thing((Fields(patterns=((dfa, graph.negated(ref)),)),))


def _rest_names(layer: Fields) -> Dfa:
    """Names that a layer's `rest` is about."""
    taken = automaton.texts(layer.named)
    for dfa, _ in layer.patterns:
        taken = automaton.union(taken, dfa)
    return automaton.others(taken)
