"""Ops on whole rows, of encoders of pictures and sound (plan/rows.py)."""

from __future__ import annotations

from typing import Any

from py_engine.cpu.calls import Calls, matrix_of, state_of, stride_of
from py_engine.files.tensor_types import TensorType
from py_engine.plan.plan import Buffer, Op, Weight


def _matrix(m: Calls, op: Op) -> dict[str, Any]:
    w = matrix_of(op)
    return {"w": m.memory.of(w), "type": w.type}


def _taps(m: Calls, op: Op) -> dict[str, Any]:
    return {"taps": m.address(op, "taps"), "count": op.params["TAPS"]}


def patches(m: Calls, op: Op) -> None:
    m.add(
        "patches", state=m.address(op, "state"), side=op.params["PATCH"], pixels=m.address(op, "pixels"),
        places=m.address(op, "places"), values=m.address(op, "values"), y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def gather(m: Calls, op: Op) -> None:
    """The table is a matrix, or a buffer of floats whose rows follow each other."""
    plain = op.bindings.get("w_qs")
    table: dict[str, Any] = {"w": m.address(op, "w_qs"), "type": TensorType.F32} if plain else _matrix(m, op)
    m.add(
        "gather", state=m.address(op, "state"), **table, plain_stride=stride_of(op, "w_qs") if plain else 0,
        row0=op.consts["row0"], rows=op.consts["rows"], cols=op.params["COLS"], **_taps(m, op), tap0=op.consts["tap0"],
        taps_stride=op.consts["taps_stride"], add=op.params["ADD"], first=op.consts["first"], y=m.address(op, "y"),
        y_stride=op.consts["y_stride"],
    )  # fmt: skip


def unfold(m: Calls, op: Op) -> None:
    m.add(
        "unfold", state=m.address(op, "state"), cols=op.params["COLS"], **_taps(m, op), x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def nearest_code(m: Calls, op: Op) -> None:
    m.add(
        "nearest_code", state=state_of(m, op), **_matrix(m, op), codes=op.consts["codes"], row0=op.consts["row0"],
        cols=op.params["COLS"], tap=op.consts["tap"], taps=m.address(op, "taps"), taps_stride=op.consts["taps_stride"],
        x=m.address(op, "x"), x_stride=op.consts["x_stride"],
    )  # fmt: skip


def shift_scale(m: Calls, op: Op) -> None:
    factor = op.bindings["factor"]
    cols = factor.cols if isinstance(factor, Weight) else factor.shape[1]
    m.add(
        "shift_scale", state=m.address(op, "state"), cols=cols, factor=m.address(op, "factor"),
        shift=m.address(op, "shift"), x=m.address(op, "x"), x_stride=stride_of(op, "x"),
    )  # fmt: skip


def matmul_transposed(m: Calls, op: Op) -> None:
    m.add(
        "matmul_transposed", state=m.address(op, "state"), **_matrix(m, op), rows=op.consts["rows"],
        cols=op.params["COLS"], x=m.address(op, "x"), x_stride=op.consts["x_stride"], y=m.address(op, "y"),
        y_stride=stride_of(op, "y"),
    )  # fmt: skip


def depthwise(m: Calls, op: Op) -> None:
    m.add(
        "depthwise", state=m.address(op, "state"), **_matrix(m, op), channels=op.params["CHANNELS"], **_taps(m, op),
        terms=m.address(op, "terms"), terms_count=op.params["TERMS"], x=m.address(op, "x"), stride=op.consts["stride"],
        y=m.address(op, "y"),
    )  # fmt: skip


def subsample(m: Calls, op: Op) -> None:
    m.add(
        "subsample", state=m.address(op, "state"), **_matrix(m, op), channels=op.params["CHANNELS"],
        bins=op.params["BINS"], length=m.address(op, "length"), biases=m.address(op, "biases"), x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
        part_stride=op.consts["part_stride"],
    )  # fmt: skip


def _relative(m: Calls, op: Op) -> dict[str, Any]:
    return {
        "state": m.address(op, "state"),
        "heads": op.params["HEADS"],
        "head_dim": op.params["HEAD_DIM"],
        "x": m.address(op, "x"),
        "x_stride": op.consts["x_stride"],
        "relative": m.address(op, "relative"),
        "relative_stride": op.consts["relative_stride"],
        "y": m.address(op, "y"),
        "y_stride": op.consts["y_stride"],
    }


def relative_attention(m: Calls, op: Op) -> None:
    m.add(
        "relative_attention", **_relative(m, op), window=op.params["WINDOW"], soft_cap=op.params["SOFT_CAP"],
        q_scale=op.consts["q_scale"], k_scale=op.consts["k_scale"], factor=m.address(op, "factor"),
    )  # fmt: skip


def relative_attention_all(m: Calls, op: Op) -> None:
    m.add(
        "relative_attention_all", **_relative(m, op), block=op.params["BLOCK"], scale=op.consts["scale"],
        biases=m.address(op, "biases"),
    )  # fmt: skip


def softmax(m: Calls, op: Op) -> None:
    m.add(
        "softmax", state=m.address(op, "state"), cols=op.params["COLS"], x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def column_norms(m: Calls, op: Op) -> None:
    m.add(
        "column_norms", state=m.address(op, "state"), cols=op.params["COLS"], x=m.address(op, "x"),
        x_stride=op.consts["x_stride"], y=m.address(op, "y"),
    )  # fmt: skip


def response_norm(m: Calls, op: Op) -> None:
    m.add(
        "response_norm", state=state_of(m, op), cols=op.params["COLS"], least=op.consts["least"],
        x=m.address(op, "x"), x_stride=op.consts["x_stride"], lengths=m.address(op, "lengths"),
        terms=m.address(op, "terms"), y=m.address(op, "y"), y_stride=op.consts["y_stride"],
    )  # fmt: skip


def grid_heads(m: Calls, op: Op) -> None:
    m.add(
        "grid_heads", state=m.address(op, "state"), heads=op.params["HEADS"], head_dim=op.params["HEAD_DIM"],
        side=op.params["SIDE"], scale=op.consts["scale"], x=m.address(op, "x"), x_stride=op.consts["x_stride"],
        columns=m.address(op, "columns"), lines=m.address(op, "lines"), table_stride=op.consts["table_stride"],
        cells=m.address(op, "cells"), y=m.address(op, "y"), y_stride=op.consts["y_stride"], k=m.address(op, "k"),
        v=m.address(op, "v"),
    )  # fmt: skip


def scratch_bytes(op: Op, unit: int) -> int:
    """Memory that an op needs for itself in one thread. `unit`: bytes of a dequantised unit of a matrix."""
    x = op.bindings.get("x")
    match op.kernel:
        case "gather" | "matmul_transposed" | "nearest_code":
            return 4 * int(op.params["COLS"]) + unit
        case "depthwise":
            return 16 * int(op.params["TAPS"]) + unit
        case "subsample":
            return 4 * (20 * (int(op.params["CHANNELS"]) + 4) + 16) + unit
        case "relative_attention":
            return 4 * (int(op.params["WINDOW"]) + 2 * int(op.params["HEAD_DIM"]))
        case "relative_attention_all":
            assert isinstance(x, Buffer)
            return 4 * (x.shape[0] + 2 * int(op.params["HEAD_DIM"]))
        case _:
            return 0


CALLS = (
    patches, gather, nearest_code, unfold, shift_scale, matmul_transposed, depthwise, subsample, relative_attention,
    relative_attention_all, softmax, column_norms, response_norm, grid_heads,
)  # fmt: skip
