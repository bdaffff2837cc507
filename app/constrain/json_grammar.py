"""Grammar rules for sets of JSON values (schema.py).

Between JSON's tokens, a space or a line break with an indent is allowed. Properties come in any order where at most
FREE_ORDER are named; with more, or with `ordered`, they come in the schema's order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from app.constrain import automaton, numbers
from app.constrain.automaton import Dfa
from app.constrain.document import UnsupportedKeyword
from app.constrain.ebnf import Grammar, either, literal
from app.constrain.effort import TooComplex, spend
from app.constrain.list_rules import TooManyListStates, list_rule
from app.constrain.property_names import other_names
from app.constrain.schema import Schemas
from app.constrain.strings import automaton_rule, json_text, repeated
from app.constrain.value_sets import FALSE, TRUE, ArraySet, ObjectSet, Ref, StringSet, ValueSet

Counts = tuple[int, tuple[int, ...]]  # (items so far, items that satisfy each `contains`)
PropertyState = tuple[int, int, int]  # (named properties so far, all properties so far, `exists` flags)
FREE_ORDER = 5  # named properties; with more, the order is fixed
MAX_UNIQUE = 6  # distinct values of the items of an array with uniqueItems
MAX_PATTERNS = 4  # of one object: 2^n combinations of them get rules
DEMANDING = ("contains", "uniqueItems", "minProperties", "minItems", "required", "not")  # may leave no value
QUOTE = '"'
VALUE = '"{[-0123456789tfn'  # the first characters of values
_NUMBER = r""""-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] ("-" | "+")? [0-9]+)?"""


