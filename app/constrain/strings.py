"""Grammar rules for automata and JSON strings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial

from app.constrain import automaton
from app.constrain.automaton import Dfa, Edges
from app.constrain.cost import WORDS, class_cost
from app.constrain.ebnf import (
    BEYOND_ASCII,
    UNICODE,
    Grammar,
    Ranges,
    character_options,
    complement,
    either,
    intersect,
    literal,
)
from app.constrain.effort import TooComplex, spend
from app.constrain.value_sets import StringSet

_SHORT = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
# Characters that a JSON string may contain without an escape.
_DIRECT = intersect(complement(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))), UNICODE)
_ASTRAL = (0x10000, 0x10FFFF)
HEX = "[0-9a-fA-F]"
BLOCK = 16  # characters counted one by one; each costs the mask engine compile time
MOST_STATES = 16  # limits up to this are states of the grammar; string_limits.js counts longer ones
LONG_RUN = 1500.0  # cost of a run of states from which it is counted in blocks: masks then take longer
MAX_CHARACTERS = 60_000


def any_options() -> list[str]:
    """Return the ways to write any character inside a JSON string."""
    return [
        *character_options(_DIRECT),
        r'"\u005c" [\u0022\u005c/bfnrt]',
        rf'"\u005cu" [0-9a-cefA-CEF] {HEX} {HEX} {HEX}',
        rf'"\u005cu" [dD] [0-7] {HEX} {HEX}',
        rf'"\u005cu" [dD] [89abAB] {HEX} {HEX} "\u005cu" [dD] [c-fC-F] {HEX} {HEX}',
    ]


def json_text(grammar: Grammar, text: StringSet) -> str:
    """Return the body of a rule for JSON strings, with their quotes.

    The mask engine is fast where a rule ends with the next rule, and slow where it must return to the calling rule
    after each character. So a string is a chain of rules that each end with the next, the last with the quote.
    """
    quote = literal('"')
    if text.dfa is not None:
        return f"{quote} {automaton_rule(grammar, text.as_dfa(), True, quote)}"
    if text.low or text.high is not None:
        return f"{quote} {_limited(grammar, text.low, text.high)}"
    return f"{quote} {_any_rest(grammar)}"


def _any_rest(grammar: Grammar) -> str:
    """Return the rule for any characters and the closing quote."""
    quote = literal('"')
    return grammar.shared("string_rest", lambda own: either([quote, *(f"{o} {own}" for o in any_options())]))


def _limited(grammar: Grammar, low: int, high: int | None) -> str:
    """Return the rule for low to high characters and the quote. The looser grammar's has no upper limit."""
    if high is None or high <= MOST_STATES or not grammar.counts_limits:
        return _sized(grammar, low, high)
    name = grammar.add("limited", _sized(grammar, low, high))
    grammar.looser[name] = _sized(grammar, low, None) if low else _any_rest(grammar)
    return name


def _sized(grammar: Grammar, low: int, high: int | None) -> str:
    """Return the rule for low to high characters and the closing quote.

    Counts in blocks, so that few rules contain characters: whole(n) reads n characters, last(n) reads up to n
    characters and the quote.
    """
    if max(low, high or 0) > MAX_CHARACTERS:
        raise TooComplex
    quote = literal('"')

    def whole(n: int) -> str:
        def body(_: str) -> str:
            then = f" {whole(n - 1)}" if n > 1 else ""
            return either(f"{o}{then}" for o in any_options())

        return grammar.shared(f"whole_{n}", body)

    def last(n: int) -> str:
        def body(_: str) -> str:
            more = [f"{o} {last(n - 1)}" for o in any_options()] if n else []
            return either([quote, *more])

        return grammar.shared(f"last_{n}", body)

    blocks, single = divmod(low, BLOCK)
    first = [repeated(whole(BLOCK), blocks, blocks)] if blocks else []
    first += [whole(single)] if single else []
    if high is None:
        return " ".join([*first, _any_rest(grammar)])
    blocks, single = divmod(high - low, BLOCK)
    if blocks <= 2:  # no more rules than with blocks, and faster masks
        blocks, single = 0, high - low
    rest = last(single)
    for _ in range(blocks):
        rest = grammar.add("up_to", f"({whole(BLOCK)} {rest} | {last(BLOCK)})")
    return " ".join([*first, rest])


