"""Packing: several short sequences are computed as one, and so fill a batch.

The sequences, called segments, follow each other in the positions of one sequence and share its block table. Rotation
counts from a segment's beginning, and its tokens see only each other. The state buffer holds the segment of each token
of the batch (wgsl/lib/segments.wgsl).

Prompts of several requests are packed, too. Each begins with a new page, so that the shared block table can list every
request's own pages. The caches may have the beginning of a prompt: those tokens are not in the batch. Pages of that
beginning that are also the first prompt's are listed once: they are the prompt's prefix. So the positions of a batch
have gaps: between the end of a prompt and the next page, and where the caches have a beginning. The state buffer then
also holds, after the segments,

    filled     (pages of a context): the position after the last one of each listed page that has keys and values
    prefixes   (tokens, PREFIX_WORDS): positions of a token's prefix, and the positions in gaps before the token

Plans with kernels that cannot skip gaps pack whole prompts only, with padding between them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from py_engine.plan.kernels import has_param
from py_engine.plan.lists import PACKED, SMALL_BATCH, SMALL_BATCH_LOGITS
from py_engine.plan.pages import PREFIX_WORDS, SEGMENT_WORDS, pages_for, record_index, records_at
from py_engine.plan.plan import Buffer, Op, Plan

# the kernels that can skip gaps between positions, and #params with which they cannot
WITH_GAPS = (
    *("attention", "attention_matrix", "embed", "kv_quantize", "norm_rope_append"),
    *("pool", "rope_append", "scale_queries"),
)
WITHOUT_GAPS = ("ALIBI", "RELATIVE", "INDEXED", "NOPE", "CACHED")
NO_END = (1 << 32) - 1


@dataclass(frozen=True)
class PackedBatch:
    """Tokens of a packed sequence, from `position` on."""

    position: int
    ids: array[int]
    segments: array[int]  # (tokens, SEGMENT_WORDS): first position, end, row of the result
    last: bool  # the packed sequence ends here
    long: bool  # it has one segment, longer than the span
    filled: array[int] = field(default_factory=lambda: array("I"))  # of its pages; none: all positions are filled
    prefixes: array[int] = field(default_factory=lambda: array("I"))  # (tokens, PREFIX_WORDS); none: there are no gaps

    def words(self, plan: Plan) -> list[tuple[int, array[int]]]:
        """What the state buffer has of the batch: (byte of the buffer where words begin, the words)."""
        found = [(records_at(plan.n_ctx, plan.page), self.segments)]
        if plan.packs_prefixes:
            pages = pages_for(plan.n_ctx, plan.page)
            filled = self.filled + array("I", [NO_END]) * (pages - len(self.filled))
            prefixes = self.prefixes or array("I", [0]) * (PREFIX_WORDS * len(self.ids))
            found.append((found[0][0] + 4 * SEGMENT_WORDS * plan.batch, filled + prefixes))
        return found


@dataclass(frozen=True)
class PackedPrompt:
    """What a batch has of a prompt: the tokens from position `begin` on. The caches have those before."""

    ids: list[int]
    begin: int = 0
    shared: int = 0  # positions before, whole pages, that the first prompt of the batch has in the same pages

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.begin + len(self.ids)

    def own_pages(self, page: int) -> int:
        """Pages that it does not share with the first prompt."""
        return pages_for(self.end - self.shared, page)


def packed_params(plan: Plan) -> dict[str, int]:
    """The #params of the kernels of a packed list."""
    first = record_index(plan.n_ctx, plan.page)
    prefixes = first + SEGMENT_WORDS * plan.batch + pages_for(plan.n_ctx, plan.page)
    return {"PACKED": 1, "SEGMENTS": first} | ({"PREFIXES": prefixes} if plan.packs_prefixes else {})


def packed(plan: Plan, ops: Sequence[Op]) -> list[Op]:
    """The ops of a list for packed batches."""
    params = packed_params(plan)
    return [replace(op, params=op.params | params) if has_param(op.kernel, "PACKED") else op for op in ops]


