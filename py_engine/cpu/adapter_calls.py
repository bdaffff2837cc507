"""What adapters add to products and hidden states."""

from __future__ import annotations

from py_engine.cpu.call_layouts import ACTIVATIONS
from py_engine.cpu.calls import Calls, batch_fields, limits_of, matrix_of, stride_of
from py_engine.plan.low_rank_entries import count_of, expert_entries
from py_engine.plan.plan import Op


def low_rank(m: Calls, op: Op, y: int, stride: int, first: int, rows: int) -> None:
    """Add what adapters add to columns of the rows at y."""
    w = matrix_of(op)
    m.add(
        "add_low_rank", **batch_fields(m, op), last=op.params["LAST"], entries=m.address(op, "entries"),
        count=count_of(op.params), scales=m.address(op, "scales"), adapters=op.params["ADAPTERS"], w=m.memory.of(w),
        type=w.type, cols=w.cols, h=m.address(op, "h"), h_stride=op.consts["h_stride"], first=first, rows=rows, y=y,
        y_stride=stride,
    )  # fmt: skip


def add_low_rank(m: Calls, op: Op) -> None:
    rows, gated = int(op.consts["rows"]), op.params["GATED"]
    sums, first = ("x", 0) if gated else ("y", int(op.consts["first"]))
    stride = int(op.consts[f"{sums}_stride"])
    low_rank(m, op, m.address(op, sums), stride, first, 2 * rows if gated else rows)
    if gated:
        m.add(
            "activate", state=m.address(op, "state"), repeat=1, activation=ACTIVATIONS[str(op.params["ACTIVATION"])],
            **limits_of(op), gated=1, cols=rows, factors=0, x=m.address(op, "x"),
            x_stride=op.consts["x_stride"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
        )  # fmt: skip


def expert_low_rank(m: Calls, op: Op) -> None:
    w, per_slot = matrix_of(op), int(op.params["X_PER_SLOT"])
    x = m.prepare(op, w, repeat=int(op.params["USED"]) if per_slot else 1)
    m.add(
        "expert_product", state=m.address(op, "state"), exact=x.exact, x=x.address, x_row=x.row, w=m.memory.of(w),
        type=w.type, rows=op.params["ROWS"], cols=w.cols, experts=op.params["EXPERTS"], stack=op.params["STACK"],
        used=op.params["USED"], chosen=m.address(op, "chosen"), tiles=0, tile_count=0, slots=0, per_slot=per_slot,
        row0=0, bias=0, scales=0, y=m.address(op, "h"), y_stride=op.params["H_STRIDE"],
    )  # fmt: skip


def add_expert_low_rank(m: Calls, op: Op) -> None:
    w = matrix_of(op)
    for index, entry in enumerate(expert_entries(op.params)):
        m.add(
            "add_expert_low_rank", **batch_fields(m, op), index=index, adapter=entry.adapter, ratio=entry.ratio,
            first=entry.y, scales=m.address(op, "scales"), adapters=op.params["ADAPTERS"], w=m.memory.of(w),
            type=w.type, rows=op.params["ROWS"], cols=w.cols, experts=op.params["EXPERTS"], used=op.params["USED"],
            chosen=m.address(op, "chosen"), weights=m.address(op, "weights"), factors=m.address(op, "factors"),
            h=m.address(op, "h"), h_stride=op.params["H_STRIDE"], y=m.address(op, "y"),
            y_stride=op.consts["y_stride"],
        )  # fmt: skip


def add_direction(m: Calls, op: Op) -> None:
    m.add(
        "add_direction", **batch_fields(m, op), scales=m.address(op, "scales"), adapters=op.params["ADAPTERS"],
        adapter=op.consts["adapter"], direction=m.address(op, "direction"), cols=4 * int(op.params["VECS"]),
        streams=op.grid[2], x=m.address(op, "x"), x_stride=stride_of(op, "x"),
    )  # fmt: skip


CALLS = (add_low_rank, expert_low_rank, add_expert_low_rank, add_direction)
