"""Ops of recurrent layers."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.call_layouts import RULES
from py_engine.cpu.calls import Calls, batch_fields, matrix_of, paging_fields, segment_fields, state_of, stride_of
from py_engine.plan.plan import Op


def ssm_conv(m: Calls, op: Op) -> None:
    m.add(
        "ssm_conv", **_window_fields(m, op), tile=op.params["TILE"], weights=m.address(op, "weights"),
        bias=m.address(op, "bias"), apart=op.params["APART"], w=m.address(op, "w"),
        type=matrix_of(op).type if "w" in op.bindings else 0, y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def ssm_window(m: Calls, op: Op) -> None:
    m.add("ssm_window", **_window_fields(m, op))


def _window_fields(m: Calls, op: Op) -> dict[str, Any]:
    """What both ops of a convolution have."""
    sizes = {"channels": op.params["CHANNELS"], "taps": op.params["TAPS"], "first": op.consts["first"]}
    places = {"windows": m.address(op, "windows"), "x": m.address(op, "x"), "x_stride": op.consts["x_stride"]}
    return {**batch_fields(m, op), **segment_fields(op), **paging_fields(op), **sizes, **places}


def ssm_scan(m: Calls, op: Op) -> None:
    columns = [*("x_stride", "values", "k_stride", "keys", "q_stride", "queries", "g_stride"), "dt", "beta", "eps"]
    m.add(
        "ssm_scan", **batch_fields(m, op), **segment_fields(op), **paging_fields(op),
        rule=RULES[str(op.params["RULE"])], tiled=op.params["TILED"], per_key=op.params.get("PER_KEY", 0),
        bound=op.consts.get("bound", 0.0), heads=op.params["HEADS"],
        groups=op.params["GROUPS"], rows=op.params["ROWS"], cols=op.params["COLS"], rates=m.address(op, "rates"),
        matrices=m.address(op, "matrices"), x=m.address(op, "x"), gates=m.address(op, "gates"),
        k=m.address(op, "k"), q=m.address(op, "q"), y=m.address(op, "y"), y_stride=op.consts["y_stride"],
        **{name: op.consts[name] for name in columns},
    )  # fmt: skip


def gated_norm(m: Calls, op: Op) -> None:
    groups = op.grid[1]
    assert isinstance(groups, int)
    m.add(
        "gated_norm", state=state_of(m, op), cols=op.params["COLS"], groups=groups, norms=op.params["NORM"],
        gate_first=op.params["GATE_FIRST"], sigmoid=op.params.get("SIGMOID", 0),
        eps=op.consts["eps"], norm=m.address(op, "norm"), x=m.address(op, "x"),
        x_stride=stride_of(op, "x"), z=m.address(op, "z"), z_stride=stride_of(op, "z"), first=op.consts["first"],
        y=m.address(op, "y"), y_stride=stride_of(op, "y"),
    )  # fmt: skip


CALLS = (ssm_conv, ssm_window, ssm_scan, gated_norm)
