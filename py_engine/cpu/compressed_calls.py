"""Calls of the ops of attention to compressed keys (wasm/compressed.c)."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.calls import Calls, batch_fields, key_fields, matrix_of, paging_fields, segment_fields
from py_engine.plan.plan import Op


def window_append(m: Calls, op: Op) -> None:
    m.add(
        "window_append", **_fields(m, op), heads=op.params["HEADS"], keyed=op.params["KEYED"],
        columns=op.params["INPUTS"], eps=op.consts["eps"],
        scale=op.consts["rope_scale"], norm=m.address(op, "norm"), x=m.address(op, "x"), x_stride=op.consts["x_stride"],
        x_first=op.consts["x_first"], k=m.address(op, "k_cache"), inputs=m.address(op, "inputs"), y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def compress(m: Calls, op: Op) -> None:
    m.add(
        "compress", **_fields(m, op), **key_fields(op), ratio=op.params["RATIO"], overlaps=op.params["OVERLAPS"],
        eps=op.consts["eps"],
        scale=op.consts["rope_scale"], norm=m.address(op, "norm"), w=m.address(op, "w"), type=matrix_of(op).type,
        inputs=m.address(op, "inputs"), c=m.address(op, "c_cache"),
    )  # fmt: skip


def compressed_attention(m: Calls, op: Op) -> None:
    m.add(
        "compressed_attention", **_fields(m, op), **key_fields(op), heads=op.grid[0], window=op.params["WINDOW"],
        ratio=op.params["RATIO"], scale=op.consts["scale"], sinks=m.address(op, "sinks"),
        mask=m.address(op, "index_mask"), mask_words=op.params["INDEXED"], q=m.address(op, "q"),
        q_stride=op.consts["q_stride"], k=m.address(op, "k_cache"), c=m.address(op, "c_cache"),
        y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def _fields(m: Calls, op: Op) -> dict[str, Any]:
    """The fields that all three calls have."""
    return {
        **batch_fields(m, op),
        **segment_fields(op),
        **paging_fields(op),
        "halves": int(op.params["KV"] == "f16"),
        "size": op.params["SIZE"],
        "rope": op.params["ROPE"],
        "freqs": m.address(op, "rope_freqs"),
    }


CALLS = (window_append, compress, compressed_attention)
