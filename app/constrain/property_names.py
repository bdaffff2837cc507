"""The names that an object's further properties may have."""

from app.constrain import automaton
from app.constrain.automaton import Dfa
from app.constrain.ebnf import Grammar
from app.constrain.effort import spend

STATES, SMALL_STATES = 16, 6  # of one object's names; each costs the mask engine some 40 ms of compile time


def other_names(grammar: Grammar, names: list[str], exact: bool) -> Dfa:
    """The names that are none of these.

    Unless `exact`, also excludes names that share a long property's prefix, to save automaton states.
    """
    if exact:
        return automaton.complement(automaton.of_words(names))
    found, most = automaton.everything(), SMALL_STATES if grammar.small else STATES
    for size in range(1, max(1, *map(len, names)) + 1):
        spend(len(names) >> 2)
        taken = automaton.of_words(name for name in names if len(name) <= size)
        if level := {name[:size] for name in names if len(name) > size}:
            begun = automaton.concatenation(automaton.of_words(level), automaton.everything())
            taken = automaton.union(taken, begun)
        others = automaton.complement(taken)
        if len(others.edges) > SMALL_STATES:
            grammar.could_be_smaller = True
        if size > 1 and len(others.edges) > most:
            break
        found = others
    return found
