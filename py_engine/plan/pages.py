"""Pages of the KV caches, and the block tables that map a sequence's positions to pages.

All layers with the same window form a page group: a page's number addresses the same rows in each of their caches, so
one block table serves them all. Position s of a sequence is in row `table[s // page] * page + s % page`.
The tables are in the state buffer, after the States (wgsl/lib/state.wgsl): u32 (MAX_GROUPS, MAX_SEQUENCES, pages of a
context). A binding of their own would exceed the storage bindings that some devices allow. Each sequence's shift of its
rotary positions follows (media.py), then what packing.py has of a packed batch, or a record for each token of a batch
with media.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from py_engine.files.draft_header import DRAFT
from py_engine.plan.shared_constants import MAX_SEQUENCES, MAX_SMALL_BATCH

PAGE = 64  # positions of a page; the tiles of attention divide it
MAX_GROUPS = 4  # full attention, two windows, a short convolution's inputs or the states of recurrent layers
STATE_WORDS = 4  # u32 of a State
RECORD_WORDS = 5  # u32 of a token's record
SEGMENT_WORDS = 3  # u32 of the segment of a packed batch's token
PREFIX_WORDS = 2  # u32 of its prefix
TABLES = 4 * STATE_WORDS * MAX_SMALL_BATCH  # byte of the state buffer where the block tables begin


@dataclass
class PageGroup:
    """The layers that share one block table."""

    index: int
    window: int  # last positions that the layers read; 0: all
    most: int  # pages that one sequence has at most
    pages: int  # of each cache now
    caches: list[str] = field(default_factory=list)  # the buffers
    states: bool = False  # a page is a slot: the states of one sequence (states.py)

    @property
    def stored(self) -> list[str]:
        """The caches that later visits read: all but the draft model's, which are computed anew."""
        return [name for name in self.caches if not name.startswith(DRAFT)]


def pages_for(positions: int, page: int) -> int:
    """Pages that hold so many positions."""
    return -(-positions // page)


def table_offset(n_ctx: int, page: int, group: int, seq: int = 0) -> int:
    """Index of a sequence's block table among the words of all tables."""
    return (group * MAX_SEQUENCES + seq) * pages_for(n_ctx, page)


def shift_index(n_ctx: int, page: int, seq: int = 0) -> int:
    """Index of a sequence's shift among the words from the tables on."""
    return table_offset(n_ctx, page, MAX_GROUPS) + seq


def record_index(n_ctx: int, page: int) -> int:
    """Index of the first token's record among the words from the tables on."""
    return shift_index(n_ctx, page, MAX_SEQUENCES)


def records_at(n_ctx: int, page: int) -> int:
    """Byte of the state buffer where the records begin."""
    return TABLES + 4 * record_index(n_ctx, page)


def state_words(n_ctx: int, page: int, batch: int) -> int:
    """u32 of the state buffer."""
    packed = SEGMENT_WORDS * batch + pages_for(n_ctx, page) + PREFIX_WORDS * batch
    return records_at(n_ctx, page) // 4 + max(RECORD_WORDS * batch, packed)


def first_tables(groups: Sequence[PageGroup], n_ctx: int, page: int) -> bytes:
    """Tables that give any one sequence all pages, so that a model can be timed before pages are allocated."""
    context, words = pages_for(n_ctx, page), array("I")
    for group in groups:
        words.extend([i % group.pages for i in range(context)] * MAX_SEQUENCES)
    return words.tobytes()
