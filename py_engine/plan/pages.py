"""Pages of the KV caches, and the block tables that map a sequence's positions to pages.

All layers with the same window form a page group: a page's number addresses the same rows in each of their caches, so
one block table serves them all. Position s of a sequence is in row `table[s // page] * page + s % page`.
The tables are in the state buffer, after the States (wgsl/lib/state.wgsl): u32 (MAX_GROUPS, MAX_SEQUENCES, pages of a
context). A binding of their own would exceed the storage bindings that some devices allow.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from py_engine.plan.shared import MAX_SEQUENCES, MAX_SMALL_BATCH

PAGE = 64  # positions of a page; attention's tiles divide it
MAX_GROUPS = 4  # full attention, two windows, a short convolution's inputs
STATE_WORDS = 4  # u32 of a State


@dataclass(frozen=True)
class PageGroup:
    """The layers that share one block table.

    `window`: last positions that they read; 0: all. `pages`: that a sequence has in each of their caches.
    """

    index: int
    window: int
    pages: int


def table_offset(n_ctx: int, page: int, group: int, seq: int = 0) -> int:
    """Index of a sequence's block table among the words of all tables."""
    return (group * MAX_SEQUENCES + seq) * pages_for(n_ctx, page)


def pages_for(positions: int, page: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // page)


def state_words(n_ctx: int, page: int) -> int:
    """Words of the state buffer: a State per token of a small batch, then the block tables."""
    return STATE_WORDS * MAX_SMALL_BATCH + table_offset(n_ctx, page, MAX_GROUPS)


TABLES = 4 * STATE_WORDS * MAX_SMALL_BATCH  # byte of the state buffer where the block tables begin


def block_tables(groups: list[PageGroup], n_ctx: int, page: int, sequences: int) -> bytes:
    """Tables that give each of the first `sequences` its own part of every cache; a window's pages are used in turn."""
    entries = pages_for(n_ctx, page)
    words = array("I", bytes(4 * table_offset(n_ctx, page, MAX_GROUPS)))
    for group in groups:
        for seq in range(sequences):
            at = table_offset(n_ctx, page, group.index, seq)
            own = (seq * group.pages + i % group.pages for i in range(entries))
            words[at : at + entries] = array("I", own)
    return words.tobytes()
