"""What the host writes into the CPU engine's buffers: what the kernels of the next step read."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

from py_engine.cpu.device import Copy, Device, Region
from py_engine.cpu.memory import Memory
from py_engine.plan.media import MediaBatch
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import TABLES, first_tables, records_at, shift_index, table_offset
from py_engine.plan.plan import Plan
from py_engine.plan.sampler_ops import DRAFTING, Rules
from py_engine.plan.sampling import MASKED_AT, SAMPLING_BYTES, Sampling
from py_engine.runners import Row


class Inputs:
    """Writes one plan's inputs, in the layout that plan/ gives them."""

    def __init__(self, plan: Plan, device: Device, memory: Memory) -> None:
        self._plan, self._device, self._memory = plan, device, memory
        self._rules = Rules(plan.n_vocab)

    def write(self, name: str, data: Any, at: int = 0, size: int | None = None) -> None:
        """Write into a buffer at byte `at`."""
        size = len(data) if size is None else size
        if size:
            self._device.write(data, [Copy(self._memory.buffer(name) + at, 0, size)])

    # -- tokens and their places

    @property
    def _capacity(self) -> int:
        """Tokens of a sequence."""
        return self._plan.buffers["tokens"].shape[1]

    def tokens(self, seq: int, position: int, ids: Sequence[int]) -> None:
        """Write tokens of a sequence."""
        self.write("tokens", array("I", ids).tobytes(), 4 * (seq * self._capacity + position))

    def tokens_region(self, seq: int, position: int, count: int) -> Region:
        """Where tokens of a sequence are."""
        return Region(self._memory.buffer("tokens") + 4 * (seq * self._capacity + position), 4 * count)

    def states(self, rows: Sequence[Row], n: int) -> None:
        """Set the State of each token of a small batch, or of one sequence's `n` tokens."""
        self.write("state", b"".join(struct.pack("<4I", row.position, n, 0, row.seq) for row in rows))

    def first_tables(self) -> None:
        """Write the block tables of a plan whose caches have their first pages."""
        self.write("state", first_tables(self._plan.page_groups, self._plan.n_ctx, self._plan.page), TABLES)

    def pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        """Write entries of a block table."""
        entry = table_offset(self._plan.n_ctx, self._plan.page, group, seq) + first
        self.write("state", array("I", pages).tobytes(), TABLES + 4 * entry)

    def shift(self, seq: int, shift: int) -> None:
        """Set how far a sequence's positions are from those of its prompt."""
        at = TABLES + 4 * shift_index(self._plan.n_ctx, self._plan.page, seq)
        self.write("state", struct.pack("<i", shift), at)

    # -- other records of a step

    def media(self, media: MediaBatch) -> None:
        """Write the records and embeddings of a batch with media."""
        self.write("state", media.records.tobytes(), records_at(self._plan.n_ctx, self._plan.page))
        width, buffer = 4 * self._plan.media_width, self._memory.buffer("media")
        for rows in media.rows:
            part = Copy(buffer + width * rows.token, width * rows.first, width * rows.count)
            flat = (
                rows.values.reshape(-1) if hasattr(rows.values, "reshape") else rows.values
            )  # numpy's; a Float32Array
            self._device.write(flat, [part])

    def segments(self, batch: PackedBatch) -> None:
        """Write which sequence each token of a packed batch belongs to."""
        self.write("state", batch.segments.tobytes(), records_at(self._plan.n_ctx, self._plan.page))

    # -- sampling

    def sampling(self, seq: int, sampling: Sampling, answer: int, shifted: int) -> None:
        """Write a sequence's sampling parameters."""
        self.write("rules", sampling.biases(), self._rules.biases(seq))
        self.write("rules", sampling.breaker_bits(self._plan.n_vocab), self._rules.breakers(seq))
        self.write("sampling", sampling.pack(answer, shifted), seq * SAMPLING_BYTES)

    def mask(self, seq: int, allowed: Any | None) -> None:
        """Write the tokens that may follow in a sequence; None: all."""
        if allowed is not None:
            self.write("rules", allowed, self._rules.mask(seq), 4 * self._rules.bit_words)
        self.write("sampling", struct.pack("<I", allowed is not None), seq * SAMPLING_BYTES + MASKED_AT)

    # -- drafts

    def start_draft(self, seq: int) -> None:
        """Let a sequence's drafts begin."""
        self.write("drafting", struct.pack("<2I", 0, 2), self._drafting(seq))

    def draft_end(self, seq: int, end: int) -> None:
        """Set the position before which a sequence's draft ends; 0: a draft model's."""
        self.write("drafting", struct.pack("<I", end), self._drafting(seq))

    def newest_region(self, seq: int) -> Region:
        """Where the position of a sequence's newest token is."""
        at = self._drafting(seq) + 4 * DRAFTING.index("newest")
        return Region(self._memory.buffer("drafting") + at, 4)

    @staticmethod
    def _drafting(seq: int) -> int:
        """Byte of a sequence's Drafting in the buffer."""
        return 4 * seq * len(DRAFTING)
