"""The batch that a case runs on: states, block tables, segments and tokens, chosen so that wrong indices show.

Positions cross pages, block tables scatter the pages, and pages that are only read appear several times in a table: a
long context then takes little memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from py_engine.cpu.call import Array
from py_engine.plan.decode_attention import MERGED_SPLITS
from py_engine.plan.packing import NO_END
from py_engine.plan.pages import MAX_GROUPS, PREFIX_WORDS, RECORD_WORDS, SEGMENT_WORDS, STATE_WORDS, pages_for
from py_engine.plan.plan import Op, Plan
from py_engine.plan.shared_constants import FIRST_MEDIA_ID, MAX_SEQUENCES, MAX_SMALL_BATCH
from py_engine.proof.numbers import Numbers

READ_PAGES = 3  # pages that are read and not written; prime
START = 61  # default position of a case's first token: near the end of a page, so that a batch crosses it
NOWHERE = 0xFFFFFF  # an index that no kernel may use
REJECTIONS = 3  # State.resampled before a case
SHIFTED = 100  # rotary positions and their shifts are below this
# (position, sequence) of a small batch's tokens; FAR, MERGED: those of the functions of that name. The first three
# are one sequence's.
FAR, MERGED = -1, -2
SMALL_BATCH = ((62, 1), (63, 1), (64, 1), (0, 0), (FAR, 2), (3, 3), (MERGED, 4), (45, 5))


@dataclass(frozen=True)
class Batch:
    """Tokens at (position, sequence) `places`. `per_token`: a State for each, of a small batch."""

    places: tuple[tuple[int, int], ...]
    per_token: bool
    segments: tuple[int, ...] = ()  # tokens of each segment of a packed sequence, from position 0 on
    media: bool = False  # every second token belongs to a picture that is seen as a whole
    slots: bool = False  # a sequence's first page is its own: it has the sequence's states
    part: str = ""  # of an encoder-decoder model's cache, that is read (plan/encoder_decoder.py)
    anchored: bool = False  # the tokens stand at their sequences' anchors (plan/rope.py)

    @property
    def n(self) -> int:
        """Tokens of the batch."""
        return len(self.places)

    @property
    def sequences(self) -> int:
        """Sequence slots up to the last one in use."""
        return max(seq for _, seq in self.places) + 1

    def state(self, plan: Plan, random: Numbers) -> tuple[Array, int]:
        """The words of the state buffer, and the number of pages that a cache needs; one more is never referenced."""
        states = np.full((MAX_SMALL_BATCH, STATE_WORDS), NOWHERE, np.uint32)
        count = self.n if self.per_token else 1
        states[:count] = [(pos, self.n, REJECTIONS, seq) for pos, seq in self.places[:count]]
        tables = np.full((MAX_GROUPS, MAX_SEQUENCES, pages_for(plan.n_ctx, plan.page)), NOWHERE, np.uint32)
        written = sorted({(seq, pos // plan.page) for pos, seq in self.places})
        used = sorted({seq for _, seq in self.places})
        # neighbours differ: else a split of attention may equal the next one
        steps = random.integers(1, READ_PAGES, tables[:, used].shape)
        tables[:, used] = np.cumsum(steps, axis=-1) % READ_PAGES
        for group, table in enumerate(tables):
            for i, at in enumerate(written):
                table[at] = READ_PAGES + (i + group) % len(written)
            if self.slots:
                table[used, 0] = range(len(used))
        shifts = random.integers(0, SHIFTED, (MAX_SEQUENCES,)).astype(np.uint32)
        for pos, seq in sorted(self.places, reverse=True):
            if self.anchored:
                shifts[seq] = min(pos + 1, plan.n_ctx - 1)  # so many positions are seen, as without an anchor
            elif self.part:
                shifts[seq] = -(pos + 1 if self.part == "encoder" else pos // 3) % (1 << 32)
        return np.concatenate([part.reshape(-1) for part in (states, tables, shifts, self._records(plan, random))]), (
            READ_PAGES + len(written)
        )

    def _records(self, plan: Plan, random: Numbers) -> Array:
        """What the state buffer has for each token of a packed batch, or of one with media."""
        if self.media:
            records = random.integers(0, SHIFTED, (plan.batch, RECORD_WORDS)).astype(np.uint32)
            first = self.places[0][0]
            begin, end = self.n // 4, max(1, 3 * self.n // 4)
            records[: self.n, 0] = [first + (end if begin <= m < end else m + 1) for m in range(self.n)]
            return records
        words = np.full((plan.batch, SEGMENT_WORDS), NOWHERE, np.uint32)
        pages = np.full(pages_for(plan.n_ctx, plan.page), NO_END, np.uint32)
        prefixes = np.zeros((plan.batch, PREFIX_WORDS), np.uint32)
        if self.segments:
            ends = np.cumsum(self.segments)
            all_words = [
                (end - n, end, i) for i, (n, end) in enumerate(zip(self.segments, ends, strict=True)) for _ in range(n)
            ]
            first = self.places[0][0]
            own = np.array(all_words[first : first + self.n], np.uint32).reshape(-1)
            begins = [index for encoder in plan.encoders.values() for index in encoder.segments.values()] or [0]
            for index in begins:  # an encoder has several tables
                table = words.reshape(-1)[index - min(begins) :]
                table[: own.size] = own
            if plan.packs_prefixes and ends[-1] - self.segments[-1] >= plan.page:  # the last segment has a prefix
                last = slice(max(0, self.n - self.segments[-1]), self.n)
                words[last, 0] -= plan.page
                prefixes[last, 0] = plan.page
        if not plan.packs_prefixes:
            return words
        return np.concatenate([part.reshape(-1) for part in (words, pages, prefixes)])

    def write_edges(self, tokens: Array, row0: int, end: int) -> None:
        """Let two tokens be the neighbours of a table's rows `row0` to `end`. `tokens`: (sequences, positions)."""
        for (position, seq), row in zip(self.places[1:4:2], (end, max(0, row0 - 1)), strict=False):
            tokens[seq, position] = row

    def write_media(self, tokens: Array) -> None:
        """Let every second token belong to a picture. `tokens`: (sequences, positions)."""
        for position, seq in self.places[::2] if self.media else ():
            tokens[seq, position] |= FIRST_MEDIA_ID


