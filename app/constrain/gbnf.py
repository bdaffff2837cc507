"""Read grammars in GBNF (llama.cpp) or EBNF, and write them in XGrammar's EBNF.

Errors found here have a line number; XGrammar's WebAssembly module would abort instead. Rewriting also makes character
classes beyond ASCII work (ebnf.py).
"""

from __future__ import annotations

import re

from app.constrain.counts import count
from app.constrain.ebnf import (
    ANY,
    UNICODE,
    Grammar,
    Ranges,
    characters,
    complement,
    either,
    intersect,
    literal,
    normalize,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_REPEAT = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
_SHORT = {"n": 10, "r": 13, "t": 9, "0": 0, "b": 8, "f": 12, "v": 11, "a": 7}
_LENGTHS = {"x": 2, "u": 4, "U": 8}
MAX_REPEATS = 100_000
MAX_DEPTH = 50  # groups within each other


class BadGrammar(Exception):
    """The text is not a valid grammar. The message names the line."""


def add(grammar: Grammar, text: str, root: str = "root") -> str:
    """Add the rules of a grammar; return the new name of its root. Raises BadGrammar."""
    return _Reader(grammar, text).read(root)


class _Reader:
    def __init__(self, grammar: Grammar, text: str) -> None:
        self._grammar, self._text, self._at = grammar, text, 0
        self._depth = 0
        self._names: dict[str, str] = {}  # name in the text -> name in the grammar
        self._defined: set[str] = set()
        self._used: dict[str, int] = {}  # name -> where it is first used

    def read(self, root: str) -> str:
        self._blanks()
        while self._at < len(self._text):
            self._rule()
            self._blanks()
        for name, at in self._used.items():
            if name not in self._defined:
                raise self._bad(f"the rule {name} is not defined", at)
        if root not in self._defined:
            raise BadGrammar(f"there is no rule {root}; define it")
        return self._names[root]

    def _bad(self, what: str, at: int | None = None) -> BadGrammar:
        line = self._text.count("\n", 0, self._at if at is None else at) + 1
        return BadGrammar(f"line {line}: {what}")

    def _blanks(self, lines: bool = True) -> None:
        blank = re.compile(r"(?:\s|#[^\n]*)*" if lines else r"(?:[^\S\n]|#[^\n]*)*")
        found = blank.match(self._text, self._at)
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
        if name in self._defined:
            raise self._bad(f"the rule {name} is defined twice")
        self._defined.add(name)
        own = self._renamed(name)
        self._grammar.define(own, self._alternatives(False))

    def _renamed(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = self._grammar.name(f"u_{name}")
        return self._names[name]

    def _alternatives(self, inside: bool) -> str:
        options = [self._sequence(inside)]
        while True:
            at = self._at
            self._blanks()  # "|" may be on the next line
            if not self._take("|"):
                self._at = at if not inside else self._at
                return either(options)
            options.append(self._sequence(inside))

    def _sequence(self, inside: bool) -> str:
        parts = []
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
        return " ".join(parts) or '""'

    def _rule_begins(self) -> bool:
        return re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\s*::=").match(self._text, self._at) is not None

    def _element(self) -> str | None:
        if self._take('"'):
            return literal(self._string('"'))
        if self._take("'"):
            return literal(self._string("'"))
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
            return f"({inner})"
        if self._take("."):
            return ANY
        at = self._at
        name = self._ident()
        if name is None:
            if self._at < len(self._text) and self._text[self._at] not in "|)\n":
                raise self._bad(f"{self._text[self._at]!r} is not expected here")
            return None
        self._used.setdefault(name, at)
        return self._renamed(name)

    def _repeated(self, part: str) -> str:
        self._blanks(False)
        for sign in "*+?":
            if self._take(sign):
                return f"({part}){sign}"
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return part
        low = count(found[1]) or 0
        high = count(found[3]) if found[3] else None if found[2] else low
        if max(low, high or 0) > MAX_REPEATS or (high is not None and high < low):
            raise self._bad(f"a repetition must be {{n}}, {{n,}} or {{n,m}} with n <= m <= {MAX_REPEATS}")
        self._at = found.end()
        if high == 0:
            return '""'
        return f"({part}){{{low},{'' if high is None else high}}}"

    def _string(self, quote: str) -> str:
        out = []
        while not self._take(quote):
            out.append(chr(self._char()))
        return "".join(out)

    def _char(self) -> int:
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
            try:
                return ord(chr(int(digits, 16)))
            except (ValueError, OverflowError):
                raise self._bad("an escape must have hexadecimal digits") from None
        if not kind or kind.isalnum():
            raise self._bad(f"unknown escape \\{kind}")
        return ord(kind)

    def _class(self) -> str:
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
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return literal(chr(ranges[0][0]))
        return characters(ranges)