def repeated(what: str, low: int, high: int | None) -> str:
    """Repeat an expression low to high times."""
    if high is None:
        return f"{what}*" if low == 0 else f"{what}{{{low},}}" if low > 1 else f"{what}+"
    if (low, high) == (1, 1):
        return what
    return f"{what}{{{low},{high}}}" if high else '""'


def automaton_rule(grammar: Grammar, dfa: Dfa, escaped: bool, end: str = "") -> str:
    """Add a rule for the texts of an automaton, followed by `end`. `escaped`: as a JSON string writes them."""
    key = (tuple(map(tuple, dfa.edges)), frozenset(dfa.accepting), escaped, end)
    if key not in grammar.known:
        grammar.known[key] = _Rules(grammar, dfa, escaped, end).rule(0)
    return grammar.known[key]


@dataclass(frozen=True)
class _Run:
    """States that follow each other by the same characters, and leave in the same ways."""

    ways: tuple[str, ...]  # to write one of the characters
    length: int
    after: int  # the state after the last character
    exits: Edges  # edges that all states of the run have beside
    accepting: bool


class _Rules:
    """A writer of one rule for each state with several incoming edges; other states are inlined."""

    def __init__(self, grammar: Grammar, dfa: Dfa, escaped: bool, end: str) -> None:
        self._grammar, self._dfa, self._escaped, self._end = grammar, dfa, escaped, end
        self._names: dict[int, str] = {}
        self._in_degree = [0] * len(dfa.edges)
        for state, edges in enumerate(dfa.edges):
            for target in {t for _, _, t in edges if t != state}:
                self._in_degree[target] += 1

    def rule(self, start: int) -> str:
        """Add the rules of a state and of all that are reachable from it; return the state's."""
        self._names[start] = self._grammar.name("t")
        todo = [start]
        while todo:
            state = todo.pop()
            self._grammar.define(self._names[state], self._body(state, todo))
        return self._names[start]

    def _body(self, state: int, todo: list[int]) -> str:
        edges = self._dfa.edges[state]
        spend(10 + 5 * len(edges))
        if (run := self._run(state)) is not None:
            return self._counted(run, todo)
        options = []
        for target in dict.fromkeys(t for _, _, t in edges):
            first, chain, at = self._options(edges, target), [], target
            while at != state and (then := self._inlined_target(at)) is not None:
                chain.append(self._options(self._dfa.edges[at], then)[0])
                at = then
            chain += self._called(at, todo)
            options += [" ".join([way, *chain]) for way in first]
        if state in self._dfa.accepting or not options:
            options.append(self._end or '""')
        return either(options)

    def _called(self, state: int, todo: list[int]) -> list[str]:
        """What a rule ends with that goes on in a state: the state's rule, or the end if nothing can follow."""
        if not self._dfa.edges[state]:
            return [self._end] if self._end else []
        if self._is_any(state):
            return [_any_rest(self._grammar)]
        if state not in self._names:
            self._names[state] = self._grammar.name("t")
            todo.append(state)
        return [self._names[state]]

    def _is_any(self, state: int) -> bool:
        """Whether any characters and the closing quote of a JSON string may follow."""
        to_itself = automaton.characters_to(self._dfa.edges[state], state)
        return self._escaped and self._end == literal('"') and state in self._dfa.accepting and to_itself == UNICODE

    def _run(self, state: int) -> _Run | None:
        """The run of states that begins with this one, if it is worth counting in blocks."""
        edges, accepts = self._dfa.edges, self._dfa.accepting
        for first in {target for _, _, target in edges[state]} - {state}:
            ways = tuple(self._options(edges[state], first))
            if (each := class_cost(ways)) < WORDS:
                continue
            exits = [edge for edge in edges[state] if edge[2] != first]
            read = [(low, high) for low, high, target in edges[state] if target == first]
            at, after, length = state, first, 1
            while length < MAX_CHARACTERS and self._in_degree[after] == 1 and (after in accepts) == (state in accepts):
                spend(1)
                at = after
                after = next((target for low, high, target in edges[at] if (low, high) == read[0]), at)
                if after == at or edges[at] != sorted([*exits, *((low, high, after) for low, high in read)]):
                    after = at
                    break
                length += 1
            if length > BLOCK and length * each > LONG_RUN:
                return _Run(ways, length, after, exits, state in accepts)
        return None

    def _counted(self, run: _Run, todo: list[int]) -> str:
        """The body for a run of states."""
        leaving = [self._end or '""'] if run.accepting else []
        for target in dict.fromkeys(target for _, _, target in run.exits):
            then = self._called(target, todo)
            leaving += [" ".join([way, *then]) for way in self._options(run.exits, target)]
        whole = partial(self._characters, run.ways, ())
        blocks, rest = divmod(run.length - 1, BLOCK)
        last = [whole(rest + 1), *self._called(run.after, todo)]
        if not leaving:
            return " ".join([repeated(whole(BLOCK), blocks, blocks), *last])
        fewer = partial(self._characters, run.ways, tuple(leaving))
        found = f"({fewer(rest)} | {' '.join(last)})"
        for _ in range(blocks):
            found = f"({whole(BLOCK)} {self._grammar.add('up_to', found)} | {fewer(BLOCK - 1)})"
        return found

    def _characters(self, ways: tuple[str, ...], leaving: tuple[str, ...], count: int) -> str:
        """The rule for so many characters; with ways to leave, for up to so many and one of them."""
        if not count:
            return either(leaving)
        key = ways, leaving, count
        if key not in self._grammar.known:
            after = self._characters(ways, leaving, count - 1) if leaving or count > 1 else ""
            body = either([*leaving, *(f"{way} {after}".strip() for way in ways)])
            self._grammar.known[key] = self._grammar.add("up_to" if leaving else "whole", body)
        return self._grammar.known[key]

    def _inlined_target(self, state: int) -> int | None:
        """Return the next state of a state that can be inlined.

        It has one incoming edge and one outgoing edge, which can be written in one way only.
        """
        if state in self._dfa.accepting or self._in_degree[state] != 1 or state in self._names:
            return None
        edges = self._dfa.edges[state]
        targets = {t for _, _, t in edges}
        if len(targets) != 1 or state in targets:
            return None
        target = targets.pop()
        return target if len(self._options(edges, target)) == 1 else None

    def _options(self, edges: Edges, target: int) -> list[str]:
        return _ways(automaton.characters_to(edges, target), self._escaped)


