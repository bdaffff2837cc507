"""Write grammars in XGrammar's EBNF.

In version 0.1.27, a character class or range beyond ASCII matches single bytes instead of the characters it names.
So classes are written as UTF-8: the ASCII part as a class, the rest as sequences of byte ranges.

- A range of one byte would be read as a character again. It gets FILLER as a second member, a byte that no UTF-8 text
  contains; the vocabulary given to XGrammar never allows tokens with that byte.
- Negated classes are written out too: "^" would match bytes that are not a character.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from app.constrain import effort
from app.constrain.cost import MAX_COST, SURE_COST, cost, names
from py_engine.errors import WispError

_NOT_PLAIN = re.compile(r'["\\\x00-\x1f]|[^\x00-\x7e]')
Ranges = tuple[tuple[int, int], ...]  # code points, sorted, disjoint, inclusive

FILLER = 0xFF
MAX_EXACT = 220_000  # characters of an exact grammar: 0.7 s to compile for bytes
UNICODE: Ranges = ((0, 0xD7FF), (0xE000, 0x10FFFF))
BEYOND_ASCII: Ranges = ((0x80, 0xD7FF), (0xE000, 0x10FFFF))


class GrammarText(str):
    """A grammar in XGrammar's EBNF. `unsure`: no estimate says that the mask engine is quick with it.

    `exact`: the grammar of the form, if this one is looser (app/answers/string_limits.js).
    """

    unsure, exact = False, ""


class Grammar:
    """Named rules. A name that is taken gets a number."""

    def __init__(self, small: bool = False) -> None:
        """`small`: leave out some valid texts where that saves rules."""
        effort.begin()
        self.small, self.could_be_smaller = small, False
        self.unsure = False  # whether to try the mask engine with it
        self.rules: dict[str, str] = {}
        self._by_body: dict[str, str] = {}
        self._count: dict[str, int] = {}
        self.known: dict[object, str] = {}  # key -> the rule that the caller added under it
        self.looser: dict[str, str] = {}  # rule -> the body that it has in a looser grammar
        self.counts_limits = False  # whether there may be a looser grammar
        self.ambiguous = False  # a text may begin two values at once: then letters that fit say nothing of other tokens

    def name(self, preferred: str) -> str:
        """Reserve a rule name: the preferred one, with a number if it is taken."""
        base = "".join(c if c.isascii() and c.isalnum() else "_" for c in preferred)[:40] or "r"
        if not base[0].isalpha():
            base = f"r_{base}"
        number = self._count.get(base, 0)
        self._count[base] = number + 1
        found = base if not number else f"{base}_{number}"
        if found in self.rules:
            return self.name(preferred)
        self.rules[found] = '""'
        return found

    def define(self, name: str, body: str) -> str:
        """Set the body of a rule; return its name."""
        effort.spend(len(body) >> 2)
        self.rules[name] = body
        return name

    def add(self, preferred: str, body: str) -> str:
        """Return a rule with that body; equal bodies share a rule."""
        if body not in self._by_body:
            self._by_body[body] = self.define(self.name(preferred), body)
        return self._by_body[body]

    def shared(self, preferred: str, body: Callable[[str], str]) -> str:
        """Return the rule that all share, added at its first use. `body` gets its name, so it may be recursive."""
        key = "shared", preferred  # another rule may have the name
        if key not in self.known:
            name = self.known[key] = self.name(preferred)
            self.define(name, body(name))
        return self.known[key]

    def attempt(self, make: Callable[[], str], most: float) -> tuple[str, float] | None:
        """The rule that `make` adds, and its cost with all that it needs; from `most` on None, and nothing is added."""
        count = len(self.rules)
        rule = make()
        spent = cost(_text("root", {name: self.rules[name] for name in list(self.rules)[count:]}))
        if spent < most:
            return rule, spent
        self.drop(count)
        return None

    def drop(self, count: int) -> None:
        """Remove all rules but the first `count`."""
        for name in list(self.rules)[count:]:
            del self.rules[name]
        self._by_body = {body: name for body, name in self._by_body.items() if name in self.rules}
        self.known = {key: name for key, name in self.known.items() if name in self.rules}
        self.looser = {name: body for name, body in self.looser.items() if name in self.rules}

    def is_quick(self, roots: Iterable[str]) -> bool:
        """Whether the mask engine is surely quick with all that these rules refer to."""
        found = _reachable({**self.rules, **self.looser}, " ".join(roots))
        return not self.unsure and cost(_text("root", found)) <= SURE_COST

    def text(self, root: str) -> GrammarText:
        """Return the grammar's text, with `root` as its root rule. WispError where it would take long to compile."""
        text = GrammarText(_text(root, self.rules))
        if self.looser and not self.ambiguous:
            exact, text = text, GrammarText(_text(root, _reachable({**self.rules, **self.looser}, root)))
            text.exact = str(exact)
        spent = cost(text)
        text.unsure = self.unsure or spent > SURE_COST
        if spent > MAX_COST or len(text.exact) > MAX_EXACT:
            raise WispError(
                "The form of the answer is too complex to enforce. Use fewer or shorter repetitions, smaller character "
                "classes, fewer tools or smaller schemas.",
                "unsupported_parameter",
            )
        return text


