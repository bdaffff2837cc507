"""What the bodies of a GBNF grammar's rules are made of: shortest texts, XGrammar's EBNF, and states of an automaton.

Functions that recurse do so in lists, not in generators, which would recurse in C: WebAssembly's stack is small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from app.constrain.automaton import Dfa, Nfa
from app.constrain.ebnf import Ranges, characters, either, literal
from app.constrain.effort import TooComplex, left, need, spend

# Characters of the shortest text of a rule. The mask engine holds all of a text that must come next.
MAX_SHORTEST = 100_000


@dataclass(frozen=True, eq=False)
class Literal:
    """A text, verbatim."""

    text: str


@dataclass(frozen=True, eq=False)
class Class:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, eq=False)
class Name:
    """What another rule matches."""

    rule: str


@dataclass(frozen=True, eq=False)
class Sequence:
    """Parts that follow each other."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Either:
    """One of several parts."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """A part, low to high times. `sign`: as the grammar's text has it, where that is one of *+?."""

    part: Part
    low: int
    high: int | None
    sign: str = ""


@dataclass(frozen=True, eq=False)
class Automaton:
    """The texts of an automaton. `rule`: its name in XGrammar's EBNF."""

    dfa: Dfa
    rule: str


Part = Literal | Class | Name | Sequence | Either | Repeat | Automaton
Rules = Mapping[str, Part]


def written(part: Part, own: Mapping[str, str]) -> str:
    """A part in XGrammar's EBNF. `own`: the rules' names there."""
    if isinstance(part, Literal):
        return literal(part.text)
    if isinstance(part, Class):
        return characters(part.ranges)
    if isinstance(part, Name):
        return own[part.rule]
    if isinstance(part, Automaton):
        return part.rule
    if isinstance(part, Sequence):
        return " ".join([_grouped(p, own) for p in part.parts]) or '""'
    if isinstance(part, Either):
        return either([written(p, own) for p in part.parts])
    if part.high == 0:
        return '""'
    times = part.sign or f"{{{part.low},{'' if part.high is None else part.high}}}"
    return f"({written(part.part, own)}){times}"


def _grouped(part: Part, own: Mapping[str, str]) -> str:
    text = written(part, own)
    return f"({text})" if isinstance(part, Sequence) else text


def names(part: Part) -> Iterator[str]:
    """The rules that a part refers to."""
    todo = [part]
    while todo:
        part = todo.pop()
        if isinstance(part, Name):
            yield part.rule
        elif isinstance(part, Repeat):
            todo.append(part.part)
        elif isinstance(part, Sequence | Either):
            todo += part.parts


def shortest(rules: Rules) -> dict[str, float]:
    """The length of each rule's shortest text; infinite where no text of a rule ever ends."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        for used in set(names(body)):
            users[used].append(name)
    found = dict.fromkeys(rules, inf)
    todo = deque(rules)
    waiting = set(rules)
    while todo:
        name = todo.popleft()
        waiting.discard(name)
        length = shortest_of(rules[name], found)
        if length < found[name]:
            found[name] = length
            todo.extend(user for user in users[name] if user not in waiting)
            waiting.update(users[name])
    return found


def shortest_of(part: Part, known: Mapping[str, float]) -> float:
    """The length of a part's shortest text. `known`: those of rules."""
    spend(1)
    if isinstance(part, Literal):
        return len(part.text)
    if isinstance(part, Class):
        return 1
    if isinstance(part, Automaton):
        return int(0 not in part.dfa.accepting)
    if isinstance(part, Name):
        return known[part.rule]
    if isinstance(part, Sequence):
        length = sum([shortest_of(p, known) for p in part.parts])
    elif isinstance(part, Either):
        length = min([shortest_of(p, known) for p in part.parts])
    else:
        once = shortest_of(part.part, known)
        length = once * part.low if part.low else 0
    if MAX_SHORTEST < length < inf:
        raise TooComplex
    return length


