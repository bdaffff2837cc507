"""The layout of the states of recurrent layers, which these store in place of keys and values.

A layer has a matrix for each head, and the last inputs of its causal convolution, or of RWKV's mixes, all f32. A
sequence has a slot in the buffers of all its layers. The slots are the pages of a page group of their own; the first
entry of a sequence's block table in that group is its slot.
A slot has two halves. The state after position p is in half p % 2. The kernels write those after the last two positions
of a batch, so the newest token can be computed again, and a sequence can go on from either of the two positions.
No kernel reads a state at a sequence's first position: it is zeros there.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.pages import MAX_GROUPS, PageGroup, pages_for, table_offset
from py_engine.plan.plan import Buffer, Plan

FIRST_SLOTS = 3  # that a model starts with: a sequence's, and snapshots at the ends of a prompt and of an answer
MAX_TAPS = 16  # earlier inputs of a convolution
SLOTS_PER_SEQUENCE = 2  # that the slots grow to at most: its own, and a snapshot


@dataclass(frozen=True)
class StateShape:
    """The sizes of a layer's state: `heads` matrices (rows, cols), and `taps` earlier inputs of `channels` channels.

    `more`: the channels and taps of a second convolution, if the layer has one.
    """

    heads: int
    rows: int
    cols: int
    channels: int
    taps: int
    more: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class States:
    """The states of one layer: matrices (slots, 2, heads * rows * cols) and windows (slots, 2, taps * channels)."""

    matrices: Buffer
    windows: Buffer
    more_windows: Buffer | None  # of a second convolution
    paging: dict[str, int]  # the #params of lib/pages.wgsl


def make_states(plan: Plan, layer: int, shape: StateShape) -> States:
    """Create the buffers of a recurrent layer's states. All page groups of positions must exist."""
    group = next((group for group in plan.page_groups if group.states), None)
    if group is None:
        assert len(plan.page_groups) < MAX_GROUPS
        group = PageGroup(len(plan.page_groups), 0, SLOTS_PER_SEQUENCE, FIRST_SLOTS, states=True)
        plan.page_groups.append(group)
    sizes = {"matrices": shape.heads * shape.rows * shape.cols, "windows": shape.taps * shape.channels}
    matrices, windows = (_buffer(plan, group, f"{name}.{layer}", size) for name, size in sizes.items())
    channels, taps = shape.more
    more = _buffer(plan, group, f"more_windows.{layer}", channels * taps) if taps else None
    table = table_offset(plan.n_ctx, plan.page, group.index)
    paging = {"PAGE": plan.page, "PAGES": pages_for(plan.n_ctx, plan.page), "TABLE": table}
    return States(matrices, windows, more, paging)


def _buffer(plan: Plan, group: PageGroup, name: str, size: int) -> Buffer:
    group.caches.append(name)
    return plan.buffers.setdefault(name, Buffer(name, (group.pages, 2, size), "f32", "kv"))
