"""Execute a plan's lists with numpy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import inf, prod

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.cpu.dequantize import dequantize_rows
from py_engine.cpu.kernels import KERNELS
from py_engine.plan.media import MediaBatch
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import STATE_WORDS, TABLES, first_tables, records_at, shift_index, table_offset
from py_engine.plan.plan import Buffer, Op, Plan, Weight
from py_engine.plan.quants import row_bytes

DTYPES = {"f32": np.float32, "f16": np.float16, "u32": np.uint32}


class Cpu:
    """The memory of one plan, and the execution of its lists."""

    def __init__(self, plan: Plan, weights: dict[str, Array]) -> None:
        """`weights`: name -> float32 (rows, cols), as `dequantize` returns them."""
        self.plan = plan
        self.weights = weights
        self.buffers = {b.name: np.zeros(b.shape, DTYPES[b.dtype]) for b in plan.buffers.values()}
        for name, data in plan.constants.items():
            self.write(name, data)
        self.write("state", first_tables(plan.page_groups, plan.n_ctx, plan.page), TABLES)

    @property
    def states(self) -> Array:
        """A State per token of a small batch, (tokens, STATE_WORDS)."""
        return self.buffers["state"][: TABLES // 4].reshape(-1, STATE_WORDS)

    def write(self, name: str, data: bytes | memoryview, at: int = 0) -> None:
        """Write 32-bit words into a buffer at byte `at`."""
        words = np.frombuffer(data, np.uint32)
        self.buffers[name].reshape(-1).view(np.uint32)[at // 4 : at // 4 + len(words)] = words

    def reserve_pages(self, pages: Sequence[int]) -> None:
        """Grow the caches to so many pages, by group."""
        for group, count in zip(self.plan.page_groups, pages, strict=True):
            for b in self.plan.with_pages(group, count):
                grown = np.zeros(b.shape, DTYPES[b.dtype])
                grown[: len(self.buffers[b.name])] = self.buffers[b.name]
                self.buffers[b.name] = grown
            self.plan.set_pages(group, count)

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        """Write entries of a sequence's block table."""
        entry = table_offset(self.plan.n_ctx, self.plan.page, group, seq) + first
        self.write("state", np.array(pages, np.uint32).tobytes(), TABLES + 4 * entry)

    def copy_page(self, group: int, source: int, to: int) -> None:
        """Copy a page in every cache of a group."""
        rows = self.plan.page_rows(self.plan.page_groups[group])
        for name in self.plan.page_groups[group].caches:
            cache = self.buffers[name]
            cache[to * rows : (to + 1) * rows] = cache[source * rows : (source + 1) * rows]

    def read_pages(self, pages: Sequence[tuple[int, int]]) -> bytes:
        """The contents of pages (group, page) in all stored caches of their groups, one after the other."""
        return b"".join(self._page(name, page).tobytes() for group, page in pages for name in self._stored(group))

    def write_pages(self, pages: Sequence[tuple[int, int, int]], data: bytes) -> None:
        """Write pages (group, page, first byte in `data`)."""
        for group, page, first in pages:
            at = first
            for name in self._stored(group):
                rows = self._page(name, page)
                rows.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8, rows.nbytes, at)
                at += rows.nbytes

    def _stored(self, group: int) -> list[str]:
        return self.plan.page_groups[group].stored

    def _page(self, name: str, page: int) -> Array:
        return self.buffers[name][page * self.plan.page : (page + 1) * self.plan.page]

    def set_tokens(self, seq: int, position: int, ids: list[int]) -> None:
        """Write tokens of a sequence."""
        self.buffers["tokens"][seq, position : position + len(ids)] = ids

    def set_media(self, seq: int, shift: int | None, media: MediaBatch | None) -> None:
        """Write the shift of a sequence's rotary positions, and a batch's media, where they are given."""
        n_ctx, page = self.plan.n_ctx, self.plan.page
        if shift is not None:
            self.write("state", struct.pack("<i", shift), TABLES + 4 * shift_index(n_ctx, page, seq))
        if media is None:
            return
        self.write("state", media.records.tobytes(), records_at(n_ctx, page))
        given = self.buffers["media"]
        for rows in media.rows:
            values = np.asarray(rows.values, np.float32).reshape(-1, given.shape[1])
            given[rows.token : rows.token + rows.count] = values[rows.first : rows.first + rows.count]

    def feed(self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0) -> None:
        """Write tokens of a sequence at their positions and run lists on them."""
        self.set_tokens(seq, position, ids)
        self.states[0] = position, len(ids), 0, seq
        for name in lists:
            self.run(name)

    def feed_packed(self, batch: PackedBatch, lists: Sequence[str], seq: int = 0) -> None:
        """Write a batch of a packed sequence and its segments, and run lists on it."""
        for at, words in batch.words(self.plan):
            self.write("state", words.tobytes(), at)
        self.feed(batch.position, batch.ids.tolist(), lists, seq)

    def run(self, name: str) -> None:
        """Run a list of the plan on the batch that the state describes."""
        self._run([op for op in self.plan.lists[name] if op.contexts.include(inf)])

    def run_op(self, op: Op) -> None:
        """Run one op."""
        self._run([op])

    def _run(self, ops: Sequence[Op]) -> None:
        states, tables = self.states, self.buffers["state"][TABLES // 4 :]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for op in ops:
                bound = {
                    name: self.weights[b.name] if isinstance(b, Weight) else self._array(b)
                    for name, b in op.bindings.items()
                }
                KERNELS[op.kernel](Call(op.params, op.consts, bound, states, tables, op.grid))

    def _array(self, b: Buffer) -> Array:
        """A buffer. An op may see an activation in another shape than the plan: several of its rows as one."""
        array, planned = self.buffers[b.name], self.plan.buffers.get(b.name)
        if b.pool != "activations" or planned is None or planned.shape == b.shape:
            return array
        return array.reshape(-1)[: prod(b.shape)].reshape(b.shape)


def dequantize(weight: Weight, raw: Array) -> Array:
    """Dequantize a weight's rows from the bytes of the GGUF file (uint8) to float32 (rows, cols)."""
    return dequantize_rows(raw.reshape(weight.rows, row_bytes(weight.type, weight.cols)), weight.type)
