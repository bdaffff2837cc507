"""Write a GBNF grammar's rules in XGrammar's EBNF: automata for what does not recurse, rules for the rest.

XGrammar follows all ways to read a text, and `(("a"*)*)*` has exponentially many; an automaton has one. It is also slow
where it must return to the calling rule after each character, as in `string ::= "'" char* "'"`; within an automaton it
need not (strings.py).
"""

from __future__ import annotations

from collections.abc import Callable

from app.constrain.ambiguity import is_quick
from app.constrain.cost import MAX_COST, UNROLLED
from app.constrain.ebnf import Grammar
from app.constrain.effort import TooComplex, attempt
from app.constrain.gbnf_parts import (
    Automaton,
    Class,
    Either,
    Literal,
    Name,
    Part,
    Repeat,
    Rules,
    Sequence,
    automaton,
    check_left_corners,
    names,
    recursive,
    shortest_of,
    written,
)
from app.constrain.strings import automaton_rule

EFFORT = 200_000  # steps for all automata of a grammar
MOST = MAX_COST / 2  # of them, together


def add_rules(grammar: Grammar, rules: Rules, root: str, lengths: dict[str, float]) -> str:
    """Add the rules that the root needs; return the new name of the root. `lengths`: of the rules' shortest texts."""
    joined = _Joined(grammar, rules)
    made = joined.needed(root)
    found = made[root]
    if isinstance(found, Automaton):
        return found.rule
    for name, body in joined.repeated.items():  # what is within another part comes before it
        lengths[name] = shortest_of(body, lengths)
    check_left_corners(made, lengths)
    grammar.unsure |= not is_quick(made, lengths)
    own = {name: grammar.name(f"u_{name}") for name in made}
    for name, body in made.items():
        grammar.define(own[name], written(body, own))
    return own[root]


class _Joined:
    """Parts without recursion as automata, where those are small."""

    def __init__(self, grammar: Grammar, rules: Rules) -> None:
        self._grammar, self._rules = grammar, rules
        self._recursive = recursive(rules)
        self._names = {name: name for name in rules}
        self._made: dict[str, Part] = {}
        self.repeated: dict[str, Part] = {}  # rules of what is repeated often
        self._rule = ""  # whose parts are being made
        self._left = MOST

    def needed(self, root: str) -> Rules:
        """The rules that the root needs, with automata; as they are where those take too many steps to make."""
        count = len(self._grammar.rules)
        found = attempt(EFFORT, lambda: self._from(root, self._made_rule))
        if found is not None:
            return found
        self._grammar.drop(count)
        return self._from(root, self._rules.__getitem__)

    def _from(self, root: str, rule: Callable[[str], Part]) -> Rules:
        """The root and what it needs: no automaton is made that nothing calls."""
        found, todo = dict[str, Part](), [root]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = rule(name)
                todo += names(found[name])
        return found

    def _made_rule(self, name: str) -> Part:
        if name in self.repeated:
            return self.repeated[name]
        self._rule = name
        return self.part(self._rules[name])

    def part(self, part: Part) -> Part:
        """The part with automata."""
        if not self._recursive.intersection(names(part)):
            found = self._automaton(part)
            if isinstance(found, Automaton) or _short(part):
                return found
        if isinstance(part, Repeat):
            return Repeat(self._inner(part), part.low, part.high, part.sign)
        if isinstance(part, Sequence):
            return Sequence(tuple(self._runs(part.parts)))
        if isinstance(part, Either):
            return Either(tuple([self.part(option) for option in part.parts]))
        return part

    def _inner(self, repeat: Repeat) -> Part:
        """What is repeated. With a large count it is a rule: the mask engine hangs where wide classes are not."""
        part = self.part(repeat.part)
        if max(repeat.low, repeat.high or 0) <= UNROLLED or isinstance(part, Literal | Name | Automaton):
            return part
        name = f"{self._rule} {len(self.repeated)}"  # no rule of a grammar has a blank in its name
        self.repeated[name] = part
        return Name(name)

    def _runs(self, parts: tuple[Part, ...]) -> list[Part]:
        """Parts of a sequence, where neighbours without recursion become one."""
        out: list[Part] = []
        run: list[Part] = []
        for part in parts:
            if self._recursive.intersection(names(part)):
                out += [*self._run(run), self.part(part)]
                run = []
            else:
                run.append(part)
        return out + self._run(run)

    def _run(self, run: list[Part]) -> list[Part]:
        found = self._automaton(run[0] if len(run) == 1 else Sequence(tuple(run)))
        return [found] if isinstance(found, Automaton) else [self.part(part) for part in run]

    def _automaton(self, part: Part) -> Part:
        """The automaton of a part without recursion; the part itself where that is large, or would not help."""
        if _short(part):
            return part
        key = written(part, self._names)
        if key not in self._made:
            self._made[key] = self._new(part)
        return self._made[key]

    def _new(self, part: Part) -> Part:
        try:
            found = automaton(self._rules, part)
        except TooComplex:
            return part
        added = self._grammar.attempt(lambda: automaton_rule(self._grammar, found, False), self._left)
        if added is None:
            return part
        rule, spent = added
        self._left -= spent
        return Automaton(found, rule)


def _short(part: Part) -> bool:
    """Whether the mask engine is as fast with a part as with its automaton."""
    return all(map(_simple, part.parts if isinstance(part, Sequence) else (part,)))


def _simple(part: Part) -> bool:
    if isinstance(part, Repeat) and part.low == part.high:  # as an automaton it takes time for each state
        return isinstance(part.part, Literal) or (isinstance(part.part, Class) and part.part.ranges[-1][1] <= 0x7F)
    return isinstance(part.part if isinstance(part, Repeat) and part.sign else part, Literal | Class)