@lru_cache(maxsize=1024)
def _ways(ranges: Ranges, escaped: bool) -> list[str]:
    """The ways to write one character of a set."""
    return escaped_options(ranges) if escaped else character_options(ranges)


def escaped_options(ranges: Ranges) -> list[str]:
    """Return the ways to write one character of a set inside a JSON string."""
    options = []
    direct = intersect(ranges, _DIRECT)
    options += character_options(direct)
    for code, text in _SHORT.items():
        if intersect(ranges, ((code, code),)):
            options.append(literal(text))
    for low, high in intersect(ranges, ((0, 0x1F), *BEYOND_ASCII)):
        if low <= 0xFFFF:
            options += [f"{literal(chr(92) + 'u')} {digits}" for digits in _hex(low, min(high, 0xFFFF), 4)]
    if intersect(ranges, (_ASTRAL,)) == (_ASTRAL,):
        options.append(rf'"\u005cu" [dD] [89abAB] {HEX}{{2}} "\u005cu" [dD] [c-fC-F] {HEX}{{2}}')
    elif len(ranges) == 1 and ranges[0][0] == ranges[0][1] > 0xFFFF:
        units = chr(ranges[0][0]).encode("utf-16-be").hex()
        options.append(" ".join(literal(f"\\u{u}") for u in (units[:4], units[4:])))
    return options


def _hex(low: int, high: int, size: int) -> list[str]:
    """Return expressions for the numbers of `size` hexadecimal digits from low to high."""
    if size == 0:
        return [""]
    unit = 16 ** (size - 1)
    first, last = low // unit, high // unit
    if first == last:
        return [f"{_digits(first, first)} {rest}".strip() for rest in _hex(low % unit, high % unit, size - 1)]
    out = []
    if low % unit:
        out += [f"{_digits(first, first)} {rest}".strip() for rest in _hex(low % unit, unit - 1, size - 1)]
        first += 1
    upper = []
    if high % unit != unit - 1:
        upper = [f"{_digits(last, last)} {rest}".strip() for rest in _hex(0, high % unit, size - 1)]
        last -= 1
    if first <= last:
        rest = f" {HEX}" * (size - 1)
        out.append(f"{_digits(first, last)}{rest}")
    return out + upper


def _digits(first: int, last: int) -> str:
    members = "".join(f"{d:x}" + (f"{d:X}" if d > 9 else "") for d in range(first, last + 1))
    return literal(members) if len(members) == 1 else f"[{members}]"
