"""Ops of RWKV's time mix."""

from __future__ import annotations

from py_engine.cpu.call_layouts import GATES, WKV_RULES
from py_engine.cpu.calls import Calls, batch_fields, paging_fields, segment_fields, state_of
from py_engine.plan.plan import Op


def token_shift(m: Calls, op: Op) -> None:
    m.add(
        "token_shift", **batch_fields(m, op), **segment_fields(op), **paging_fields(op), cols=op.params["COLS"],
        parts=op.params["PARTS"], rows=op.params["WINDOWS"], writes=op.params["WRITES"],
        **{name: m.address(op, name) for name in ("factors", "windows", "changes", "x", "y0", "y1", "y2")},
        **op.consts,
    )  # fmt: skip


def wkv7_inputs(m: Calls, op: Op) -> None:
    m.add(
        "wkv7_inputs", state=state_of(m, op), cols=op.params["COLS"], heads=op.params["HEADS"],
        is_first=op.params["FIRST"], **{name: m.address(op, name) for name in ("factors", "first_values", "x")},
        **op.consts,
    )  # fmt: skip


def wkv_scan(m: Calls, op: Op) -> None:
    m.add(
        "wkv_scan", **batch_fields(m, op), **segment_fields(op), **paging_fields(op),
        rule=WKV_RULES[str(op.params["RULE"])], heads=op.params["HEADS"], groups=op.params["GROUPS"],
        size=op.params["SIZE"], **{name: m.address(op, name) for name in ("bonus", "matrices", "x", "y")},
        **op.consts,
    )  # fmt: skip


def wkv_output(m: Calls, op: Op) -> None:
    m.add(
        "wkv_output", state=state_of(m, op), cols=op.params["COLS"], heads=op.params["HEADS"],
        norm=op.params["NORM"], bonus=op.params["BONUS"], kind=GATES[str(op.params["GATE"])],
        **{name: m.address(op, name) for name in ("factors", "x", "rows", "gate", "y")}, **op.consts,
    )  # fmt: skip


CALLS = (token_shift, wkv7_inputs, wkv_scan, wkv_output)
