"""Attention whose value heads are shorter than its key heads: values are stored with zeros to a key head's length."""

from __future__ import annotations

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, copy_columns


def padded_values(ops: OpList, rows: Buffer, heads: tuple[int, int, int], value_dim: int) -> Buffer:
    """Stacked queries, keys and values with zeros after each value head. `heads`: (n_head, n_head_kv, head_dim)."""
    n_head, n_head_kv, head_dim = heads
    if value_dim == head_dim:
        return rows
    first = (n_head + n_head_kv) * head_dim  # of the values
    y = ops.rows("padded_qkv", first + n_head_kv * head_dim)
    copy_columns(ops, Parts(rows), Parts(y), first)
    values, targets = Parts(rows, first, value_dim, n_head_kv), Parts(y, first, head_dim, n_head_kv)
    copy_columns(ops, values, targets, value_dim)
    rest = Parts(y, first + value_dim, head_dim, n_head_kv)
    copy_columns(ops, Parts(rows), rest, head_dim - value_dim, scale=0.0)
    return y


def unpadded(ops: OpList, attn: Buffer, heads: tuple[int, int, int], value_dim: int, scale: float) -> Buffer:
    """The result of attention, (n, n_head * value_dim), times `scale`, without what comes of the values' zeros."""
    n_head, _, head_dim = heads
    y = ops.rows("unpadded", n_head * value_dim)
    values, targets = Parts(attn, 0, head_dim, n_head), Parts(y, 0, value_dim, n_head)
    copy_columns(ops, values, targets, value_dim, scale=scale)
    return y
