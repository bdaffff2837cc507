"""Ops of mixtures of experts: a router chooses a few matrices for each token. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan import quants
from py_engine.plan.ops import Ops, pad
from py_engine.plan.plan import Buffer, PerToken, Weight

ROUTE_THREADS = 32  # threads of a workgroup of route.wgsl

Matrices = tuple[Weight, Weight | None]  # of all experts, (experts * rows, cols); biases (experts, rows)


@dataclass(frozen=True)
class Route:
    """What the router said: `chosen` (n, used) experts with their `weights` (n, used)."""

    used: int
    chosen: Buffer
    weights: Buffer


def route(
    ops: Ops, logits: Buffer, experts: int, used: int, normalised: bool, scale: float, gating: str = "softmax",
    bias: Weight | None = None,
) -> Route:  # fmt: skip
    """The `used` likeliest experts of each row of logits (n, experts); with a `bias` (experts) it is added to what they
    are chosen by. `gating`: "softmax" over all experts, or "sigmoid" of each.
    """
    chosen = ops.buffer(f"{ops.name}.chosen", (ops.batch, used), "u32")
    weights = ops.buffer(f"{ops.name}.weights", (ops.batch, used))
    ops.add(
        "route",
        {"EXPERTS": experts, "USED": used, "NORMALISED": int(normalised), "GATING": gating,
         "BIASED": int(bias is not None), "WG": ROUTE_THREADS},
        {"scale": scale, "stride": logits.shape[1]},
        {"state": ops.state, "logits": logits, "chosen": chosen, "weights": weights} | ({"bias": bias} if bias else {}),
        PerToken(ROUTE_THREADS),
    )  # fmt: skip
    return Route(used, chosen, weights)


def hidden(ops: Ops, to: Route, x: Buffer, gate: Matrices | None, up: Matrices, n_ff: int, activation: str) -> Buffer:
    """activation(gate) * up, or without a gate activation(up), of x by each chosen expert: (n * used, n_ff)."""
    stack = [gate, up] if gate else [up]
    rows = ops.buffer(f"{ops.name}.expert_gate_up", (ops.batch * to.used, pad(len(stack) * n_ff)))
    y = ops.buffer(f"{ops.name}.expert_hidden", (ops.batch * to.used, pad(n_ff)))
    for i, matrices in enumerate(stack):
        _product(ops, to, x, matrices, rows, n_ff, i * n_ff, combine=False)
    ops.activate(rows, y, n_ff, activation, gated=gate is not None, repeat=to.used)
    return y


def combine(ops: Ops, to: Route, x: Buffer, down: Matrices, rows: int, add_to: Buffer) -> None:
    """add_to += the experts' answers to x (n * used, n_ff), each by its share."""
    _product(ops, to, x, down, add_to, rows, 0, combine=True)


def _product(
    ops: Ops, to: Route, x: Buffer, matrices: Matrices, y: Buffer, rows: int, row0: int, *, combine: bool
) -> None:
    weight, bias = matrices
    along = 4
    while along < 32 and along * 2 <= quants.groups(weight.cols):
        along *= 2
    for first, part in weight.split(ops.device.max_binding):
        ops.add(
            "experts",
            {"QUANT": part.layout.fragment, "COLS": weight.cols, "ROWS": rows, "USED": to.used,
             "COMBINE": int(combine), "BIAS": int(bias is not None), "TK": along, "TR": 64 // along},
            {"first": first, "count": part.rows, "row0": row0, "y_stride": y.shape[1]},
            {"state": ops.state, "x": x, "chosen": to.chosen, "w": part, "y": y}
            | ({"weights": to.weights} if combine else {}) | ({"bias": bias} if bias else {}),
            -(-rows * along // 64),
            1 if combine else to.used,
            PerToken(),
        )  # fmt: skip
