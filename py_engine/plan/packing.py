"""Packing: several sequences computed as one, so that short sequences fill a batch.

The sequences, called segments, follow each other in the positions of one sequence and share its block table. Rotation
counts from a segment's beginning, and its tokens see only each other. The state buffer holds the segment of each token
of the batch (wgsl/lib/segments.wgsl).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from py_engine.plan.kernels import has_param
from py_engine.plan.pages import SEGMENT_WORDS, record_index
from py_engine.plan.plan import Op, Plan


@dataclass(frozen=True)
class PackedBatch:
    """Tokens of a packed sequence, from `position` on."""

    position: int
    ids: array[int]
    segments: array[int]  # (tokens, SEGMENT_WORDS): first position, end, row of the result
    last: bool  # the packed sequence ends here
    long: bool  # it has one segment, longer than the span


def packed_params(plan: Plan) -> dict[str, int]:
    """The #params of the kernels of a packed list."""
    return {"PACKED": 1, "SEGMENTS": record_index(plan.n_ctx, plan.page)}


def packed(plan: Plan, ops: Sequence[Op]) -> list[Op]:
    """The ops of a list for packed batches."""
    params = packed_params(plan)
    return [replace(op, params=op.params | params) if has_param(op.kernel, "PACKED") else op for op in ops]


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
