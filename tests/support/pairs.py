"""Few combinations instead of all: every two values of different parameters meet in at least one test.

WISP_ALL=1 runs all combinations.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from tools.selection import everything

Row = tuple[Any, ...]


def pairs(*axes: Sequence[Any]) -> list[Row]:
    """Return some rows of the product of `axes` in which each pair of values of two axes occurs.

    Greedy: the next row is the one with most new pairs, at a tie the first. So the axes' first values occur most: put
    the cheap ones first. All rows where everything() is asked for.
    """
    rows = list(itertools.product(*(range(len(axis)) for axis in axes)))
    missing = {pair for row in rows for pair in _pairs(row)}
    chosen = rows if everything() else list[tuple[int, ...]]()
    while missing and not everything():
        best = max(rows, key=lambda row: len(_pairs(row) & missing))
        missing -= _pairs(best)
        chosen.append(best)
    return [tuple(axis[i] for axis, i in zip(axes, row, strict=True)) for row in sorted(chosen)]


def _pairs(row: Row) -> set[tuple[Row, Row]]:
    """Return the pairs of (axis, value) in a row."""
    return {(a, b) for a, b in itertools.combinations(enumerate(row), 2)}
