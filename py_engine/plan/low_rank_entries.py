"""Which rows of a product adapters change.

lib/low_rank.wgsl finds them in a table of entries. Where all adapters change the same rows with the same rank, which is
usual, lib/low_rank_equal.wgsl computes from an adapter's number where its rows of B and its columns of h are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from py_engine.plan.adapters import Pair
from py_engine.plan.quants import GROUP

MOST_RUNS = 8  # of an adapter, in lib/low_rank_equal.wgsl


@dataclass(frozen=True)
class Entry:
    """Rows of a product to which an adapter adds: rows of its B, and its columns of h. lib/low_rank.wgsl's Entry."""

    pair: Pair
    y: int
    first: int  # row of B's tensor
    rows: int
    h: int


@dataclass(frozen=True)
class Run:
    """Entries of a pair that follow each other. `b`: their first row of the matrix that stacks all of them."""

    pair: Pair
    y: int
    rows: int
    b: int
    h: int


def runs_of(entries: Sequence[Entry]) -> list[Run]:
    """The runs of the entries of one matrix."""
    runs, b = list[Run](), 0
    for entry in entries:
        last = runs[-1] if runs else None
        if last is not None and (entry.pair, entry.h, entry.y) == (last.pair, last.h, last.y + last.rows):
            runs[-1] = Run(last.pair, last.y, last.rows + entry.rows, last.b, last.h)
        else:
            runs.append(Run(entry.pair, entry.y, entry.rows, b, entry.h))
        b += entry.rows
    return runs


def packed(runs: Sequence[Run]) -> bytes:
    """The runs as an array of lib/low_rank.wgsl's Entry."""
    return b"".join(struct.pack("<5If", r.y, r.rows, r.b, r.h, r.pair.adapter, r.pair.factor) for r in runs)


def equal_params(runs: Sequence[Run]) -> dict[str, int | str] | None:
    """The #params of lib/low_rank_equal.wgsl; None if it cannot find what these adapters add.

    All adapters must have the same rows and rank; only numbers and factors may differ. Columns of h must be whole vec4.
    `runs`: those of each adapter in a row.
    """
    by_adapter: dict[int, list[Run]] = {}
    for run in runs:
        by_adapter.setdefault(run.pair.adapter, []).append(run)
    each = list(by_adapter.values())
    first, rows = each[0], sum(run.rows for run in each[0])
    columns = each[1][0].h - first[0].h if len(each) > 1 else 0
    rank = first[0].pair.rank
    for i, own in enumerate(each):
        moved = [Run(run.pair, run.y, run.rows, run.b + i * rows, run.h + i * columns) for run in first]
        same = [(r.y, r.rows, r.b, r.h) for r in own] == [(r.y, r.rows, r.b, r.h) for r in moved]
        if not same or len({run.pair.factor for run in own}) > 1:  # lib/low_rank_equal.wgsl takes the first run's
            return None
    aligned = not any(run.h % 4 for run in first) and not columns % 4 and not rank % (GROUP if rank > GROUP else 4)
    if len(first) > MOST_RUNS or not aligned or columns < 0:
        return None
    return {
        "PARTS": len(first),
        "RUNS": ", ".join(f"vec4u({run.y}, {run.rows}, {run.b}, {run.h})" for run in first),
        "USERS": ", ".join(map(str, by_adapter)),
        "USED": len(each),
        "ROWS": rows,
        "EACH": columns,
    }


@dataclass(frozen=True)
class ExpertEntry:
    """Columns of y to which an adapter of experts' matrices adds; its place says where in h and B it is."""

    adapter: int
    ratio: float  # alpha / rank
    y: int


def listed(values: Iterable[float]) -> str:
    """Numbers as the text of a #param, for kernels that have no buffer to spare for a table."""
    return ", ".join(map(repr, values))


def numbers(text: int | float | str) -> list[float]:
    """The numbers of listed()."""
    return [float(value) for value in str(text).split(", ")]


def expert_entries(params: Mapping[str, int | float | str]) -> list[ExpertEntry]:
    """The entries of an op of add_expert_low_rank.wgsl."""
    users, ratios, columns = (numbers(params[name]) for name in ("USERS", "RATIOS", "COLUMNS"))
    return [ExpertEntry(int(u), ratio, int(y)) for u, ratio, y in zip(users, ratios, columns, strict=True)]


def count_of(params: Mapping[str, int | float | str], end: str = "") -> int:
    """How many entries an op's table has. `end`: of the names of the params of lib/low_rank.wgsl."""
    equal = params[f"ADDS{end}"] == "low_rank_equal"
    return int(params[f"PARTS{end}"]) * int(params[f"USED{end}"]) if equal else int(params[f"ENTRIES{end}"])
