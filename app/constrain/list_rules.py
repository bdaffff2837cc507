"""Grammar rules for lists whose next member depends on the earlier ones, as a state machine."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from app.constrain.ebnf import Grammar, either
from app.constrain.effort import spend

MAX_STATES = 1500
State = TypeVar("State", bound=Hashable)


class TooManyListStates(Exception):
    """The list would need more than MAX_STATES states."""


def list_rule(
    grammar: Grammar,
    comma: str,
    first: State,
    steps: Callable[[State], Iterable[tuple[str, State]]],
    may_end: Callable[[State], bool],
) -> tuple[str | None, bool]:
    """Return (the rule for a non-empty list, None where none can exist; whether the list may be empty).

    `steps`: for a state, the (member, next state) pairs. States from which the list cannot end get no rule.
    """
    after: dict[State, list[tuple[str, State]]] = {}
    before: dict[State, set[State]] = {}
    todo = [first]
    while todo:
        state = todo.pop()
        if state in after:
            continue
        if len(after) >= MAX_STATES:
            raise TooManyListStates
        after[state] = list(steps(state))
        spend(10 * len(after[state]))
        for _, new in after[state]:
            before.setdefault(new, set()).add(state)
            todo.append(new)
    live = {state for state in after if may_end(state)}
    todo = list(live)
    while todo:
        for state in before.get(todo.pop(), ()):
            if state not in live:
                live.add(state)
                todo.append(state)
    names = {state: grammar.name("more") for state in after if state in live}
    for state, name in names.items():
        more = [f"{comma} {body} {names[new]}" for body, new in after[state] if new in live]
        grammar.define(name, either(more + (['""'] if may_end(state) else [])))
    start = [f"{body} {names[new]}" for body, new in after[first] if new in live]
    return (grammar.add("list", either(start)) if start else None), may_end(first)
