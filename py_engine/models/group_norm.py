"""The norm of parts of a row, one by one (PLaMo's and others' `norm_groups`)."""

from __future__ import annotations

from py_engine.models.config import Config
from py_engine.plan.ops import Ops, pad
from py_engine.plan.plan import Buffer
from py_engine.plan.rows import Parts, RowNorm, copy_columns, norm_into, shift_scale
from py_engine.plan.weights import Weights


def group_norm(cfg: Config, w: Weights, ops: Ops, x: Buffer, tensor: str) -> Buffer:
    """x with each of the parts of its rows divided by its root mean square, times the norm's weights: (n, n_embd)."""
    n, y, parts = cfg.embedding_length // cfg.norm_groups, ops.buffer(f"{ops.name}.normed", x.shape), cfg.norm_groups
    norm = RowNorm(ops.constant(f"ones.{n}", [1.0] * n), n, cfg.eps)
    if n == (wide := pad(n)):
        norm_into(ops, x, norm, y, parts)
    else:  # the kernel's rows are padded: move the parts there and back
        rows, out = ops.rows("norm_parts", parts * wide), ops.rows("normed_parts", parts * wide)
        copy_columns(ops, Parts(x, 0, n), Parts(rows, 0, wide, parts), n)
        norm_into(ops, rows, norm, out, parts)
        copy_columns(ops, Parts(out, 0, wide), Parts(y, 0, n, parts), n)
    shift_scale(ops, y, w.vector((tensor, cfg.embedding_length)))
    return y
