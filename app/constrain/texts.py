"""Automata and JSON strings as rules of a grammar."""

from app.constrain import automaton
from app.constrain.automaton import Dfa, Edges
from app.constrain.ebnf import (
    BEYOND_ASCII,
    UNICODE,
    Grammar,
    Ranges,
    characters,
    complement,
    either,
    intersect,
    literal,
)
from app.constrain.shapes import Text

_SHORT = {0x22: '\\"', 0x5C: "\\\\", 0x08: "\\b", 0x0C: "\\f", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_DIRECT = intersect(complement(((0, 0x1F), (0x22, 0x22), (0x5C, 0x5C))), UNICODE)  # may stand in a JSON string as it is
_ASTRAL = (0x10000, 0x10FFFF)
HEX = "[0-9a-fA-F]"
ANY_CHARACTER = (
    r'([^\u0000-\u001f\u0022\u005c] | "\u005c" ([\u0022\u005c/bfnrt] | "u" ([0-9a-cefA-CEF] [0-9a-fA-F]{3} | '
    r'[dD] [0-7] [0-9a-fA-F]{2} | [dD] [89abAB] [0-9a-fA-F]{2} "\u005cu" [dD] [c-fC-F] [0-9a-fA-F]{2})))'
)


def json_text(grammar: Grammar, text: Text) -> str:
    """A JSON string with its quotes: the body of a rule."""
    quote = literal('"')
    if text.dfa is None:
        char = grammar.add("char", ANY_CHARACTER)
        return f"{quote} {repeated(char, text.low, text.high)} {quote}"
    return f"{quote} {automaton_rule(grammar, text.exact(), True)} {quote}"


def repeated(what: str, low: int, high: int | None) -> str:
    """low to high times."""
    if high is None:
        return f"{what}*" if low == 0 else f"{what}{{{low},}}" if low > 1 else f"{what}+"
    if (low, high) == (1, 1):
        return what
    return f"{what}{{{low},{high}}}" if high else '""'


def automaton_rule(grammar: Grammar, dfa: Dfa, escaped: bool) -> str:
    """A rule for the texts of an automaton; `escaped`: as they are written in a JSON string."""
    return _Rules(grammar, dfa, escaped).rule(0)


class _Rules:
    """One rule for each state with several ways in; the others become part of the rule before them."""

    def __init__(self, grammar: Grammar, dfa: Dfa, escaped: bool) -> None:
        self._grammar, self._dfa, self._escaped = grammar, dfa, escaped
        self._names: dict[int, str] = {}
        self._ways_in = [0] * len(dfa.edges)
        for state, edges in enumerate(dfa.edges):
            for target in {t for _, _, t in edges if t != state}:
                self._ways_in[target] += 1

    def rule(self, start: int) -> str:
        """The rule of a state; makes the ones it leads to."""
        self._names[start] = self._grammar.name("t")
        todo = [start]
        while todo:
            state = todo.pop()
            self._grammar.define(self._names[state], self._body(state, todo))
        return self._names[start]

    def _body(self, state: int, todo: list[int]) -> str:
        edges = self._dfa.edges[state]
        loop = automaton.on(edges, state)
        options = []
        for target in dict.fromkeys(t for _, _, t in edges if t != state):
            chain = [self._char(edges, target)]
            at = target
            while (then := self._only_way(at)) is not None:
                chain.append(self._char(self._dfa.edges[at], then))
                at = then
            if self._dfa.edges[at]:
                if at not in self._names:
                    self._names[at] = self._grammar.name("t")
                    todo.append(at)
                chain.append(self._names[at])
            options.append(" ".join(chain))
        if state in self._dfa.accepting or not options:
            options.append('""')
        body = either(options)
        return f"{self._set(loop)}* {body}" if loop else body

    def _only_way(self, state: int) -> int | None:
        """Where a state without a choice leads, if nothing else leads into that state."""
        if state in self._dfa.accepting or self._ways_in[state] != 1 or state in self._names:
            return None
        targets = {t for _, _, t in self._dfa.edges[state]}
        if len(targets) != 1 or state in targets:
            return None
        return targets.pop()

    def _char(self, edges: Edges, target: int) -> str:
        return self._set(automaton.on(edges, target))

    def _set(self, ranges: Ranges) -> str:
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not self._escaped:
            return literal(chr(ranges[0][0]))
        if not self._escaped:
            return characters(ranges)
        options = escaped_options(ranges)
        if len(options) == 1:
            return options[0]
        return self._grammar.add("c", either(options))


def escaped_options(ranges: Ranges) -> list[str]:
    """The ways to write one character of a set inside a JSON string."""
    options = []
    direct = intersect(ranges, _DIRECT)
    if len(direct) == 1 and direct[0][0] == direct[0][1]:
        options.append(literal(chr(direct[0][0])))
    elif direct:
        options.append(characters(direct))
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
    """Numbers of `size` hexadecimal digits from low to high."""
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
        rest = f" {HEX}{{{size - 1}}}" if size > 2 else f" {HEX}" if size == 2 else ""
        out.append(f"{_digits(first, last)}{rest}")
    return out + upper


def _digits(first: int, last: int) -> str:
    members = "".join(f"{d:x}" + (f"{d:X}" if d > 9 else "") for d in range(first, last + 1))
    return literal(members) if len(members) == 1 else f"[{members}]"