def may_have_gaps(ops: Sequence[Op]) -> bool:
    """Whether the positions of a batch for these ops may have gaps."""
    return all((op.kernel in WITH_GAPS or not has_param(op.kernel, "PACKED")) and _skips_gaps(op.params) for op in ops)


def _skips_gaps(params: Mapping[str, int | float | str]) -> bool:
    return bool(params.get("CAUSAL", 1)) and not any(params.get(name) for name in WITHOUT_GAPS)


def packs_prompts(plan: Plan, end: Buffer, batch_end: Buffer) -> bool:
    """Whether a batch may hold prompts of several requests.

    Not if layers have recurrent states, or if logits are made of more than the hidden states after the layers: `end` of
    a prompt's batch, `batch_end` of a small batch.
    """
    if plan.recurrent or not plan.causal or PACKED not in plan.lists:
        return False
    layers, logits = (
        {bound.name for op in plan.lists[name] for bound in op.bindings.values() if isinstance(bound, Buffer)}
        for name in (SMALL_BATCH, SMALL_BATCH_LOGITS)
    )
    activations = {name for name in layers & logits if plan.buffers[name].pool == "activations"}
    alike = (end.shape[1], end.dtype) == (batch_end.shape[1], batch_end.dtype)
    return alike and activations <= {batch_end.name}


def packed_prompts(prompts: Sequence[PackedPrompt], page: int) -> PackedBatch:
    """Prompts as one batch, at the positions of the first one and in pages after it.

    Row i of the results is prompt i's.
    """
    ids, segments, filled, prefixes = (array("I") for _ in range(4))
    position = prompts[0].begin
    for row, prompt in enumerate(prompts):
        first = page * len(filled)  # position where its own pages begin
        begin, end = first - prompt.shared, first + prompt.end - prompt.shared
        gaps = begin + prompt.begin - position - len(ids)
        ids.extend(prompt.ids)
        segments.extend(array("I", (begin, end, row)) * len(prompt.ids))
        prefixes.extend(array("I", (prompt.shared, gaps)) * len(prompt.ids))
        filled.extend(min(at + page, end) for at in range(first, end, page))
    return PackedBatch(position, ids, segments, last=True, long=False, filled=filled, prefixes=prefixes)


def padded_prompts(prompts: Sequence[list[int]], page: int) -> PackedBatch:
    """Whole prompts as one batch without gaps, each from a new page on. Row i of the results is prompt i's.

    The padding at the end of each prompt's last page is a segment of its own. All these segments have one row of the
    results, after the prompts' rows.
    """
    ids, segments = array("I"), array("I")
    for row, prompt in enumerate(prompts):
        for part, to in ((prompt, row), ([0] * (-len(prompt) % page), len(prompts))):
            begin = len(ids)
            ids.extend(part)
            segments.extend(array("I", (begin, len(ids), to)) * len(part))
    end = len(ids) - -len(prompts[-1]) % page
    return PackedBatch(0, ids[:end], segments[: SEGMENT_WORDS * end], last=True, long=False)


def packed_batches(sequences: Sequence[list[int]], span: int, size: int) -> Iterator[PackedBatch]:
    """Pack sequences in their order into packed sequences of at most `span` tokens, in batches of at most `size`.

    A longer sequence is alone in its packed sequence. The rows of the results are the sequences' indices.
    """
    ids, segments = array("I"), array("I")
    for row, sequence in enumerate(sequences):
        if ids and len(ids) + len(sequence) > span:
            yield from _cut(ids, segments, span, size)
            ids, segments = array("I"), array("I")
        end = len(ids) + len(sequence)
        segments.extend(array("I", (len(ids), end, row)) * len(sequence))
        ids.extend(sequence)
    yield from _cut(ids, segments, span, size)


def _cut(ids: array[int], segments: array[int], span: int, size: int) -> Iterator[PackedBatch]:
    for at in range(0, len(ids), size):
        end = at + size
        words = segments[SEGMENT_WORDS * at : SEGMENT_WORDS * end]
        yield PackedBatch(at, ids[at:end], words, end >= len(ids), len(ids) > span)