def quick_rules(make: Callable[[Grammar], list[str]]) -> tuple[Grammar, list[str]]:
    """A grammar with the rules that `make` adds, and those that it returns: small ones if others are not quick."""
    grammar = Grammar()
    made = make(grammar)
    if grammar.could_be_smaller and not grammar.is_quick(made):
        grammar = Grammar(small=True)
        made = make(grammar)
    return grammar, made


def _text(root: str, rules: Mapping[str, str]) -> str:
    lines = [f"root ::= {root}"] if root != "root" else []
    return "\n".join([*lines, *(f"{name} ::= {body}" for name, body in rules.items())])


def _reachable(rules: dict[str, str], root: str) -> dict[str, str]:
    """The rules that `root` refers to, directly or not."""
    found, todo = set[str](), [root]
    while todo:
        new = (names(todo.pop()) & rules.keys()) - found
        found |= new
        todo += [rules[name] for name in new]
    return {name: body for name, body in rules.items() if name in found}


def literal(text: str) -> str:
    """Match a text verbatim."""
    return f'"{_NOT_PLAIN.sub(_escaped, text)}"'


def text_until(stop: str) -> str:
    """Match any text up to and with `stop`."""
    return f"TagDispatch(stop_eos=false, stop_str=({literal(stop)}), loop_after_dispatch=false)"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def either(options: Iterable[str]) -> str:
    """Match one of the options; several are put in parentheses."""
    found = list(dict.fromkeys(options))
    return found[0] if len(found) == 1 else f"({' | '.join(found)})"


@lru_cache(maxsize=1024)
def characters(ranges: Ranges) -> str:
    """Match one character of a non-empty set."""
    return either(character_options(ranges))


def character_options(ranges: Ranges) -> list[str]:
    """Return the options that together match one character of a set."""
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return [literal(chr(ranges[0][0]))]
    low = [(a, min(b, 0x7F)) for a, b in ranges if a < 0x80]
    options = [f"[{_members(tuple(low))}]"] if low else []
    return options + [s for a, b in intersect(ranges, BEYOND_ASCII) for s in _utf8(a, b)]


def _members(ranges: Ranges) -> str:
    return "".join(_member(a) if a == b else f"{_member(a)}-{_member(b)}" for a, b in ranges)


def _member(code: int) -> str:
    char = chr(code)
    return char if code < 0x80 and char.isalnum() else f"\\u{code:04x}"


def _utf8(low: int, high: int) -> list[str]:
    """Return sequences of byte ranges for the characters from low to high, all beyond ASCII."""
    for edge in (0x7FF, 0xFFFF):
        if low <= edge < high:
            return _utf8(low, edge) + _utf8(edge + 1, high)
    first, last = chr(low).encode(), chr(high).encode()
    return [" ".join(_byte(a, b) for a, b in part) for part in _split(list(first), list(last))]


def _split(first: list[int], last: list[int]) -> list[list[tuple[int, int]]]:
    """Return the byte strings from first to last, of equal length, as products of ranges."""
    if len(first) == 1:
        return [[(first[0], last[0])]]
    (a, *rest_a), (b, *rest_b) = first, last
    least, most = [0x80] * len(rest_a), [0xBF] * len(rest_a)
    if a == b:
        return [[(a, a), *tail] for tail in _split(rest_a, rest_b)]
    out = []
    if rest_a != least:
        out += [[(a, a), *tail] for tail in _split(rest_a, most)]
        a += 1
    upper = [] if rest_b == most else [[(b, b), *tail] for tail in _split(least, rest_b)]
    if upper:
        b -= 1
    if a <= b:
        out.append([(a, b), *((0x80, 0xBF) for _ in rest_a)])
    return out + upper


def _byte(low: int, high: int) -> str:
    if low == high:
        return f"[\\u{low:04x}\\u{FILLER:04x}]"
    return f"[\\u{low:04x}-\\u{high:04x}]"


# -- sets of code points


def normalize(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sort ranges and join neighbours."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(r for r in ranges if r[0] <= r[1]):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def complement(ranges: Ranges) -> Ranges:
    """Return all other code points, surrogates included."""
    out, at = [], 0
    for low, high in ranges:
        if at < low:
            out.append((at, low - 1))
        at = high + 1
    if at <= 0x10FFFF:
        out.append((at, 0x10FFFF))
    return tuple(out)


def intersect(a: Ranges, b: Ranges) -> Ranges:
    """Return the code points in both."""
    out = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            out.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


ANY = characters(((1, 0xD7FF), (0xE000, 0x10FFFF)))  # any character but NUL
