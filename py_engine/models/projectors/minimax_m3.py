"""MiniMax-M3's blocks, whose heads have thirds: unrotated, rotated by the row of the patch, and by its column.

The kernels rotate pairs (i, i + head_dim / 2). Queries and keys are brought into that order: their products stay.
Source: minimax-m3.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.models.projectors import block
from py_engine.models.projectors.heads import finish, hidden, merge
from py_engine.models.projectors.stages import Stages
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, copy_columns

Span = tuple[int, int]  # the first dimension of a head, and the one after the last


def third(head_dim: int) -> int:
    """Dimensions that turn by one axis."""
    return 2 * (2 * (head_dim // 2) // 3 // 2)


def order(head_dim: int) -> list[Span]:
    """The dimensions of a head in the order that the kernels rotate: the first of each pair, then the second."""
    size = third(head_dim)
    half, rest = size // 2, [*range(size), *range(3 * size, head_dim)]
    count = head_dim // 2 - size
    spans: list[Span] = []
    for second, still in enumerate((rest[:count], rest[count:])):
        spans += [(first, first + half) for first in (size + second * half, 2 * size + second * half)]
        spans += _runs(still)
    return spans


def _runs(dimensions: list[int]) -> list[Span]:
    """Numbers as spans that follow each other."""
    spans: list[Span] = []
    for i in dimensions:
        if spans and spans[-1][1] == i:
            spans[-1] = spans[-1][0], i + 1
        else:
            spans.append((i, i + 1))
    return spans


class Block(block.Block):
    """A block whose queries and keys are reordered before they are rotated."""

    def arranged(self, y: Buffer) -> Buffer:
        """Queries and keys in the order of the rotation, and the values as they are."""
        ops, (n_head, n_head_kv, dim) = self.ops, self.stages.tower.heads
        heads, found = n_head + n_head_kv, ops.rows("arranged", (n_head + 2 * n_head_kv) * dim)
        at = 0
        for first, end in order(dim):
            copy_columns(ops, Parts(y, first, dim, heads), Parts(found, at, dim, heads), end - first)
            at += end - first
        values = heads * dim
        copy_columns(ops, Parts(y, values), Parts(found, values), n_head_kv * dim)
        return found


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """The end of the encoder: two layers of patches, then two of squares."""
    y, width = hidden(s, x, "mm.1", s.tower.embedding_length, "gelu_erf")
    cols = s.w.rows("mm.2.weight")
    weight, bias = s.w.matrix("mm.2.weight", cols, width), s.w.optional_vector(("mm.2.bias", cols))
    y = s.ops.project("projected", y, weight, bias)
    y = merge(s, y, cols)
    y, width = hidden(s, y, "mm.merger.fc1", s.tower.merge**2 * cols, "gelu_erf")
    return finish(s, y, "mm.merger.fc2", width)
