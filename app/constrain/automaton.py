"""Finite automata over code points, for the strings that patterns, lengths and enumerations allow.

State 0 of a Dfa is the start. A character without a transition rejects the text.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from app.constrain.ebnf import UNICODE, Ranges, intersect, normalize
from app.constrain.effort import TooComplex, need, spend

MAX_STATES = 6000
MAX_TRIE = 100_000  # states of a list of words before equal ones are merged
State = TypeVar("State", bound=Hashable)
Key = tuple[tuple[int, int, int], ...]
Edges = list[tuple[int, int, int]]  # (first code point, last, target), sorted and disjoint


@dataclass
class Dfa:
    """A deterministic automaton: the transitions of each state, and the accepting states."""

    edges: list[Edges]
    accepting: set[int]

    def step(self, state: int, code: int) -> int | None:
        """Return the next state, None where the text is rejected."""
        return next((t for low, high, t in self.edges[state] if low <= code <= high), None)

    def accepts(self, text: str) -> bool:
        """Return whether the text is in the set."""
        state: int | None = 0
        for char in text:
            state = self.step(state, ord(char)) if state is not None else None
        return state in self.accepting

    def is_empty(self) -> bool:
        """Return whether no text is in the set. Only right for minimized automata."""
        return not self.accepting


class Nfa:
    """A nondeterministic automaton that regex.py builds: transitions on ranges, and epsilon transitions."""

    def __init__(self) -> None:
        self.edges: list[Edges] = []
        self.epsilon: list[list[int]] = []
        self._count = 0  # of edges

    def add_edges(self, start: int, ranges: Ranges, end: int) -> None:
        """Add transitions. determinize() will look at each: too many for that are not held in memory first."""
        self._count += len(ranges)
        need(self._count)
        self.edges[start] += [(low, high, end) for low, high in ranges]

    def add_state(self) -> int:
        """Add a state and return its number."""
        spend(2)
        if len(self.edges) > 20 * MAX_STATES:
            raise TooComplex
        self.edges.append([])
        self.epsilon.append([])
        return len(self.edges) - 1

    def closure(self, states: Iterable[int]) -> frozenset[int]:
        """Return the states that epsilon transitions reach."""
        seen = set(states)
        stack = list(seen)
        while stack:
            for target in self.epsilon[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        spend(len(seen))
        return frozenset(seen)

    def determinize(self, start: int, end: int) -> Dfa:
        """Return the smallest Dfa for the texts that lead from start to end."""
        numbers = _StateNumbers(self.closure([start]))
        edges: list[Edges] = []
        accepting: set[int] = set()
        for states in numbers:
            if end in states:
                accepting.add(numbers.of(states))
            out: Edges = []
            for low, high, targets in _disjoint([e for s in states for e in self.edges[s]]):
                out.append((low, high, numbers.of(self.closure(targets))))
            edges.append(out)
        return minimize(Dfa(edges, accepting))


class _StateNumbers(Generic[State]):
    """The numbers of the states of an automaton under construction, in the order of discovery.

    Iterating yields every state once, those discovered during the iteration included.
    """

    def __init__(self, first: State) -> None:
        self._numbers = {first: 0}
        self._queue = deque([first])

    def __iter__(self) -> Iterator[State]:
        while self._queue:
            yield self._queue.popleft()

    def of(self, state: State) -> int:
        """Return the state's number; number a new state. Raises TooComplex beyond MAX_STATES."""
        if state not in self._numbers:
            if len(self._numbers) >= MAX_STATES:
                raise TooComplex
            self._numbers[state] = len(self._numbers)
            self._queue.append(state)
        return self._numbers[state]


