"""Regular expressions of ECMA-262 with the u flag, as in JSON schemas, compiled to automata.

Back-references (which no finite automaton has), lookaround and word boundaries raise Unsupported.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain, groupby

from app.constrain.automaton import Dfa, Nfa
from app.constrain.counts import count, hexadecimal
from app.constrain.ebnf import UNICODE, Ranges, complement, intersect, normalize
from app.constrain.effort import spend

_DIGIT: Ranges = ((0x30, 0x39),)
_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Ranges = normalize(
    [(9, 13), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
     (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]
)  # fmt: skip
_NEWLINE: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "0": 0}
MAX_REPEATS = 2000
MAX_DEPTH = 50  # groups within each other
_CATEGORIES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Number": "N", "Decimal_Number": "Nd",
    "digit": "Nd",
    "Punctuation": "P", "punct": "P", "Symbol": "S", "Separator": "Z", "Space_Separator": "Zs", "Mark": "M",
    "Other": "C", "Control": "Cc",
}  # fmt: skip


class BadPattern(Exception):
    """The pattern is not a valid regular expression."""


class Unsupported(Exception):
    """The pattern has a feature that is not supported; the message names it."""


def search(pattern: str) -> Dfa:
    """Accept texts that contain a match, as the keyword `pattern` of a schema means it."""
    return _compiled(pattern, True)


def fullmatch(pattern: str) -> Dfa:
    """Accept texts that the pattern matches as a whole."""
    return _compiled(pattern, False)


@lru_cache(maxsize=256)
def _compiled(pattern: str, anywhere: bool) -> Dfa:
    parser = _Parser(pattern)
    nfa = parser.nfa
    start, end = parser.whole()
    first, last = nfa.add_state(), nfa.add_state()
    nfa.epsilon[first].append(start)
    nfa.epsilon[end].append(last)
    if anywhere:
        before, after = nfa.add_state(), nfa.add_state()
        nfa.edges[before] = [(a, b, before) for a, b in UNICODE]
        nfa.edges[after] = [(a, b, after) for a, b in UNICODE]
        nfa.epsilon[before].append(first)
        nfa.epsilon[last].append(after)
        # "^" matches only at `outset`, where nothing came before; "$" only where nothing follows
        outset = nfa.add_state()
        nfa.epsilon[outset].append(before)
        final = nfa.add_state()
        nfa.epsilon[after].append(final)
        return _anchored(parser, outset, final)
    outset, final = nfa.add_state(), nfa.add_state()
    nfa.epsilon[outset].append(first)
    nfa.epsilon[last].append(final)
    return _anchored(parser, outset, final)


def _anchored(parser: _Parser, outset: int, final: int) -> Dfa:
    """Resolve "^" and "$" with four copies of the automaton, one for each (read something?, passed a "$"?).

    "^" is an epsilon transition only where nothing has been read; after a "$", no character may follow.
    """
    nfa, size = parser.nfa, len(parser.nfa.edges)
    if not parser.starts and not parser.ends:
        return nfa.determinize(outset, final)
    layered = Nfa()
    for _ in range(4 * size):  # four copies of the states
        layered.add_state()

    def copy(state: int, read: int, closed: int) -> int:
        return state + size * (read + 2 * closed)

    for read in (0, 1):
        for closed in (0, 1):
            for s in range(size):
                at = copy(s, read, closed)
                layered.epsilon[at] = [copy(t, read, closed) for t in nfa.epsilon[s]]
                if not closed:
                    layered.edges[at] = [(a, b, copy(t, 1, 0)) for a, b, t in nfa.edges[s]]
                if s in parser.starts and not read:
                    layered.epsilon[at].append(copy(parser.starts[s], read, closed))
                if s in parser.ends:
                    layered.epsilon[at].append(copy(parser.ends[s], read, 1))
    end = layered.add_state()
    for read in (0, 1):
        for closed in (0, 1):
            layered.epsilon[copy(final, read, closed)].append(end)
    return layered.determinize(copy(outset, 0, 0), end)


class _Parser:
    """A recursive descent parser. Each method adds states and returns (start, end) of its part."""

    def __init__(self, pattern: str) -> None:
        self.nfa = Nfa()
        self.starts: dict[int, int] = {}  # state before a "^" -> state after it
        self.ends: dict[int, int] = {}
        self._text, self._at = pattern, 0
        self._depth = 0

    def whole(self) -> tuple[int, int]:
        part = self._alternatives()
        if self._at < len(self._text):
            raise BadPattern("unmatched )")
        return part

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _alternatives(self) -> tuple[int, int]:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        if len(parts) == 1:
            return parts[0]
        start, end = self.nfa.add_state(), self.nfa.add_state()
        for a, b in parts:
            self.nfa.epsilon[start].append(a)
            self.nfa.epsilon[b].append(end)
        return start, end

    def _sequence(self) -> tuple[int, int]:
        start = end = self.nfa.add_state()
        while self._peek() not in ("", "|", ")"):
            a, b = self._quantified()
            self.nfa.epsilon[end].append(a)
            end = b
        return start, end

    def _quantified(self) -> tuple[int, int]:
        start, anchors = self._at, len(self.starts) + len(self.ends)
        part = self._atom()
        atom = self._text[start : self._at]
        bounds = self._bounds()
        if bounds is None:
            return part
        if len(self.starts) + len(self.ends) > anchors and atom in ("^", "$"):
            raise BadPattern("a quantifier with nothing to repeat")
        self._take("?")  # a lazy quantifier matches the same texts
        return self._repeated(part, atom, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : close].partition(",")
        least, most = count(low), count(high) if high else None if comma else count(low)
        if close < 0 or least is None or (high and most is None):
            raise BadPattern("a { that does not begin a repetition such as {2,3}")
        self._at = close + 1
        if most is not None and most < least:
            raise BadPattern("a repetition {n,m} with n > m")
        if max(least, most or 0) > MAX_REPEATS:
            raise Unsupported(f"more than {MAX_REPEATS} repetitions")
        return least, most

    def _repeated(self, part: tuple[int, int], atom: str, low: int, high: int | None) -> tuple[int, int]:
        nfa = self.nfa

        def again() -> tuple[int, int]:
            spend(len(atom))
            at, self._text, self._at, text = self._at, atom, 0, self._text
            try:
                return self._atom()
            finally:
                self._text, self._at = text, at

        start = end = nfa.add_state()
        exits = []
        unused: list[tuple[int, int]] = [part]
        for i in range(max(low, high or 0)):
            if i >= low:
                exits.append(end)
            a, b = unused.pop() if unused else again()
            nfa.epsilon[end].append(a)
            end = b
        if high is None:
            a, b = unused.pop() if unused else again()
            around = nfa.add_state()
            nfa.epsilon[end].append(around)
            nfa.epsilon[around].append(a)
            nfa.epsilon[b].append(around)
            end = around
        out = nfa.add_state()
        for state in [*exits, end]:
            nfa.epsilon[state].append(out)
        return start, out

    def _set(self, ranges: Ranges) -> tuple[int, int]:
        spend(2 * len(ranges))
        start, end = self.nfa.add_state(), self.nfa.add_state()
        self.nfa.add_edges(start, intersect(ranges, UNICODE), end)
        return start, end

    def _atom(self) -> tuple[int, int]:
        if self._take("^"):
            a, b = self.nfa.add_state(), self.nfa.add_state()
            self.starts[a] = b
            return a, b
        if self._take("$"):
            a, b = self.nfa.add_state(), self.nfa.add_state()
            self.ends[a] = b
            return a, b
        if self._take("."):
            return self._set(complement(_NEWLINE))
        if self._take("("):
            return self._group()
        if self._take("["):
            return self._set(self._class())
        if self._take("\\"):
            return self._set(self._escape(False))
        char = self._peek()
        if char in "*+?{":
            raise BadPattern("a quantifier with nothing to repeat")
        self._at += 1
        return self._set(((ord(char), ord(char)),))

    def _group(self) -> tuple[int, int]:
        if self._take("?"):
            if self._take("<") and self._peek() not in ("=", "!"):
                close = self._text.find(">", self._at)
                if close < 0:
                    raise BadPattern("a group name without its >")
                self._at = close + 1
            elif not self._take(":"):
                raise Unsupported("lookaround or flags")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unsupported(f"groups within each other more than {MAX_DEPTH} levels deep")
        part = self._alternatives()
        self._depth -= 1
        if not self._take(")"):
            raise BadPattern("unmatched (")
        return part

    def _class(self) -> Ranges:
        negative = self._take("^")
        found: list[tuple[int, int]] = []
        while not self._take("]"):
            first = self._member()
            spend(len(first))
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._member()
                if len(first) != 1 or len(last) != 1 or first[0][0] != first[0][1] or last[0][0] != last[0][1]:
                    raise BadPattern("a range whose ends are not single characters")
                if last[0][0] < first[0][0]:
                    raise BadPattern("a range from a higher to a lower character")
                found.append((first[0][0], last[0][0]))
            else:
                found += first
        ranges = normalize(found)
        return complement(ranges) if negative else ranges

    def _member(self) -> Ranges:
        char = self._peek()
        if not char:
            raise BadPattern("unmatched [")
        self._at += 1
        return self._escape(True) if char == "\\" else ((ord(char), ord(char)),)

    def _escape(self, in_class: bool) -> Ranges:
        char = self._peek()
        self._at += 1
        if not char:
            raise BadPattern("a \\ at its end")
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else complement(ranges)
        if char in _CONTROLS and not (char == "0" and self._peek().isdigit()):
            return ((_CONTROLS[char],) * 2,)
        if char in "pP":
            return self._property(char == "P")
        if char in "bB" and not (in_class and char == "b"):
            raise Unsupported("word boundaries")
        if char == "b":
            return ((8, 8),)
        if char.isdigit() or char == "k":
            raise Unsupported("back-references")
        if char == "c":
            letter = self._peek()
            if not (letter.isascii() and letter.isalpha()):
                raise BadPattern("\\c without a letter")
            self._at += 1
            return ((ord(letter) % 32,) * 2,)
        if char in "xu":
            code = self._hex(char)
            return ((code, code),)
        if char.isascii() and char.isalpha():
            raise BadPattern(f"the unknown escape \\{char}")
        return ((ord(char),) * 2,)

    def _hex(self, kind: str) -> int:
        if kind == "u" and self._take("{"):
            close = self._text.find("}", self._at)
            if close < 0:
                raise BadPattern("\\u{ without its }")
            digits, self._at = self._text[self._at : close], close + 1
        else:
            size = 2 if kind == "x" else 4
            digits = self._text[self._at : self._at + size]
            self._at += size
            if len(digits) < size:
                raise BadPattern("an escape with too few digits")
        code = hexadecimal(digits)
        if code is None:
            raise BadPattern("an escape without hexadecimal digits")
        if 0xD800 <= code < 0xDC00 and self._take("\\u"):
            low = self._hex("u")
            if not 0xDC00 <= low < 0xE000:
                raise BadPattern("half of a surrogate pair")
            return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        if code > 0x10FFFF:
            raise BadPattern("an escape beyond U+10FFFF")
        return code

    def _property(self, negative: bool) -> Ranges:
        close = self._text.find("}", self._at)
        if self._peek() != "{" or close < 0:
            raise BadPattern("\\p without {name}")
        name, self._at = self._text[self._at + 1 : close], close + 1
        key, _, value = name.partition("=")
        if value and key in ("General_Category", "gc"):
            name = value
        ranges = _category(_CATEGORIES.get(name, name))
        spend(len(ranges))
        return complement(ranges) if negative else ranges


@lru_cache(maxsize=32)
def _category(name: str) -> Ranges:
    """Return the characters of a general category, such as L or Lu."""
    if name in ("ASCII", "Any"):
        return ((0, 0x7F if name == "ASCII" else 0x10FFFF),)
    known = {"L", "M", "N", "P", "S", "Z", "C"}
    if name[:1] not in known or len(name) > 2 or (len(name) == 2 and not name[1].islower()):
        raise Unsupported(f"the property {name}")
    found = [ranges for category, ranges in _all_categories().items() if category.startswith(name)]
    if not found:
        raise Unsupported(f"the property {name}")
    return normalize(chain(*found))


@lru_cache(maxsize=1)
def _all_categories() -> dict[str, list[tuple[int, int]]]:
    """The characters of each general category. All at once: looking at every character takes a while."""
    from unicodedata import category

    found: dict[str, list[tuple[int, int]]] = {}
    spans = (
        (0, 0x40000),
        (0x40000, 0x40001),
        (0xE0000, 0xE1000),
        (0xF0000, 0xF0001),
        (0xFFFFE, 0x100001),
        (0x10FFFE, 0x110000),
    )
    for start, end in spans:
        at = start
        for name, run in groupby(map(category, map(chr, range(start, end)))):
            size = sum(1 for _ in run)
            found.setdefault(name, []).append((at, at + size - 1))
            at += size
    # planes without characters, or with private ones only: as their first character
    found["Cn"] += [(0x40001, 0xDFFFF), (0xE1000, 0xEFFFF)]
    found["Co"] += [(0xF0001, 0xFFFFD), (0x100001, 0x10FFFD)]
    return found
