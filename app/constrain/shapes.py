"""Sets of JSON values: for each type its own constraint. Unions are lists of these; intersections are made here.

The schemas of items and properties stay references (Ref): sets of (node, sign) that all hold, see schema.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.constrain import automaton, numbers
from app.constrain.automaton import Dfa

Ref = frozenset[tuple[int, bool]]
TRUE: Ref = frozenset()
FALSE: Ref = frozenset([(0, True)])  # node 0 is the schema false


@dataclass(frozen=True)
class Text:
    """Strings: of a length, and in a set where `dfa` is one."""

    dfa: Dfa | None = None
    low: int = 0
    high: int | None = None

    def exact(self) -> Dfa:
        """As one automaton."""
        if not self.low and self.high is None:
            return self.dfa or automaton.everything()
        sized = automaton.lengths(self.low, self.high)
        return sized if self.dfa is None else automaton.both(self.dfa, sized)

    def both(self, other: Text) -> Text | None:
        """Strings in both; None: there is none."""
        low, high = max(self.low, other.low), _least(self.high, other.high)
        if high is not None and low > high:
            return None
        dfas = [d for d in (self.dfa, other.dfa) if d is not None]
        dfa = automaton.both(*dfas) if len(dfas) == 2 else dfas[0] if dfas else None
        made = Text(dfa, low, high)
        if dfa is not None and (low or high is not None):
            made = Text(made.exact())
        return None if made.dfa is not None and made.dfa.empty() else made

    def others(self) -> Text | None:
        """Every other string."""
        if self.dfa is None and not self.low and self.high is None:
            return None
        dfa = automaton.others(self.exact())
        return None if dfa.empty() else Text(dfa)


@dataclass(frozen=True)
class Fields:
    """What one schema says about an object's properties."""

    named: dict[str, Ref] = field(default_factory=dict)
    patterns: tuple[tuple[Dfa, Ref], ...] = ()
    rest: Ref = TRUE


@dataclass(frozen=True)
class Thing:
    """Objects. `some`: for each, there is a property with such a name and value."""

    layers: tuple[Fields, ...] = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    names: Dfa | None = None
    some: tuple[tuple[Dfa, Ref], ...] = ()

    def both(self, other: Thing) -> Thing | None:
        low, high = max(self.low, other.low), _least(self.high, other.high)
        if high is not None and low > high:
            return None
        given = [n for n in (self.names, other.names) if n is not None]
        names = automaton.both(*given) if len(given) == 2 else given[0] if given else None
        required = tuple(dict.fromkeys((*self.required, *other.required)))
        return Thing(self.layers + other.layers, required, low, high, names, self.some + other.some)


@dataclass(frozen=True)
class Contains:
    """From an index on, low to high items are such."""

    start: int
    ref: Ref
    low: int
    high: int | None


@dataclass(frozen=True)
class Series:
    """Arrays. `layers`: what each schema says: of the first items, and of the rest."""

    layers: tuple[tuple[tuple[Ref, ...], Ref], ...] = ()
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: tuple[str, ...] | None = None  # the path of the keyword that asks for it

    def both(self, other: Series) -> Series | None:
        low, high = max(self.low, other.low), _least(self.high, other.high)
        if high is not None and low > high:
            return None
        return Series(
            self.layers + other.layers, low, high, self.contains + other.contains, self.unique or other.unique
        )

    def item(self, index: int | None) -> Ref:
        """What holds for an item; None: for those after every prefix."""
        refs = (p[index] if index is not None and index < len(p) else rest for p, rest in self.layers)
        return TRUE.union(*refs)

    def prefix(self) -> int:
        """How many first items have schemas of their own."""
        return max((len(p) for p, _ in self.layers), default=0)


@dataclass(frozen=True)
class Seen:
    """What has been evaluated, for unevaluatedProperties and unevaluatedItems."""

    names: frozenset[str] = frozenset()
    patterns: tuple[Dfa, ...] = ()
    every_name: bool = False
    items: int = 0
    every_item: bool = False
    contained: tuple[Ref, ...] = ()

    def both(self, other: Seen) -> Seen:
        return Seen(
            self.names | other.names,
            self.patterns + other.patterns,
            self.every_name or other.every_name,
            max(self.items, other.items),
            self.every_item or other.every_item,
            self.contained + other.contained,
        )


BOOLS = frozenset([True, False])


@dataclass(frozen=True)
class Values:
    """A set of values: those allowed of each type; None: none of it."""

    null: bool = False
    bools: frozenset[bool] = frozenset()
    number: Dfa | None = None
    text: Text | None = None
    series: Series | None = None
    thing: Thing | None = None
    seen: Seen = Seen()

    def both(self, other: Values) -> Values:
        number = None
        if self.number is not None and other.number is not None:
            number = other.number if self.number is numbers.every() else self.number
            if other.number is not numbers.every() and number is not other.number:
                number = automaton.both(self.number, other.number)
            number = None if number.empty() else number
        return Values(
            self.null and other.null,
            self.bools & other.bools,
            number,
            self.text.both(other.text) if self.text and other.text else None,
            self.series.both(other.series) if self.series and other.series else None,
            self.thing.both(other.thing) if self.thing and other.thing else None,
            self.seen.both(other.seen),
        )

    def none(self) -> bool:
        """Surely empty."""
        return not (self.null or self.bools or self.number or self.text or self.series or self.thing)

    def unseen(self) -> Values:
        """Without its annotations."""
        return replace(self, seen=Seen())


def every_value() -> Values:
    """All of JSON."""
    return Values(True, BOOLS, numbers.every(), Text(), Series(), Thing())


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)
