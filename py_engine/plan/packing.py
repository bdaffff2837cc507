"""Packing: several short sequences are computed as one, and so fill a batch.

The sequences, called segments, follow each other in the positions of one sequence and share its block table. Rotation
counts from a segment's beginning, and its tokens see only each other. The state buffer holds the segment of each token
of the batch (wgsl/lib/segments.wgsl).

Prompts of several requests are packed, too. Each begins with a new page, so that the shared block table can list every
request's own pages.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from py_engine.plan.kernels import has_param
from py_engine.plan.lists import PACKED, SMALL_BATCH, SMALL_BATCH_LOGITS
from py_engine.plan.pages import SEGMENT_WORDS, record_index
from py_engine.plan.plan import Buffer, Op, Plan


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


def packed_prompts(prompts: Sequence[list[int]], page: int) -> PackedBatch:
    """Whole prompts as one batch, each from a new page on. Row i of the results is prompt i's.

    The tokens that fill the last page of a prompt are a segment of their own; the row of all these segments follows
    those of the prompts.
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
