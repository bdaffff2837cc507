"""Refuse grammars that can read short texts in very many ways, before the mask engine follows all of them.

XGrammar is an Earley parser: at each position of an answer it holds items, each a state of a rule and where that rule
began. Usually some tens of items are found at a position. With `a ::= a a | "x"` each character adds more, and a rule
of many parts that may be empty has thousands at once. A token then takes seconds, and nothing interrupts it. So the
same items are counted here, in texts of each rule that repeat one of its characters where they can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from app.constrain.automaton import Edges
from app.constrain.effort import spend
from app.constrain.gbnf_parts import Automaton, Class, Either, Literal, Name, Part, Repeat, Rules, Sequence, shortest_of

LENGTH = 64  # characters of a text
MOST = 750  # items at one position, each counted as often as it is found
SURE = 60  # up to so many, masks are quick
EFFORT = 20_000  # items of all texts; a trial finds more (grammar_trial.js)
TEXTS = 8  # of a rule; characters that are considered to go on with

Item = tuple[int, int]  # (state, position at which its rule began)


class TooManyWays(Exception):
    """A text of this rule can be read in too many ways."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


def _after(code: int, edges: list[tuple[int, int, int, int]]) -> list[Item]:
    """The items after a character. `edges`: (lowest character, highest, state after it, begin) of items before it."""
    return [(target, begun) for low, high, target, begun in edges if low <= code <= high]


def is_quick(rules: Rules, lengths: Mapping[str, float]) -> bool:
    """Whether all texts have few items. Raises TooManyWays where one has more than MOST.

    `lengths`: of the rules' shortest texts.
    """
    network = _Network(rules, lengths)
    found = most = 0
    texts = [[(name, first) for first in network.characters(name)] for name in rules]
    for name, first in (one for turn in zip_longest(*texts) for one in turn if one):  # some of each rule
        for items in network.items(name, first):
            spend(items)
            found, most = found + items, max(most, items)
            if items > MOST:
                raise TooManyWays(name.partition(" ")[0])  # the user's rule, also for a part that is repeated often
        if found > EFFORT:
            return False
    return most <= SURE