def _disjoint(edges: Edges) -> list[tuple[int, int, list[int]]]:
    """Cut overlapping ranges into disjoint ones, each with all its targets."""
    cuts = sorted({e[0] for e in edges} | {e[1] + 1 for e in edges})
    coming = sorted(edges, reverse=True)
    current: Edges = []
    out = []
    for low, end in pairwise(cuts):
        current = [e for e in current if e[1] >= low]
        while coming and coming[-1][0] <= low:
            current.append(coming.pop())
        spend(2 + len(current))
        if current:
            out.append((low, end - 1, [t for _, _, t in current]))
    return out


def everything() -> Dfa:
    """Accept every text."""
    return Dfa([[(a, b, 0) for a, b in UNICODE]], {0})


def nothing() -> Dfa:
    """Accept no text."""
    return Dfa([[]], set())


def of_words(words: Iterable[str]) -> Dfa:
    """Accept these texts only."""
    edges: list[dict[int, int]] = [{}]
    accepting = set()
    for word in words:
        if len(word) >= 4 * MAX_STATES:  # no automaton of fewer states accepts it
            raise TooComplex
        at = 0
        spend(len(word) >> 3)
        for char in word:
            if ord(char) not in edges[at]:
                edges.append({})
                spend(1)
                if len(edges) > MAX_TRIE:
                    raise TooComplex
                edges[at][ord(char)] = len(edges) - 1
            at = edges[at][ord(char)]
        accepting.add(at)
    dfa = minimize(Dfa([[(c, c, t) for c, t in sorted(e.items())] for e in edges], accepting))
    if len(dfa.edges) > 4 * MAX_STATES:
        raise TooComplex
    return dfa


def lengths(low: int, high: int | None) -> Dfa:
    """Accept texts of low to high characters."""
    last = low if high is None else high
    if last > MAX_STATES:
        raise TooComplex
    edges: list[Edges] = [[(a, b, i + 1) for a, b in UNICODE] for i in range(last)]
    edges.append([(a, b, last) for a, b in UNICODE] if high is None else [])
    return Dfa(edges, set(range(low, last + 1)))


def intersection(a: Dfa, b: Dfa) -> Dfa:
    """Accept texts that both accept."""
    return _product(a, b, lambda x, y: x and y)


def difference(a: Dfa, b: Dfa) -> Dfa:
    """Accept texts that a accepts and b rejects."""
    return _product(a, b, lambda x, y: x and not y)


def union(a: Dfa, b: Dfa) -> Dfa:
    """Accept texts that at least one accepts."""
    return _product(a, b, lambda x, y: x or y)


def concatenation(a: Dfa, b: Dfa) -> Dfa:
    """Accept texts of a followed by texts of b."""
    nfa = Nfa()
    for dfa in (a, b):
        first = len(nfa.edges)
        for edges in dfa.edges:
            nfa.edges[nfa.add_state()] = [(low, high, first + target) for low, high, target in edges]
    end, second = nfa.add_state(), len(a.edges)
    for state in a.accepting:
        nfa.epsilon[state].append(second)
    for state in b.accepting:
        nfa.epsilon[second + state].append(end)
    return nfa.determinize(0, end)


def complement(a: Dfa) -> Dfa:
    """Accept every other text."""
    return difference(everything(), a)