def check_left_corners(rules: Rules, lengths: Mapping[str, float]) -> None:
    """Spend steps for each rule and each that it can begin with: masks take time for each such pair."""
    first = {name: _first(body, lengths) for name, body in rules.items()}
    for name in rules:
        seen, todo = {name}, [name]
        while todo:
            spend(4)
            new = [other for other in first[todo.pop()] if other not in seen]
            seen.update(new)
            todo += new


def _first(part: Part, lengths: Mapping[str, float]) -> list[str]:
    """The rules that a part can begin with."""
    spend(1)
    if isinstance(part, Name):
        return [part.rule]
    if isinstance(part, Repeat):
        return _first(part.part, lengths)
    found = []
    for inside in part.parts if isinstance(part, Sequence | Either) else ():
        found += _first(inside, lengths)
        if isinstance(part, Sequence) and shortest_of(inside, lengths):
            break
    return list(dict.fromkeys(found))


def recursive(rules: Rules) -> set[str]:
    """The rules that refer to themselves, directly or by way of others, and those that refer to such rules."""
    uses = {name: set(names(body)) for name, body in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in uses.items():
        for other in used:
            users[other].append(name)
    done = [name for name, used in uses.items() if not used]
    for name in done:  # grows while it is read
        for user in users[name]:
            uses[user].discard(name)
            if not uses[user]:
                done.append(user)
    return rules.keys() - set(done)


def automaton(rules: Rules, part: Part) -> Dfa:
    """The automaton of a part without recursion. It reads each text in one way only, which masks are fast with."""
    nfa = Nfa()
    first, last = nfa.add_state(), nfa.add_state()
    need(_steps(rules, part, left()))  # else repetitions within each other take long until none is left
    todo: list[tuple[Part, int, int]] = [(part, first, last)]
    while todo:
        part, start, end = todo.pop()
        spend(1)
        if isinstance(part, Name):
            todo.append((rules[part.rule], start, end))
        elif isinstance(part, Automaton):
            raise TypeError("automata are not nested")
        elif isinstance(part, Class):
            nfa.add_edges(start, part.ranges, end)
        elif isinstance(part, Either):
            todo += [(option, start, end) for option in part.parts]
        elif isinstance(part, Sequence):
            todo += _chain(nfa, part.parts, start, end)
        elif isinstance(part, Literal):
            todo += _chain(nfa, tuple(Class(((ord(c), ord(c)),)) for c in part.text), start, end)
        else:
            todo += _repeated(nfa, part, start, end)
    return nfa.determinize(first, last)


def _steps(rules: Rules, part: Part, most: int) -> int:
    """The steps for the states of a part's automaton, those of repetitions counted at once; or more than `most`."""
    steps, todo = 0, [(part, 1)]
    while todo and steps <= most:
        part, times = todo.pop()
        states = 0
        if isinstance(part, Name):
            todo.append((rules[part.rule], times))
        elif isinstance(part, Literal):
            states = len(part.text)
            steps += times * states  # each character is a part
        elif isinstance(part, Repeat):
            states = max(part.low, part.high or 0) + (part.high is None)
            if states:  # what is repeated no times has none, however much it refers to
                todo.append((part.part, times * states))
        elif isinstance(part, Sequence | Either):
            states = len(part.parts) if isinstance(part, Sequence) else 0
            todo += [(one, times) for one in part.parts]
        steps += times * (1 + 2 * states)
    return steps


def _chain(nfa: Nfa, parts: tuple[Part, ...], start: int, end: int) -> Iterator[tuple[Part, int, int]]:
    for part in parts:
        then = nfa.add_state()
        yield part, start, then
        start = then
    nfa.epsilon[start].append(end)


def _repeated(nfa: Nfa, repeat: Repeat, start: int, end: int) -> Iterator[tuple[Part, int, int]]:
    for at in range(max(repeat.low, repeat.high or 0)):
        if at >= repeat.low:
            nfa.epsilon[start].append(end)
        after = nfa.add_state()
        yield repeat.part, start, after
        start = after
    if repeat.high is None:
        around = nfa.add_state()  # no part may lead back to `start`: others begin there, too
        nfa.epsilon[start].append(around)
        yield repeat.part, around, around
        start = around
    nfa.epsilon[start].append(end)