class _Network:
    """The rules as states, with edges for characters, empty ones, and calls of rules."""

    def __init__(self, rules: Rules, lengths: Mapping[str, float]) -> None:
        self._lengths = lengths
        self._edges: list[Edges] = []
        self._empty: list[list[int]] = []
        self._calls: list[list[tuple[str, int]]] = []
        self._starts = {name: self._state() for name in rules}
        self._ends: dict[int, str] = {}
        self._bodies: dict[str, list[int]] = {}  # name -> the states of its body
        for name, body in rules.items():
            begin, end = len(self._edges), self._state()
            self._ends[end] = name
            self._fill(name, body, end)
            self._bodies[name] = [self._starts[name], *range(begin, len(self._edges))]

    def _fill(self, rule: str, body: Part, end: int) -> None:
        todo: list[tuple[Part, int, int]] = [(body, self._starts[rule], end)]
        while todo:
            part, start, then = todo.pop()
            if isinstance(part, Repeat) and self._always_many(part):
                raise TooManyWays(rule)
            todo += self._expanded(part, start, then)

    def _state(self) -> int:
        spend(4)
        self._edges.append([])
        self._empty.append([])
        self._calls.append([])
        return len(self._edges) - 1

    def _expanded(self, part: Part, start: int, end: int) -> Iterable[tuple[Part, int, int]]:
        """Add the edges of a part between two states; the parts inside it that remain to be added."""
        if isinstance(part, Name):
            self._calls[start].append((part.rule, end))
        elif isinstance(part, Class):
            self._edges[start] += [(low, high, end) for low, high in part.ranges]
        elif isinstance(part, Automaton):
            own, begin, last = self._rule()
            self._automaton(part, begin, last)
            self._calls[start].append((own.rule, end))
        elif isinstance(part, Either):
            return [(option, start, end) for option in part.parts]
        elif isinstance(part, Sequence):
            return self._chain(part.parts, start, end)
        elif isinstance(part, Literal):
            return self._chain([Class(((ord(c), ord(c)),)) for c in part.text[:LENGTH]], start, end)
        else:
            return self._repeated(part, start, end)
        return ()

    def _rule(self) -> tuple[Name, int, int]:
        """A rule of its own: (what calls it, its first state, its last)."""
        name, begin, end = Name(f"part {len(self._ends)}"), self._state(), self._state()
        self._starts[name.rule], self._ends[end] = begin, name.rule
        return name, begin, end

    def _automaton(self, part: Automaton, start: int, end: int) -> None:
        states = [self._state() for _ in part.dfa.edges]
        self._empty[start].append(states[0])
        for at, edges in zip(states, part.dfa.edges, strict=True):
            self._edges[at] = [(low, high, states[target]) for low, high, target in edges]
        for at in part.dfa.accepting:
            self._empty[states[at]].append(end)

    def _chain(self, parts: Iterable[Part], start: int, end: int) -> Iterator[tuple[Part, int, int]]:
        for part in parts:
            then = self._state()
            yield part, start, then
            start = then
        self._empty[start].append(end)

    def _length(self, part: Part) -> float:
        return shortest_of(part, self._lengths)

    def _always_many(self, repeat: Repeat) -> bool:
        """Whether a part that may be empty is repeated so often that this alone has too many ways."""
        return max(repeat.low, repeat.high or 0) > MOST and not self._length(repeat.part)

    def _repeated(self, repeat: Repeat, start: int, end: int) -> Iterator[tuple[Part, int, int]]:
        most = LENGTH + 1 if self._length(repeat.part) else MOST  # more copies than characters change nothing
        low, high = min(repeat.low, most), repeat.low if repeat.high is None else repeat.high
        part = repeat.part
        if not isinstance(part, Class | Name):  # the mask engine makes a rule of it
            part, begin, last = self._rule()
            yield repeat.part, begin, last
        for at in range(min(high, most)):
            if at >= low:
                self._empty[start].append(end)
            then = self._state()
            yield part, start, then
            start = then
        if repeat.high is None:
            around = self._state()
            self._empty[start].append(around)
            yield part, around, around
            start = around
        self._empty[start].append(end)

    def characters(self, rule: str) -> list[int]:
        """Characters that a rule's own body reads, at most TEXTS; one that none reads if there are none."""
        found = dict.fromkeys(high for state in self._bodies[rule] for _, high, _ in self._edges[state][:2])
        return list(found)[:TEXTS] or [-1]

    def items(self, rule: str, often: int) -> Iterator[int]:
        """How many items are found at each position of a text of the rule; it has one character as often as it can."""
        waiting: list[dict[str, list[Item]]] = []  # at each position: rule -> items that go on after it
        items = [(self._starts[rule], 0)]
        for at in range(LENGTH):
            seen, found = self._closure(items, at, waiting)
            yield found
            edges = [(low, high, target, begun) for state, begun in seen for low, high, target in self._edges[state]]
            if not edges:
                return
            spend(len(edges))
            items = _after(often, edges)
            if not items:
                codes = list({high: 0 for _, high, *_ in edges})[:TEXTS]
                items = _after(max(codes, key=lambda code: (len(_after(code, edges)), code)), edges)

    def _closure(self, items: list[Item], at: int, waiting: list[dict[str, list[Item]]]) -> tuple[set[Item], int]:
        """The items of a position that follow from `items`, and how often one was found."""
        here: dict[str, list[Item]] = {}
        waiting.append(here)
        empty = set[str]()  # rules that match the empty text here
        found, seen, todo = len(items), set(items), list(dict.fromkeys(items))
        while todo and found <= MOST:
            state, begun = todo.pop()
            new = [(then, begun) for then in self._empty[state]]
            for rule, then in self._calls[state]:
                here.setdefault(rule, []).append((then, begun))
                new.append((self._starts[rule], at))
                if rule in empty:
                    new.append((then, begun))
            if (ended := self._ends.get(state)) is not None:
                if begun == at:
                    empty.add(ended)
                new += waiting[begun].get(ended, ())
            found += len(new)
            for item in new:
                if item not in seen:
                    seen.add(item)
                    todo.append(item)
        return seen, found
