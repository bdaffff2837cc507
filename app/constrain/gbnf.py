"""Read grammars in GBNF (llama.cpp) or EBNF, and write them in XGrammar's EBNF.

Errors found here have a line number; XGrammar's WebAssembly module would abort instead. Rewriting also makes character
classes beyond ASCII work (ebnf.py).
"""

from __future__ import annotations

import re
from math import isinf

from app.constrain.counts import count, hexadecimal
from app.constrain.ebnf import UNICODE, Grammar, Ranges, complement, intersect, normalize
from app.constrain.effort import spend
from app.constrain.gbnf_parts import (
    Class,
    Either,
    Literal,
    Name,
    Part,
    Repeat,
    Rules,
    Sequence,
    names,
    shortest,
)
from app.constrain.gbnf_rules import add_rules

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*+\s*+::=")
# Possessive: nothing in them is tried again, which would take memory for each blank.
_BLANKS = re.compile(r"(?:\s++|#[^\n]*+)*+")
_BLANKS_OF_A_LINE = re.compile(r"(?:[^\S\n]++|#[^\n]*+)*+")
_REPEAT = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_SHORT = {"n": 10, "r": 13, "t": 9, "0": 0, "b": 8, "f": 12, "v": 11, "a": 7}
_LENGTHS = {"x": 2, "u": 4, "U": 8}
MAX_REPEATS = 100_000
MAX_DEPTH = 50  # groups within each other
_ANY = Class(((1, 0xD7FF), (0xE000, 0x10FFFF)))  # any character but NUL


class BadGrammar(Exception):
    """The text is not a valid grammar. The message names the line."""


def add(grammar: Grammar, text: str, root: str = "root") -> str:
    """Add the rules of a grammar, once for each text; return the new name of its root. Raises BadGrammar."""
    key = ("grammar", text, root)
    if key not in grammar.known:
        grammar.known[key] = _added(grammar, _Reader(text).read(root), root)
    return grammar.known[key]


def _added(grammar: Grammar, rules: Rules, root: str) -> str:
    lengths = shortest(rules)
    for name, length in lengths.items():
        if isinf(length):
            raise BadGrammar(f"no text of the rule {name} ever ends; give it an alternative without itself")
    return add_rules(grammar, rules, root, lengths)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._depth = 0
        self._rules: dict[str, Part] = {}
        self._used: dict[str, int] = {}  # name -> where it is first used

    def read(self, root: str) -> Rules:
        """The rules that the root needs."""
        self._blanks()
        while self._at < len(self._text):
            self._rule()
            self._blanks()
        for name, at in self._used.items():
            if name not in self._rules:
                raise self._bad(f"the rule {name} is not defined", at)
        if root not in self._rules:
            raise BadGrammar(f"there is no rule {root}; define it")
        found, todo = {root: self._rules[root]}, [root]
        while todo:
            for name in names(found[todo.pop()]):
                if name not in found:
                    found[name] = self._rules[name]
                    todo.append(name)
        return found

    def _bad(self, what: str, at: int | None = None) -> BadGrammar:
        line = self._text.count("\n", 0, self._at if at is None else at) + 1
        return BadGrammar(f"line {line}: {what}")

    def _blanks(self, lines: bool = True) -> None:
        found = (_BLANKS if lines else _BLANKS_OF_A_LINE).match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _ident(self) -> str | None:
        found = _NAME.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _rule(self) -> None:
        name = self._ident()
        if name is None:
            raise self._bad("expected the name of a rule")
        self._blanks()
        if not self._take("::="):
            raise self._bad(f"expected ::= after {name}")
        if name in self._rules:
            raise self._bad(f"the rule {name} is defined twice")
        self._rules[name] = Literal("")  # while its body is read
        self._rules[name] = self._alternatives(False)

    def _alternatives(self, inside: bool) -> Part:
        options = [self._sequence(inside)]
        while True:
            at = self._at
            self._blanks()  # "|" may be on the next line
            if not self._take("|"):
                self._at = at if not inside else self._at
                return options[0] if len(options) == 1 else Either(tuple(options))
            options.append(self._sequence(inside))

    def _sequence(self, inside: bool) -> Part:
        parts: list[Part] = []
        self._blanks()  # a rule may begin on the next line
        while True:
            if self._rule_begins():
                break
            part = self._element()
            if part is None:
                break
            parts.append(self._repeated(part))
            self._blanks(inside)
            if not inside:
                at = self._at
                self._blanks()
                if self._rule_begins() or self._text[self._at : self._at + 1] in ("", "|", ")"):
                    self._at = at
                    break
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _rule_begins(self) -> bool:
        return _RULE.match(self._text, self._at) is not None

    def _element(self) -> Part | None:
        spend(5)
        if self._take('"'):
            return Literal(self._string('"'))
        if self._take("'"):
            return Literal(self._string("'"))
        if self._take("["):
            return self._class()
        if self._take("("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise self._bad(f"groups are nested more than {MAX_DEPTH} levels deep")
            inner = self._alternatives(True)
            self._depth -= 1
            self._blanks()
            if not self._take(")"):
                raise self._bad("expected )")
            return inner
        if self._take("."):
            return _ANY
        at = self._at
        name = self._ident()
        if name is None:
            if self._at < len(self._text) and self._text[self._at] not in "|)\n":
                raise self._bad(f"{self._text[self._at]!r} is not expected here")
            return None
        self._used.setdefault(name, at)
        return Name(name)

    def _repeated(self, part: Part) -> Part:
        self._blanks(False)
        for sign, (low, high) in _SIGNS.items():
            if self._take(sign):
                return self._times(part, low, high, sign)
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return part
        low = count(found[1]) or 0
        high = count(found[3]) if found[3] else None if found[2] else low
        if max(low, high or 0) > MAX_REPEATS or (high is not None and high < low):
            raise self._bad(f"a repetition must be {{n}}, {{n,}} or {{n,m}} with n <= m <= {MAX_REPEATS}")
        self._at = found.end()
        return self._times(part, low, high)

    @staticmethod
    def _times(part: Part, low: int, high: int | None, sign: str = "") -> Part:
        empty = isinstance(part, Literal) and not part.text
        return part if empty else Repeat(part, low, high, sign)

    def _string(self, quote: str) -> str:
        out = []
        while not self._take(quote):
            out.append(chr(self._char()))
        return "".join(out)

    def _char(self) -> int:
        spend(1)
        char = self._text[self._at : self._at + 1]
        if not char or char == "\n":
            raise self._bad("unterminated string or character class")
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._text[self._at : self._at + 1]
        self._at += 1
        if kind in _SHORT:
            return _SHORT[kind]
        if kind in _LENGTHS:
            digits = self._text[self._at : self._at + _LENGTHS[kind]]
            self._at += len(digits)
            code = hexadecimal(digits)
            if code is None or code > 0x10FFFF:
                raise self._bad("an escape must have the hexadecimal digits of a character")
            return code
        if not kind or kind.isalnum():
            raise self._bad(f"unknown escape \\{kind}")
        return ord(kind)

    def _class(self) -> Part:
        negative = self._take("^")
        found = []
        while not self._take("]"):
            low = self._char()
            high = low
            if self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                high = self._char()
            if high < low:
                raise self._bad("a range of characters must go from lower to higher")
            found.append((low, high))
        ranges: Ranges = normalize(found)
        ranges = intersect(complement(ranges) if negative else ranges, UNICODE)
        if not ranges:
            raise self._bad("a class without characters")
        return Class(ranges)
