"""Whether tests and checkers run all combinations, or a selection in which each value occurs."""

import os
from collections.abc import Sequence
from typing import TypeVar

ALL = "WISP_ALL"  # in the environment: run all combinations

T = TypeVar("T")


def everything() -> bool:
    """Return whether all combinations are asked for."""
    return ALL in os.environ


def fewer(cases: Sequence[T], count: int) -> Sequence[T]:
    """Return the first `count` of cases that differ in a seed or a size alone, or all of them where that is asked."""
    return cases if everything() else cases[:count]


def in_turn(at: int, of: Sequence[T], also: Sequence[T] = ()) -> list[T]:
    """Return one of several ways to run case `at`, so that its neighbours run in the others, and the ways `also`.

    All of them where that is asked.
    """
    chosen = (*also, of[at % len(of)])
    return [way for way in of if everything() or way in chosen]