def _product(a: Dfa, b: Dfa, accept: Callable[[bool, bool], bool]) -> Dfa:
    """Run both automata side by side. State -1: that automaton has rejected the text."""
    numbers = _StateNumbers((0, 0))
    edges: list[Edges] = []
    accepting: set[int] = set()
    for x, y in numbers:
        if accept(x in a.accepting, y in b.accepting):
            accepting.add(numbers.of((x, y)))
        edges_a = a.edges[x] if x >= 0 else []
        edges_b = b.edges[y] if y >= 0 else []
        marked = [(low, high, 2 * t) for low, high, t in edges_a] + [(low, high, 2 * t + 1) for low, high, t in edges_b]
        out: Edges = []
        for low, high, targets in _disjoint(marked):
            to = (
                next((t // 2 for t in targets if t % 2 == 0), -1),
                next((t // 2 for t in targets if t % 2 == 1), -1),
            )
            out.append((low, high, numbers.of(to)))
        edges.append(out)
    return minimize(Dfa(edges, accepting))


def minimize(dfa: Dfa) -> Dfa:
    """Drop states from which nothing is accepted, and merge equivalent states."""
    alive = _live_states(dfa)
    if 0 not in alive:
        return nothing()
    edges = [[e for e in out if e[2] in alive] for out in dfa.edges]
    group = _groups(edges, alive, dfa.accepting)
    order: dict[int, int] = {}
    queue = deque([0])
    order[group[0]] = 0
    out_edges: list[Edges] = []
    accepting = set()
    while queue:
        s = queue.popleft()
        if s in dfa.accepting:
            accepting.add(order[group[s]])
        targets = {group[t]: t for _, _, t in edges[s]}
        out: Edges = []
        for low, high, target in _merge_ranges(edges[s], group):
            if target not in order:
                order[target] = len(order)
                queue.append(targets[target])
            out.append((low, high, order[target]))
        out_edges.append(out)
    return Dfa(out_edges, accepting)


def _groups(edges: list[Edges], alive: set[int], accepting: set[int]) -> list[int]:
    """The number of the group of equivalent states of each live state.

    Refines two groups. A state is looked at again only when the group of a state after it has changed, so a chain of
    states takes as many steps as it is long.
    """
    group = [int(s in accepting) for s in range(len(edges))]
    before: list[set[int]] = [set() for _ in edges]
    for s in alive:
        for _, _, target in edges[s]:
            before[target].add(s)
    sizes = Counter(group[s] for s in alive)
    next_group = 2
    common: dict[int, Key] = {}  # group -> the edges that its states have, as groups
    changed = alive
    while changed:
        looked_at: dict[int, dict[Key, list[int]]] = {}
        for s in sorted(changed):
            spend(2 + len(edges[s]))
            key = tuple(_merge_ranges(edges[s], group))
            looked_at.setdefault(group[s], {}).setdefault(key, []).append(s)
        changed = set()
        moved: list[tuple[int, int]] = []
        for g, parts in looked_at.items():
            if sum(map(len, parts.values())) == sizes[g]:  # no state of the group stays without having been looked at
                common[g] = max(parts, key=lambda key: len(parts[key]))
            for key, states in parts.items():
                if key != common[g]:
                    common[next_group], sizes[next_group] = key, len(states)
                    sizes[g] -= len(states)
                    moved += [(s, next_group) for s in states]
                    next_group += 1
        for s, new in moved:
            group[s] = new
            changed |= before[s]
    return group


def _merge_ranges(edges: Edges, group: list[int]) -> Edges:
    """Replace targets by their groups, and join neighbouring ranges with one target."""
    out: Edges = []
    for low, high, target in edges:
        to = group[target]
        if out and out[-1][2] == to and out[-1][1] + 1 == low:
            out[-1] = (out[-1][0], high, to)
        else:
            out.append((low, high, to))
    return out


def _live_states(dfa: Dfa) -> set[int]:
    """Return the states that are reachable and from which an accepting state is reachable."""
    back: dict[int, set[int]] = {}
    reached, stack = {0}, [0]
    while stack:
        s = stack.pop()
        for _, _, t in dfa.edges[s]:
            back.setdefault(t, set()).add(s)
            if t not in reached:
                reached.add(t)
                stack.append(t)
    alive = {s for s in dfa.accepting if s in reached}
    stack = list(alive)
    while stack:
        for s in back.get(stack.pop(), ()):
            if s not in alive:
                alive.add(s)
                stack.append(s)
    return alive & reached


def characters_to(edges: Edges, target: int) -> Ranges:
    """Return the characters that lead to a state."""
    return normalize(intersect(tuple((a, b) for a, b, t in edges if t == target), UNICODE))
