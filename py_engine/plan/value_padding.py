"""Attention whose value heads have another length than its key heads: the shorter are stored with zeros at the end."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.op_list import OpList, pad
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, RowNorm, copy_columns, norm_into


@dataclass(frozen=True)
class Lengths:
    """The lengths of heads without zeros. `half`: zeros follow so many dimensions of a key, and so many after these."""

    key: int
    value: int
    half: int = 0

    @property
    def key_parts(self) -> list[tuple[int, int, int]]:
        """(first dimension, its place with zeros, dimensions) of each part of a key without zeros."""
        if not (half := self.half):
            return [(0, 0, self.key)]
        rest = [(2 * half, 2 * half + 2, self.key - 2 * half)] if self.key > 2 * half else []
        return [(0, 0, half), (half, half + 1, half), *rest]


def normalize_heads(ops: OpList, norm: RowNorm, heads: Parts) -> None:
    """Normalise heads of the length of `norm` in their rows."""
    wide = pad(norm.cols)  # the kernel's rows are padded: move the heads there and back
    x, y = (ops.rows(f"{name}_heads.{heads.count}", heads.count * wide) for name in ("padded", "normed"))
    copy_columns(ops, heads, Parts(x, 0, wide, heads.count), norm.cols)
    norm_into(ops, x, norm, y, heads.count)
    copy_columns(ops, Parts(y, 0, wide), heads, norm.cols)


def padded(ops: OpList, rows: Buffer, heads: tuple[int, int, int], lengths: Lengths) -> Buffer:
    """Stacked queries, keys and values with zeros in each head that is shorter than `heads` says.

    `heads`: (n_head, n_head_kv, head_dim), which is the larger of both lengths, or more.
    """
    n_head, n_head_kv, head_dim = heads
    if lengths == Lengths(head_dim, head_dim):
        return rows
    y, at, to = ops.rows("padded_qkv", (n_head + 2 * n_head_kv) * head_dim), 0, 0
    values = [(0, 0, lengths.value)]
    for count, size, parts in (
        (n_head + n_head_kv, lengths.key, lengths.key_parts), (n_head_kv, lengths.value, values)
    ):  # fmt: skip
        if size == head_dim:
            copy_columns(ops, Parts(rows, at), Parts(y, to), count * size)
        else:
            for first, place, length in parts:
                copy_columns(ops, Parts(rows, at + first, size, count), Parts(y, to + place, head_dim, count), length)
            for first, length in _gaps(parts, head_dim):
                copy_columns(ops, Parts(rows), Parts(y, to + first, head_dim, count), length, scale=0.0)
        at, to = at + count * size, to + count * head_dim
    return y


def _gaps(parts: list[tuple[int, int, int]], head_dim: int) -> list[tuple[int, int]]:
    """(first dimension, dimensions) of the zeros in a head."""
    ends = [place + length for _, place, length in parts]
    starts = [*(place for _, place, _ in parts[1:]), head_dim]
    return [(end, start - end) for end, start in zip(ends, starts, strict=True) if start > end]


def unpadded(ops: OpList, attn: Buffer, heads: tuple[int, int, int], value_dim: int, scale: float) -> Buffer:
    """The result of attention, (n, n_head * value_dim), times `scale`, without what comes of the values' zeros."""
    n_head, _, head_dim = heads
    y = ops.rows("unpadded", n_head * value_dim)
    values, targets = Parts(attn, 0, head_dim, n_head), Parts(y, 0, value_dim, n_head)
    copy_columns(ops, values, targets, value_dim, scale=scale)
    return y