class JsonGrammar:
    """A writer of grammar rules for Refs."""

    def __init__(self, grammar: Grammar, schemas: Schemas, ordered: bool = False, plain_integers: bool = False) -> None:
        """`ordered`: properties come in the schema's order. `plain_integers`: integers as 5, not 5.0."""
        self._grammar, self._schemas, self._ordered = grammar, schemas, ordered
        self._plain_integers = plain_integers
        self._names: dict[Ref, str] = {}
        self._undefined: list[Ref] = []  # named in rules, and not defined yet
        self._defining = False
        self._comma = f"{self._blank(',')} {literal(',')} {self._blank(VALUE)}"

    def _blank(self, before: str) -> str:
        """Match optional blanks before one of some characters. The lookahead makes masks faster."""
        signs = "".join(f"\\u{ord(sign):04x}" for sign in before)
        indent = self._grammar.add("indent", r"[\u0020\u0009]{0,60}")  # once in a grammar: 14 MB with 128k tokens
        return self._grammar.add("ws", rf'(" " | "\u000a" {indent})? (=[{signs}])')

    def rule(self, ref: Ref) -> str:
        """Return the rule for the values of a Ref, which must be inhabited."""
        if ref not in self._names:
            self._names[ref] = self._grammar.name("value" if ref == TRUE else "v")
            self._undefined.append(ref)
            if not self._defining:
                self._define()
        return self._names[ref]

    def _define(self) -> None:
        """Define the rules that others name, one after the other: chains of schemas may be thousands long."""
        self._defining = True
        while self._undefined:
            ref = self._undefined.pop()
            values = self._schemas.values(ref)
            for kind in ("strings", "arrays", "objects"):
                if sum(getattr(v, kind) is not None for v in values) > 1:
                    self._grammar.ambiguous = True
            options = [o for v in values for o in self._options(v, ref)]
            if not options:
                raise self._impossible(ref)
            self._grammar.define(self._names[ref], either(options))
        self._defining = False

    def _unsupported(self, ref: Ref, keyword: str, why: str) -> UnsupportedKeyword:
        subschemas = self._schemas.subschemas(ref)
        subschema = next((p for p in subschemas if isinstance(p.schema, dict) and keyword in p.schema), None)
        return UnsupportedKeyword((*(subschema.path if subschema else ()), keyword), why)

    def _impossible(self, ref: Ref) -> UnsupportedKeyword:
        """The error for keywords that leave no value, where schema.py did not find that out."""
        given = {k for p in self._schemas.subschemas(ref) if isinstance(p.schema, dict) for k in p.schema}
        keyword = next((k for k in DEMANDING if k in given), "type")
        return self._unsupported(ref, keyword, "together with the keywords beside it, it allows no value")

    def _options(self, v: ValueSet, ref: Ref) -> Iterator[str]:
        if v.null:
            yield literal("null")
        for value in sorted(v.booleans):
            yield literal("true" if value else "false")
        if v.numbers is not None:
            yield self._number(v.numbers)
        if v.strings is not None:
            try:
                yield self._grammar.add("string", json_text(self._grammar, v.strings))
            except TooComplex:
                raise self._unsupported(
                    ref, "pattern", "together with the length limits it needs too many states"
                ) from None
        if v.arrays is not None:
            yield from self._arrays(v.arrays, ref)
        if v.objects is not None:
            yield from self._objects(v.objects, ref)

    def _number(self, dfa: Dfa) -> str:
        if dfa is numbers.all_numbers():
            return self._grammar.add("number", _NUMBER)
        if self._plain_integers and automaton.difference(dfa, numbers.integers()).is_empty():
            written = automaton.intersection(dfa, numbers.plain_integers())
            dfa = dfa if written.is_empty() else written
        return self._grammar.add("number", automaton_rule(self._grammar, dfa, False))

    # -- arrays

    def _arrays(self, s: ArraySet, ref: Ref) -> Iterator[str]:
        n = s.prefix_length()
        high = s.high
        for i in range(n):
            if not self._schemas.inhabited(s.item(i)):
                high = i if high is None else min(high, i)
                break
        if not self._schemas.inhabited(s.item(None)):
            high = n if high is None else min(high, n)
        if high is not None and high < s.low:
            return
        s = replace(s, high=high)
        if s.unique is not None or s.contains:
            self._grammar.ambiguous = True
        if s.unique is not None and (high is None or high > 1) and not self._differ(s):
            yield from self._unique(s)
            return
        if s.contains:
            yield from self._containing(s, ref)
            return
        yield self._plain(s)

    def _plain(self, s: ArraySet) -> str:
        n, low, high = s.prefix_length(), s.low, s.high
        comma = self._comma
        later = high is None or high > n
        tail = '""'
        if later:
            item = self.rule(s.item(None))
            if n:
                tail = repeated(f"({comma} {item})", max(low - n, 0), None if high is None else high - n)
            else:
                tail = f"{item} {repeated(f'({comma} {item})', max(low - 1, 0), None if high is None else high - 1)}"
        body = tail
        for i in range(min(n, high if high is not None else n) - 1, -1, -1):
            item = self.rule(s.item(i))
            lead = item if i == 0 else f"{comma} {item}"
            rest = "" if body == '""' else f" {body}" if i + 1 < low or (i + 1 == n and low > n) else f" ({body})?"
            if i + 1 == n and later and low <= n:
                rest = f" {body}"  # a repetition from 0 needs no "?"
            body = f"{lead}{rest}"
        return self._array(body, low == 0, high == 0)

    def _array(self, body: str, may_be_empty: bool, must_be_empty: bool = False) -> str:
        empty = f"{literal('[')} {self._blank(']')} {literal(']')}"
        if must_be_empty:
            return empty
        full = f"{literal('[')} {self._blank(VALUE)} {body} {self._blank(']')} {literal(']')}"
        return f"({empty} | {full})" if may_be_empty else full

    def _containing(self, s: ArraySet, ref: Ref) -> Iterator[str]:
        """Yield rules for arrays with `contains`. Counts in a state are capped where they no longer matter."""
        caps = [c.low if c.high is None else c.high for c in s.contains]
        far = max(s.prefix_length(), s.low, *(c.start for c in s.contains), s.high or 0, 1)
        schemas = self._schemas

        def may_end(state: Counts) -> bool:
            return state[0] >= s.low and all(n >= c.low for n, c in zip(state[1], s.contains, strict=True))

        def steps(state: Counts) -> Iterator[tuple[str, Counts]]:
            at, counts = state
            if s.high is not None and at >= s.high:
                return
            base = s.item(at if at < s.prefix_length() else None)
            live = [i for i, c in enumerate(s.contains) if at >= c.start and (c.high is not None or counts[i] < c.low)]
            for size in range(len(live) + 1):
                for chosen in combinations(live, size):
                    spend(20 + 10 * len(live))
                    if any(s.contains[i].high == counts[i] for i in chosen):
                        continue
                    item = base.union(
                        *(s.contains[i].ref if i in chosen else schemas.negated(s.contains[i].ref) for i in live)
                    )
                    if schemas.inhabited(item):
                        new = tuple(min(n + (i in chosen), caps[i]) for i, n in enumerate(counts))
                        yield self.rule(item), (min(at + 1, far), new)

        try:
            found = list_rule(self._grammar, self._comma, (0, (0,) * len(s.contains)), steps, may_end)
        except TooManyListStates:
            raise self._unsupported(
                ref, "contains", "minContains and maxContains need too many states; use smaller ones"
            ) from None
        yield from self._list(*found)

    def _list(self, full: str | None, may_be_empty: bool) -> Iterator[str]:
        if full is not None:
            yield self._array(full, may_be_empty)
        elif may_be_empty:
            yield self._array("", True, True)

    def _differ(self, s: ArraySet) -> bool:
        """Return whether items certainly differ: all are in the prefix, and no two of their schemas share a value."""
        n = s.prefix_length()
        if s.high is None or s.high > n:
            return False
        refs = [s.item(i) for i in range(n)]
        return not any(self._schemas.inhabited(a | b) for a, b in combinations(refs, 2))

    def _unique(self, s: ArraySet) -> Iterator[str]:
        """Yield rules for items from a few values, each used at most once. State: the bits of the used values."""
        assert s.unique is not None
        atoms = self._atoms(s)
        if atoms is None or s.prefix_length() or s.contains:
            raise UnsupportedKeyword(
                s.unique, f"it is only supported for items with an enum of at most {MAX_UNIQUE} values"
            )
        high = len(atoms) if s.high is None else min(s.high, len(atoms))

        def steps(used: int) -> Iterator[tuple[str, int]]:
            for i, atom in enumerate(atoms):
                if not used >> i & 1 and used.bit_count() < high:
                    yield self.rule(atom), used | 1 << i

        yield from self._list(*list_rule(self._grammar, self._comma, 0, steps, lambda used: used.bit_count() >= s.low))

    def _atoms(self, s: ArraySet) -> list[Ref] | None:
        """Return the values that items may have, if a schema lists at most MAX_UNIQUE of them."""
        item = s.item(None)
        for subschema in self._schemas.subschemas(item):
            schema = subschema.schema
            values = schema.get("enum", [schema["const"]] if "const" in schema else None)
            if values is None and schema.get("type") in ("boolean", "null", ["boolean", "null"], ["null", "boolean"]):
                values = [None, True, False]
            if isinstance(values, list):
                atoms = [item | self._schemas.const(v) for v in values]
                atoms = [a for a in dict.fromkeys(atoms) if self._schemas.inhabited(a)]
                return atoms if len(atoms) <= MAX_UNIQUE else None
        return None

    # -- objects

    def _objects(self, t: ObjectSet, ref: Ref) -> Iterator[str]:
        named = dict.fromkeys(name for layer in t.layers for name in layer.named)
        named |= dict.fromkeys(t.required)
        fields = {name: self._schemas.field(t, name) for name in named}
        if not all(self._schemas.inhabited(fields[name]) for name in t.required):
            return
        present = [n for n, f in fields.items() if f != FALSE and self._schemas.inhabited(f)]
        try:
            entries = list(self._entries(t, fields, present, ref))
        except TooComplex:
            raise self._unsupported(ref, "patternProperties", "its patterns need too many states") from None
        comma = f"{self._blank(',')} {literal(',')} {self._blank(QUOTE)}"
        free_order = not self._ordered and len(present) <= FREE_ORDER
        try:
            full, may_be_empty = _properties(self._grammar, comma, t, entries, free_order)
        except TooManyListStates:
            raise self._unsupported(ref, "maxProperties", "with so many properties it needs too many states") from None
        empty = f"{literal('{')} {self._blank('}')} {literal('}')}"
        if may_be_empty:
            yield empty
        if full is not None:
            yield f"{literal('{')} {self._blank(QUOTE)} {full} {self._blank('}')} {literal('}')}"

    def _entries(self, t: ObjectSet, fields: dict[str, Ref], present: list[str], ref: Ref) -> Iterator[_Entry]:
        """Yield every kind of property: the named ones in the schema's order, then one for each set of patterns."""
        required = frozenset(t.required)
        for i, name in enumerate(present):
            spend(20)
            for flags, value in self._split_named(t, name, fields[name]):
                yield _Entry(i, name in required, self._member(literal_key(name), value), flags)
        patterns: list[Dfa] = []
        for layer in t.layers:
            patterns += [dfa for dfa, _ in layer.patterns]
        patterns += [dfa for dfa, _ in t.exists]
        if len(patterns) > MAX_PATTERNS:
            raise self._unsupported(ref, "patternProperties", f"there are more than {MAX_PATTERNS} patterns")
        exact = bool(patterns) or t.names is not None  # they may ask for any name; without them, others are left
        free = other_names(self._grammar, list(fields), exact) if fields else automaton.everything()
        if t.names is not None:
            free = automaton.intersection(free, t.names)
        for bits in range(1 << len(patterns)):
            cell = free  # names that match exactly the patterns in `bits`
            for i, dfa in enumerate(patterns):
                cell = (automaton.intersection if bits >> i & 1 else automaton.difference)(cell, dfa)
            if cell.is_empty():
                continue
            value, at = TRUE, 0
            for layer in t.layers:
                hit = [r for j, (_, r) in enumerate(layer.patterns) if bits >> (at + j) & 1]
                value = value.union(*(hit or [layer.rest]))
                at += len(layer.patterns)
            if not self._schemas.inhabited(value):
                continue  # before its names get rules
            relevant = [i for i in range(len(t.exists)) if bits >> (at + i) & 1]
            plain = cell.edges[0:1] and cell is free and not fields and t.names is None
            key = json_text(self._grammar, StringSet() if plain else StringSet(cell))
            for flags, ref_of in self._split_by_conditions(t, relevant, value):
                yield _Entry(None, False, self._member(self._grammar.add("key", key), ref_of), flags)

    def _split_named(self, t: ObjectSet, name: str, value: Ref) -> Iterator[tuple[int, Ref]]:
        return self._split_by_conditions(t, [i for i, (dfa, _) in enumerate(t.exists) if dfa.accepts(name)], value)

    def _split_by_conditions(self, t: ObjectSet, relevant: list[int], value: Ref) -> Iterator[tuple[int, Ref]]:
        """Split a property by the `exists` conditions that it satisfies: (their bits, its value)."""
        for size in range(len(relevant) + 1):
            for chosen in combinations(relevant, size):
                spend(20)
                split = value.union(*(t.exists[i][1] for i in chosen))
                if self._schemas.inhabited(split):
                    yield sum(1 << i for i in chosen), split

    def _member(self, key: str, value: Ref) -> str:
        return f"{key} {self._blank(':')} {literal(':')} {self._blank(VALUE)} {self.rule(value)}"


