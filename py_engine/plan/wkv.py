"""The ops of RWKV's time mix: mixtures with the token before, and the scan of a state matrix. Shapes as in ops.py.

A layer's windows (states.py) hold the last input of each of its mixes, a row for each.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.shared_constants import THREADS
from py_engine.plan.states import States, StateShape

MAX_PARTS = 3  # results of one dispatch: with them, a kernel has as many buffers as every device allows
CHUNK_VALUES = 512  # of a key in a workgroup's memory: tokens that are loaded at a time
NORM_EPS = 64e-5  # of the norm of each head


@dataclass(frozen=True)
class Window:
    """The row of a layer's windows that holds one mix's last input. `writes`: its last op, which writes it."""

    states: States
    row: int
    rows: int
    writes: bool = True


def token_shift(
    ops: Ops, x: Buffer, factors: Weight, parts: int, window: Window, changes: Buffer | None = None
) -> list[Buffer]:
    """`parts` mixtures of x (n, cols) with the token before, for products: x[m] + (x[m - 1] - x[m]) * f.

    `factors`: f of each part (parts * cols,), and `changes` (n, parts * cols) are added to it.
    """
    cols = factors.cols // parts
    results = [ops.rows(f"shifted.{i}", cols, ops.input_dtype) for i in range(parts)]
    for first in range(0, parts, MAX_PARTS):
        some = results[first : first + MAX_PARTS]
        last = first + len(some) == parts
        ops.add(
            "token_shift",
            {"COLS": cols, "PARTS": len(some), "OWN": int(changes is not None), "WINDOWS": window.rows}
            | {"WRITES": int(window.writes and last), "Y16": int(some[0].dtype == "f16")}
            | window.states.paging
            | ops.state_params,
            {"x_stride": x.shape[1], "first": first, "changes_stride": changes.shape[1] if changes else 0}
            | {"window": window.row, "y_stride": some[0].shape[1]},
            {"state": ops.state, "x": x, "factors": factors, "windows": window.states.windows}
            | ({"changes": changes} if changes else {})
            | {f"y{i}": y for i, y in enumerate(some)},
            -(-cols // THREADS),
            PerToken(),
        )
    return results


@dataclass(frozen=True)
class WkvColumns:
    """The first columns of what the scan reads, in rows of one buffer.

    `rate` and `removed`, of RWKV-7: before wkv7_inputs(), `removed` is the mixture with the first layer's values.
    """

    rows: Buffer
    decay: int
    receptance: int
    key: int
    value: int
    rate: int = 0
    removed: int = 0


def wkv7_inputs(
    ops: Ops, columns: WkvColumns, factors: Weight, shape: StateShape, first_values: Buffer, *, first: bool
) -> None:
    """Make of a row's projections what RWKV-7's scan reads. wgsl/wkv7_inputs.wgsl has the formulas.

    `factors`: of keys, and of rates. `first_values` (n, heads * size): the first layer's values, which the `first` one
    writes.
    """
    ops.add(
        "wkv7_inputs",
        {"COLS": shape.cols, "HEADS": shape.heads, "FIRST": int(first), "WG": THREADS},
        {"stride": columns.rows.shape[1], "decay": columns.decay, "rate": columns.rate, "key": columns.key}
        | {"value": columns.value, "removed": columns.removed, "first_stride": first_values.shape[1]},
        {"factors": factors, "x": columns.rows, "first_values": first_values},
        PerToken(),
        shape.heads,
    )


@dataclass(frozen=True)
class Rule:
    """How a token changes the states: `name` is "wkv6", "gla" or "wkv7".

    `groups`: heads of keys and values. `bonus`, of "wkv6": how much more a token's own value counts.
    """

    name: str
    groups: int
    bonus: Weight | None = None


def wkv_scan(ops: Ops, rule: Rule, columns: WkvColumns, shape: StateShape, states: States) -> Buffer:
    """The receptances times the state after each token: (n, heads * size)."""
    y = ops.rows("scanned", shape.heads * shape.rows)
    ops.add(
        "wkv_scan",
        {"RULE": rule.name, "HEADS": shape.heads, "GROUPS": rule.groups, "SIZE": shape.rows}
        | {"CHUNK": 1 if ops.small_batch else max(1, CHUNK_VALUES // shape.rows)}
        | states.paging
        | ops.state_params,
        {"stride": columns.rows.shape[1], "decay": columns.decay, "receptance": columns.receptance}
        | {"key": columns.key, "value": columns.value, "removed": columns.removed, "added": columns.rate}
        | {"y_stride": y.shape[1]},
        {"state": ops.state, "x": columns.rows, "matrices": states.matrices, "y": y}
        | ({"bonus": rule.bonus} if rule.bonus else {}),
        shape.heads,
        *([PerToken()] if ops.state_params["STATE_PER_TOKEN"] else []),
    )
    return y


@dataclass(frozen=True)
class Output:
    """What is done to the scan's result.

    `factors`: weights and biases of the heads' `norm`; then those of the `bonus`, a token's own value. `gate`: a buffer
    and its `activation`, "linear", "silu" or "sigmoid".
    """

    factors: Weight | None
    norm: bool
    bonus: bool
    gate: Buffer | None
    activation: str = "linear"


def wkv_output(ops: Ops, x: Buffer, columns: WkvColumns, how: Output, shape: StateShape) -> Buffer:
    """(norm(x) + bonus) * activation(gate), for products: (n, heads * size)."""
    y = ops.rows("wkv", shape.heads * shape.rows, ops.input_dtype)
    ops.add(
        "wkv_output",
        {"COLS": shape.rows, "HEADS": shape.heads, "NORM": int(how.norm), "BONUS": int(how.bonus), "WG": THREADS}
        | {"GATE": how.activation if how.gate else "none", "Y16": int(y.dtype == "f16")},
        {"x_stride": x.shape[1], "row_stride": columns.rows.shape[1], "receptance": columns.receptance}
        | {"key": columns.key, "value": columns.value, "gate_stride": how.gate.shape[1] if how.gate else 0}
        | {"y_stride": y.shape[1], "eps": NORM_EPS},
        {"x": x, "y": y}
        | ({"factors": how.factors} if how.factors else {})
        | ({"rows": columns.rows} if how.bonus else {})
        | ({"gate": how.gate} if how.gate else {}),
        PerToken(),
        shape.heads,
    )
    return y
