"""Sets of JSON values, with one constraint for each type. A union is a list of them.

Schemas of items and properties stay references (Ref), so that a schema may contain itself. A Ref is a set of
(node, sign) conditions that all hold; schema_graph.py numbers the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from app.constrain import automaton, numbers
from app.constrain.automaton import Dfa
from app.constrain.effort import spend

Ref = frozenset[tuple[int, bool]]
TRUE: Ref = frozenset()
FALSE: Ref = frozenset([(0, True)])  # node 0 is the schema false
Condition = TypeVar("Condition")


@dataclass(frozen=True)
class StringSet:
    """Strings of low to high characters; with `dfa`, only those that it accepts."""

    dfa: Dfa | None = None
    low: int = 0
    high: int | None = None

    def as_dfa(self) -> Dfa:
        """Return one automaton for the pattern and the length."""
        if not self.low and self.high is None:
            return self.dfa or automaton.everything()
        sized = automaton.lengths(self.low, self.high)
        return sized if self.dfa is None else automaton.intersection(self.dfa, sized)

    def intersect(self, other: StringSet) -> StringSet | None:
        """Return the strings in both sets, None where there are none."""
        low, high = max(self.low, other.low), _smaller(self.high, other.high)
        if high is not None and low > high:
            return None
        dfas = [d for d in (self.dfa, other.dfa) if d is not None]
        dfa = automaton.intersection(*dfas) if len(dfas) == 2 else dfas[0] if dfas else None
        made = StringSet(dfa, low, high)
        if dfa is not None and (low or high is not None):
            made = StringSet(made.as_dfa())
        return None if made.dfa is not None and made.dfa.is_empty() else made

    def complement(self) -> StringSet | None:
        """Return all other strings, None where there are none."""
        if self.dfa is None and not self.low and self.high is None:
            return None
        dfa = automaton.complement(self.as_dfa())
        return None if dfa.is_empty() else StringSet(dfa)


@dataclass(frozen=True)
class PropertyRules:
    """What one schema says about the properties of an object. `rest` holds for those that no name or pattern covers."""

    named: dict[str, Ref] = field(default_factory=dict)
    patterns: tuple[tuple[Dfa, Ref], ...] = ()
    rest: Ref = TRUE


@dataclass(frozen=True)
class ObjectSet:
    """Objects with low to high properties that satisfy every layer.

    `names`: what property names may be. `exists`: (names, value) pairs; the object has a property of each.
    """

    layers: tuple[PropertyRules, ...] = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    names: Dfa | None = None
    exists: tuple[tuple[Dfa, Ref], ...] = ()

    def intersect(self, other: ObjectSet) -> ObjectSet | None:
        """Return the objects in both sets, None where there are none."""
        low, high = max(self.low, other.low), _smaller(self.high, other.high)
        if high is not None and low > high:
            return None
        given = [n for n in (self.names, other.names) if n is not None]
        names = automaton.intersection(*given) if len(given) == 2 else given[0] if given else None
        required = tuple(dict.fromkeys((*self.required, *other.required)))
        return ObjectSet(_both(self.layers, other.layers), required, low, high, names, _both(self.exists, other.exists))


@dataclass(frozen=True)
class Contains:
    """Of the items from index `start` on, low to high satisfy `ref`."""

    start: int
    ref: Ref
    low: int
    high: int | None


@dataclass(frozen=True)
class ArraySet:
    """Arrays of low to high items. `layers`: for each schema (the first items, all later items)."""

    layers: tuple[tuple[tuple[Ref, ...], Ref], ...] = ()
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: tuple[str, ...] | None = None  # items differ; the path of uniqueItems, for error messages

    def intersect(self, other: ArraySet) -> ArraySet | None:
        """Return the arrays in both sets, None where there are none."""
        low, high = max(self.low, other.low), _smaller(self.high, other.high)
        if high is not None and low > high:
            return None
        return ArraySet(
            _both(self.layers, other.layers),
            low,
            high,
            _both(self.contains, other.contains),
            self.unique or other.unique,
        )

    def item(self, index: int | None) -> Ref:
        """Return the condition on the item at an index; None: on the items after every prefix."""
        refs = (p[index] if index is not None and index < len(p) else rest for p, rest in self.layers)
        return TRUE.union(*refs)

    def prefix_length(self) -> int:
        """Return how many first items have schemas of their own."""
        return max((len(p) for p, _ in self.layers), default=0)


@dataclass(frozen=True)
class Evaluated:
    """Which properties and items a schema evaluated, for unevaluatedProperties and unevaluatedItems."""

    names: frozenset[str] = frozenset()
    patterns: tuple[Dfa, ...] = ()
    every_name: bool = False
    items: int = 0
    every_item: bool = False
    contained: tuple[Ref, ...] = ()

    def merge(self, other: Evaluated) -> Evaluated:
        """Return what either schema evaluated."""
        return Evaluated(
            self.names | other.names,
            _both(self.patterns, other.patterns),
            self.every_name or other.every_name,
            max(self.items, other.items),
            self.every_item or other.every_item,
            _both(self.contained, other.contained),
        )


BOOLEANS = frozenset([True, False])


@dataclass(frozen=True)
class ValueSet:
    """The allowed values of each type; None: no value of that type."""

    null: bool = False
    booleans: frozenset[bool] = frozenset()
    numbers: Dfa | None = None
    strings: StringSet | None = None
    arrays: ArraySet | None = None
    objects: ObjectSet | None = None
    evaluated: Evaluated = Evaluated()

    def intersect(self, other: ValueSet) -> ValueSet:
        """Return the values in both sets."""
        number = None
        if self.numbers is not None and other.numbers is not None:
            number = other.numbers if self.numbers is numbers.all_numbers() else self.numbers
            if other.numbers is not numbers.all_numbers() and number is not other.numbers:
                number = automaton.intersection(self.numbers, other.numbers)
            number = None if number.is_empty() else number
        return ValueSet(
            self.null and other.null,
            self.booleans & other.booleans,
            number,
            self.strings.intersect(other.strings) if self.strings and other.strings else None,
            self.arrays.intersect(other.arrays) if self.arrays and other.arrays else None,
            self.objects.intersect(other.objects) if self.objects and other.objects else None,
            self.evaluated.merge(other.evaluated),
        )

    def is_empty(self) -> bool:
        """Return whether no type has values. False does not promise one: its schemas may contradict each other."""
        return not (self.null or self.booleans or self.numbers or self.strings or self.arrays or self.objects)

    def without_annotations(self) -> ValueSet:
        """Return the same values with nothing marked as evaluated."""
        return replace(self, evaluated=Evaluated())


def all_values() -> ValueSet:
    """Return all JSON values."""
    return ValueSet(True, BOOLEANS, numbers.all_numbers(), StringSet(), ArraySet(), ObjectSet())


def _both(a: tuple[Condition, ...], b: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Return the conditions of both, each once: schemas that refer to the same ones would double them at each level."""
    if not b:
        return a
    spend(len(a) + len(b))
    known = set(map(id, a))
    return a + tuple(condition for condition in b if id(condition) not in known)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