def batches_of(op: Op, plan: Plan, capacity: int, most: int, merged_splits: int = MERGED_SPLITS) -> Iterator[Batch]:
    """The batches for an op of a list for `capacity` tokens; at most `most` of them.

    `merged_splits`: of attention, that lib/merged_splits.wgsl joins.
    """
    n, end = min(capacity, most), plan.n_ctx
    slots = "windows" in op.bindings or "matrices" in op.bindings
    far, merged, part = (
        min(_far(op, merged_splits), end - 1),
        _merged(op, merged_splits),
        str(op.params.get("PART") or ""),
    )
    anchored = bool(op.params.get("ANCHOR"))
    if op.params.get("STATE_PER_TOKEN"):
        last = [end - 3, end - 2, *[end - 1] * len(SMALL_BATCH)]
        above = int(op.params.get("ABOVE", 0))  # tokens of shorter contexts are another kernel's
        chosen = {FAR: far, MERGED: above + merged}
        places = [
            (min(chosen.get(pos, above + pos), most), seq) for (pos, seq), most in zip(SMALL_BATCH, last, strict=False)
        ]
        # the products have code for each of their tokens
        for count in (len(places), 3) if op.kernel == "matvec_small_batch" else (len(places) - 1,):
            yield Batch(tuple(places[:count]), True, slots=slots, part=part, anchored=anchored)
        return
    unpaged = op.params.get("PAGE", plan.page) == 0
    first = 0 if unpaged else max(0, min(far, end - n))
    n = min(n, end - first)
    places = [(first + i, 1) for i in range(n)]
    lengths: list[int] = []
    if op.params.get("PACKED"):
        lengths = [first + 2, max(1, (n - 2) // 2)] if n > 2 else [first + n]
        lengths += [first + n - sum(lengths)] if sum(lengths) < first + n else []
    media = bool(op.params.get("MEDIA")) or op.kernel == "add_media"
    yield Batch(tuple(places), False, tuple(lengths), media, slots, part, anchored)
    if op.kernel == "attention_decode" and merged < far:  # attention_combine.wgsl joins so many in another way
        yield Batch(((merged, 1),), False, (), media, slots, part, anchored)


def _far(op: Op, merged_splits: int) -> int:
    """A position at which an attention kernel uses all of its loops; for short contexts, one with few splits."""
    if op.params.get("WINDOW"):
        return int(op.params["WINDOW"]) + START
    if "SPLIT" not in op.params:
        return int(op.params.get("TOP_K", 0)) + START  # an index has more positions than it chooses
    tile, splits, up_to = int(op.params["TS"]), int(op.params["SPLIT"]), int(op.params.get("UP_TO", op.contexts.up_to))
    if up_to and up_to <= tile * splits:  # each split is one tile there
        splits = min(splits, 2 * merged_splits, up_to // tile - 1)
    return max(tile * splits, int(op.params.get("ABOVE", 0))) + tile // 2 + 3


def _merged(op: Op, splits: int) -> int:
    """A position at which so many splits of attention are joined."""
    return splits * int(op.params["TS"]) - 3 if "SPLIT" in op.params else 20
