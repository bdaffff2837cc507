"""Estimate how long the mask engine takes to compile a grammar, before it is given to it: nothing can interrupt it.

The weights are milliseconds for a vocabulary of 150,000 tokens, measured with XGrammar 0.1.27 and rounded up.
"""

import re
from functools import lru_cache

MAX_COST = 4000.0
SURE_COST = 1800.0  # from which a grammar is tried in a worker that can be ended
RULE, CLASS, LITERAL, REPEAT = 0.5, 0.06, 0.03, 8.0
WIDE = 15.0  # a group of alternatives with characters beyond ASCII, which many tokens begin with
WORDS = 6.0  # a class with most small letters: it matches many tokens to their ends
MOST_LETTERS = 20
UNROLLED = 128  # as many repetitions each cost as much as the repeated part

_BEYOND_ASCII = re.compile(r"\\u00[89a-f]")
_CODES = re.compile(r"(\\u[0-9a-f]{4}|.)(?:-(\\u[0-9a-f]{4}|.))?", re.S)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|[()]|::=|(?<!\w)[A-Za-z]\w*')
_LEAF = re.compile(r"^(\w+) ::= (\[(?:\\.|[^\]\\])*\])$", re.M)  # a rule that is a class


def cost(text: str) -> float:
    """The cost of a grammar in XGrammar's EBNF. Repetitions within each other multiply."""
    leaves = {name: _of_class(body) for name, body in _LEAF.findall(text)}
    total = last = 0.0  # of the open group, and of its last part
    called = last_called = 0.0  # of the rules that they call: only a repetition costs it again
    wide = False  # the group has characters beyond ASCII
    groups: list[tuple[float, float, bool]] = []
    for token in _TOKEN.finditer(text):
        kind = token[0][0]
        if kind.isalpha():
            last, last_called = 0.0, leaves.get(token[0], 0.0)
            called += last_called
        elif kind == "(":
            groups.append((total, called, wide))
            total = last = called = last_called = 0.0
            wide = False
        elif kind == ")":
            before, others, wide = groups.pop() if groups else (0.0, 0.0, False)
            last, last_called = total, called
            total, called = total + before, called + others
        elif kind == "{":
            times = min(max(int(token[1]), int(token[2] or 0)), UNROLLED)
            repeated = REPEAT + (last + last_called) * times
            total, called = total - last + repeated, called - last_called
            last, last_called = repeated, 0.0
        else:
            last, last_called = RULE if kind == ":" else _of_class(token[0]) if kind == "[" else LITERAL, 0.0
            if kind == "[" and not wide and _BEYOND_ASCII.search(token[0]):
                last, wide = last + WIDE, True
            if kind == ":":
                wide, called = False, 0.0
            total += last
    return total


def names(text: str) -> set[str]:
    """The rules that an expression names."""
    return {token[0] for token in _TOKEN.finditer(text) if token[0][0].isalpha()}


@lru_cache(maxsize=1024)
def class_cost(options: tuple[str, ...]) -> float:
    """The cost of one character that is written in one of these ways."""
    return cost(f"({' | '.join(options)})")


@lru_cache(maxsize=1024)
def _of_class(text: str) -> float:
    """The cost of a class: more with each kind of characters that words are made of."""
    codes = set[int]()
    for member in _CODES.finditer(text[1:-1]):
        low, high = _code(member[1]), _code(member[2] or member[1])
        codes |= set(range(low, min(high, 0x7F) + 1))
    small, capital = (len(codes & set(range(ord(first), ord(first) + 26))) for first in "aA")
    if small < MOST_LETTERS:
        return CLASS
    capitals, blank = capital >= MOST_LETTERS, 0x20 in codes
    others = len(codes) - small - capital >= MOST_LETTERS
    return WORDS + 2 * capitals + WORDS * blank + 8 * (blank and capitals) + 5 * (blank and others)


def _code(text: str) -> int:
    return int(text[2:], 16) if len(text) > 1 else ord(text)
