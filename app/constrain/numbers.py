"""Sets of JSON numbers as automata over their decimal texts, without rounding.

A decimal here is a number without an exponent. Bounds, multiples and integers are sets of decimals, so that their
complements stay exact. Only an unconstrained number may have an exponent.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal
from functools import lru_cache

from app.constrain import regex
from app.constrain.automaton import Dfa, concatenation, difference, intersection, minimize, of_words, union
from app.constrain.effort import TooComplex, spend

_DECIMAL = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?"
_EXACT = Context(prec=10_000)
MAX_REMAINDERS = 4000
MAX_DIGITS = 400  # before or after the point; JSON numbers of JavaScript have at most 325


@lru_cache(maxsize=8)
def decimals() -> Dfa:
    """Accept every number without an exponent."""
    return regex.fullmatch(_DECIMAL)


@lru_cache(maxsize=8)
def all_numbers() -> Dfa:
    """Accept every number."""
    return regex.fullmatch(_DECIMAL + r"([eE][-+]?[0-9]+)?")


@lru_cache(maxsize=8)
def integers() -> Dfa:
    """Accept decimals without a fraction, or with a fraction of zeros."""
    return regex.fullmatch(r"-?(0|[1-9][0-9]*)(\.0+)?")


@lru_cache(maxsize=8)
def plain_integers() -> Dfa:
    """Accept integers without a decimal point, as most programs write them."""
    return regex.fullmatch(r"-?(0|[1-9][0-9]*)")


@lru_cache(maxsize=8)
def _unsigned() -> Dfa:
    return regex.fullmatch(r"(0|[1-9][0-9]*)(\.[0-9]+)?")


def _digits(value: Decimal) -> tuple[str, str]:
    """Return the digits before and after the point, without redundant zeros."""
    if value.adjusted() > MAX_DIGITS or value.as_tuple().exponent < -MAX_DIGITS:  # type: ignore[operator]
        raise TooComplex
    text = format(value.copy_abs(), "f")  # unlike abs() and -, which round to 28 digits
    before, _, after = text.partition(".")
    return before.lstrip("0") or "0", after.rstrip("0")


def _unsigned_above(value: Decimal, equal: bool) -> Dfa:
    """Accept unsigned texts of numbers > value, or >= value with `equal`. `value` must not be negative."""
    before, after = _digits(value)
    spend(40 * (len(before) + len(after)))
    edges: list[list[tuple[int, int, int]]] = []
    accepting: set[int] = set()

    def state(accepts: bool = False) -> int:
        edges.append([])
        if accepts:
            accepting.add(len(edges) - 1)
        return len(edges) - 1

    def digits(at: int, low: int, high: int, to: int) -> None:
        if low <= high:
            edges[at].append((0x30 + low, 0x30 + high, to))

    start = state()
    longer, pointed, above = state(True), state(), state(True)  # more digits; a point after them; a larger fraction
    edges[longer] += [(0x2E, 0x2E, pointed), (0x30, 0x39, longer)]
    digits(pointed, 0, 9, above)
    digits(above, 0, 9, above)
    # Numbers with as many digits as `before`: those read so far are equal to its first ones, greater or less.
    same, more, less = start, -1, -1
    for i, digit in enumerate(map(int, before)):
        last = i == len(before) - 1
        earlier, same, more, less = (same, more, less), state(last and equal and not after), state(last), state()
        digits(earlier[0], 1 if i == 0 and before != "0" else 0, digit - 1, less)
        digits(earlier[0], digit, digit, same)
        digits(earlier[0], digit + 1, 9, more if before != "0" else longer)
        if i:
            digits(earlier[1], 0, 9, more)
            digits(earlier[2], 0, 9, less)
    edges[more].append((0x2E, 0x2E, pointed))
    if before != "0":
        for at in (same, more, less):
            digits(at, 0, 9, longer)
    # The fraction: equal so far, then with any zeros.
    at = state()
    edges[same].append((0x2E, 0x2E, at))
    for digit in map(int, after):
        following = state()
        digits(at, digit, digit, following)
        digits(at, digit + 1, 9, above)
        at = following
    zeros = at if after else state()
    if equal:
        accepting.add(zeros)
    for end in {at, zeros}:
        digits(end, 0, 0, zeros)
        digits(end, 1, 9, above)
    for out in edges:
        out.sort()
    return minimize(Dfa(edges, accepting))


def _negative(dfa: Dfa) -> Dfa:
    """Put a minus sign before every text."""
    shifted = [[(a, b, t + 1) for a, b, t in out] for out in dfa.edges]
    return minimize(Dfa([[(0x2D, 0x2D, 1)], *shifted], {s + 1 for s in dfa.accepting}))


def at_least(value: Decimal, exclusive: bool) -> Dfa:
    """Accept numbers >= value, or > value with `exclusive`."""
    if value > 0 or (value == 0 and exclusive):
        return _unsigned_above(value, not exclusive)
    # all unsigned numbers, and -x where x <= -value
    small = difference(_unsigned(), _unsigned_above(value.copy_negate(), exclusive))
    return union(_unsigned(), _negative(small))


def at_most(value: Decimal, exclusive: bool) -> Dfa:
    """Accept numbers <= value, or < value with `exclusive`."""
    return difference(decimals(), at_least(value, not exclusive))


def among(values: Iterable[Decimal]) -> Dfa:
    """Accept every decimal text of some numbers."""
    whole: list[str] = []
    parted: list[str] = []
    for value in values:
        before, after = _digits(value)
        for sign in ("", "-") if not value else ("-",) if value < 0 else ("",):
            (parted if after else whole).append(f"{sign}{before}.{after}" if after else f"{sign}{before}")
    integral = concatenation(of_words(whole), regex.fullmatch(r"(\.0+)?"))
    return union(integral, concatenation(of_words(parted), regex.fullmatch("0*"))) if parted else integral


def multiples(step: Decimal) -> Dfa:
    """Accept multiples of `step`. The states are remainders; raises TooComplex where there would be too many."""
    _, digits, exponent = step.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    if exponent > 0:
        number, exponent = number * 10**exponent, 0
    places = -exponent  # value * 10^places is a multiple of number; only zeros may follow
    if number * (places + 2) > MAX_REMAINDERS:
        raise TooComplex
    spend(20 * number * (places + 2))
    size = number
    base = 1  # state 0 is the start; then (places read, remainder), places from -1 (before the point) to `places`

    def state(read: int, remainder: int) -> int:
        return base + (read + 1) * size + remainder

    edges: list[list[tuple[int, int, int]]] = [[] for _ in range(base + (places + 2) * size)]
    accepting = set()
    for remainder in range(size):
        for read in range(-1, places + 1):
            at = state(read, remainder)
            later = places - max(read, 0)
            if read != 0 and remainder * 10**later % number == 0:
                accepting.add(at)
            for digit in range(10):
                to = (remainder * 10 + digit) % number
                code = 0x30 + digit
                if read == -1:
                    edges[at].append((code, code, state(-1, to)))
                elif read < places:
                    edges[at].append((code, code, state(read + 1, to)))
            if read == places and remainder == 0:
                edges[at].append((0x30, 0x30, at))
            if read == -1:
                edges[at].append((0x2E, 0x2E, state(0, remainder)))
    edges[0] = [(0x2D, 0x2D, state(-1, 0))]
    edges[0] += [(0x30 + d, 0x30 + d, state(-1, d % number)) for d in range(10)]
    if places == 0:  # after the point, only zeros, and only where the remainder is 0
        after = len(edges)
        edges.append([(0x30, 0x30, after)])
        accepting.add(after)
        for remainder in range(size):
            edges[state(0, remainder)] = [(0x30, 0x30, after)] if remainder == 0 else []
    for out in edges:
        out.sort()
    return intersection(decimals(), minimize(Dfa(edges, accepting)))
