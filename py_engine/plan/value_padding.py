"""Attention whose value heads have another length than its key heads: the shorter are stored with zeros at the end."""

from __future__ import annotations

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, copy_columns


def padded(ops: OpList, rows: Buffer, heads: tuple[int, int, int], key_dim: int, value_dim: int) -> Buffer:
    """Stacked queries, keys and values with zeros after each head that is shorter than the others.

    `heads`: (n_head, n_head_kv, head_dim), which is the larger of both lengths.
    """
    n_head, n_head_kv, head_dim = heads
    if key_dim == value_dim:
        return rows
    y, at, to = ops.rows("padded_qkv", (n_head + 2 * n_head_kv) * head_dim), 0, 0
    for count, size in ((n_head + n_head_kv, key_dim), (n_head_kv, value_dim)):
        if size == head_dim:
            copy_columns(ops, Parts(rows, at), Parts(y, to), count * size)
        else:
            copy_columns(ops, Parts(rows, at, size, count), Parts(y, to, head_dim, count), size)
            rest = Parts(y, to + size, head_dim, count)
            copy_columns(ops, Parts(rows), rest, head_dim - size, scale=0.0)
        at, to = at + count * size, to + count * head_dim
    return y


def unpadded(ops: OpList, attn: Buffer, heads: tuple[int, int, int], value_dim: int, scale: float) -> Buffer:
    """The result of attention, (n, n_head * value_dim), times `scale`, without what comes of the values' zeros."""
    n_head, _, head_dim = heads
    y = ops.rows("unpadded", n_head * value_dim)
    values, targets = Parts(attn, 0, head_dim, n_head), Parts(y, 0, value_dim, n_head)
    copy_columns(ops, values, targets, value_dim, scale=scale)
    return y