def literal_key(name: str) -> str:
    """Match the name of a property in either usual JSON spelling: with or without escapes."""
    return either(literal(json.dumps(name, ensure_ascii=ascii_only)) for ascii_only in (False, True))


@dataclass(frozen=True)
class _Entry:
    """A kind of property. `index`: of a named one; `flags`: bits of the `exists` conditions that it satisfies."""

    index: int | None
    required: bool
    body: str
    flags: int


def _properties(
    grammar: Grammar, comma: str, t: ObjectSet, entries: list[_Entry], free_order: bool
) -> tuple[str | None, bool]:
    """Return (the rule for a non-empty list of properties, whether the list may be empty).

    The first number of a state has the bits of the named properties so far. In the schema's order it is the index of
    the next one that may come, and properties that the schema does not name follow the required ones: else a model
    could write such properties for ever, and never the required ones.
    """
    needed = 0
    for e in entries:
        if e.required and e.index is not None:
            needed |= 1 << e.index
    all_flags = (1 << len(t.exists)) - 1
    cap = t.low if t.high is None else t.high

    def has_required(used: int) -> bool:
        return used & needed == needed if free_order else used >= needed.bit_length()

    def may_end(state: PropertyState) -> bool:
        used, count, flags = state
        return has_required(used) and count >= t.low and flags == all_flags

    def steps(state: PropertyState) -> Iterator[tuple[str, PropertyState]]:
        used, count, flags = state
        spend(len(entries) >> 2)
        if t.high is not None and count >= t.high:
            return
        for e in entries:
            if e.index is None:
                if not free_order and not has_required(used):
                    continue
                after = used
            elif free_order:
                if used >> e.index & 1:
                    continue
                after = used | 1 << e.index
            else:
                between = ((1 << e.index) - 1) & ~((1 << used) - 1)
                if e.index < used or needed & between:
                    continue
                after = e.index + 1
            yield e.body, (after, min(count + 1, cap), flags | e.flags)

    return list_rule(grammar, comma, (0, 0, 0), steps, may_end)
