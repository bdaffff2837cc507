"""The index of sparse attention."""

from __future__ import annotations

from py_engine.cpu.calls import Calls, batch_fields, key_fields, paging_fields, segment_fields, stride_of
from py_engine.plan.plan import Op


def index_append(m: Calls, op: Op) -> None:
    m.add(
        "index_append", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), heads=op.params["HEADS"],
        size=op.params["SIZE"], rope=op.params["ROPE"], first=op.params["FIRST"], row=op.params["ROW"],
        raw=op.params["RAW"], neox=op.params["NEOX"], eps=op.consts["eps"], scale=op.consts["rope_scale"],
        freqs=m.address(op, "rope_freqs"), norm=m.address(op, "norm"), x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], k=m.address(op, "k_cache"), y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def index_join(m: Calls, op: Op) -> None:
    m.add(
        "index_join", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), size=op.params["SIZE"],
        pool=op.params["POOL"], row=op.params["ROW"], gate_bias=m.address(op, "gate_bias"), k=m.address(op, "k_cache"),
    )  # fmt: skip


def index_join_raw(m: Calls, op: Op) -> None:
    m.add(
        "index_join_raw", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), size=op.params["SIZE"],
        pool=op.params["POOL"], rope=op.params["ROPE"], first=op.params["FIRST"], row=op.params["ROW"],
        neox=op.params["NEOX"], eps=op.consts["eps"], scale=op.consts["rope_scale"],
        freqs=m.address(op, "rope_freqs"), norm=m.address(op, "norm"), k=m.address(op, "k_cache"),
    )  # fmt: skip


def index_scores(m: Calls, op: Op) -> None:
    m.add(
        "index_scores", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), **key_fields(op),
        heads=op.params["HEADS"],
        size=op.params["SIZE"], pool=op.params["POOL"], row=op.params["ROW"],
        weighted=op.params["WEIGHTED"], first=op.consts["first"],
        tokens=op.consts["tokens"], width=stride_of(op, "scores"), scale=op.consts["scale"], q=m.address(op, "q"),
        q_stride=op.consts["q_stride"], x=m.address(op, "x"), x_stride=op.consts["x_stride"],
        x_first=op.consts["x_first"], k=m.address(op, "k_cache"), scores=m.address(op, "scores"),
    )  # fmt: skip


def index_choose(m: Calls, op: Op) -> None:
    m.add(
        "index_choose", **batch_fields(m, op), **segment_fields(op), top_k=op.params["TOP_K"], pool=op.params["POOL"],
        first=op.consts["first"], tokens=op.consts["tokens"], width=op.params["WIDTH"],
        scores=m.address(op, "scores"), heap=m.address(op, "heap"), mask=m.address(op, "index_mask"),
    )  # fmt: skip


CALLS = (index_append, index_join, index_join_raw, index_scores, index_choose)
