"""Ops of mixtures of experts: a router chooses a few expert networks for each token. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan import quants
from py_engine.plan.ops import Ops, pad
from py_engine.plan.plan import Buffer, PerToken, Weight

ROUTE_THREADS = 32  # threads of a workgroup of route.wgsl

Matrices = tuple[Weight, Weight | None]  # of all experts (experts * rows, cols); biases (experts, rows)


@dataclass(frozen=True)
class Routing:
    """How a router chooses experts from its logits.

    A `bias` (experts) is added to the probabilities when choosing, but not to the weights.
    """

    experts: int
    used: int  # experts per token
    normalised: bool  # the weights of the chosen experts are scaled to sum to 1
    scale: float = 1.0  # factor of the weights
    gating: str = "softmax"  # over all experts, or "sigmoid" of each
    bias: Weight | None = None


@dataclass(frozen=True)
class Route:
    """The router's result: `chosen` (n, used) experts and their `weights` (n, used)."""

    used: int
    chosen: Buffer
    weights: Buffer


@dataclass(frozen=True)
class ExpertNetwork:
    """The first half of every expert's feed-forward network: activation(gate) * up, or activation(up)."""

    gate: Matrices | None
    up: Matrices
    n_ff: int
    activation: str


def route(ops: Ops, logits: Buffer, routing: Routing) -> Route:
    """Choose the `used` most probable experts from each row of logits (n, experts)."""
    chosen = ops.buffer(f"{ops.name}.chosen", (ops.batch, routing.used), "u32")
    weights = ops.buffer(f"{ops.name}.weights", (ops.batch, routing.used))
    bias = routing.bias
    ops.add(
        "route",
        {"EXPERTS": routing.experts, "USED": routing.used, "NORMALISED": int(routing.normalised),
         "GATING": routing.gating, "BIASED": int(bias is not None), "WG": ROUTE_THREADS},
        {"scale": routing.scale, "stride": logits.shape[1]},
        {"state": ops.state, "logits": logits, "chosen": chosen, "weights": weights} | ({"bias": bias} if bias else {}),
        PerToken(ROUTE_THREADS),
    )  # fmt: skip
    return Route(routing.used, chosen, weights)


def hidden(ops: Ops, route: Route, x: Buffer, network: ExpertNetwork) -> Buffer:
    """Compute the hidden layer of every chosen expert: (n * used, n_ff)."""
    n_ff = network.n_ff
    stack = [network.gate, network.up] if network.gate else [network.up]
    rows = ops.buffer(f"{ops.name}.expert_gate_up", (ops.batch * route.used, pad(len(stack) * n_ff)))
    y = ops.buffer(f"{ops.name}.expert_hidden", (ops.batch * route.used, pad(n_ff)))
    for i, matrices in enumerate(stack):
        _append(ops, route, _ExpertProduct(x, matrices, rows, n_ff, i * n_ff))
    ops.activate(rows, y, n_ff, network.activation, gated=network.gate is not None, repeat=route.used)
    return y


def combine(ops: Ops, route: Route, x: Buffer, down: Matrices, rows: int, add_to: Buffer) -> None:
    """add_to += the weighted sum of the chosen experts' outputs for their hidden layers x (n * used, n_ff)."""
    _append(ops, route, _ExpertProduct(x, down, add_to, rows, combine=True))


@dataclass(frozen=True)
class _ExpertProduct:
    """y[:, row0 : row0 + rows] = x W^T + bias for every chosen expert; `combine`: y += their weighted sum."""

    x: Buffer
    matrices: Matrices
    y: Buffer
    rows: int
    row0: int = 0
    combine: bool = False


def _append(ops: Ops, route: Route, p: _ExpertProduct) -> None:
    weight, bias = p.matrices
    threads_per_row = 4
    while threads_per_row < 32 and threads_per_row * 2 <= quants.groups(weight.cols):
        threads_per_row *= 2
    for first, part in weight.split(ops.device.max_binding):
        ops.add(
            "experts",
            {"QUANT": part.layout.fragment, "COLS": weight.cols, "ROWS": p.rows, "USED": route.used,
             "COMBINE": int(p.combine), "BIAS": int(bias is not None), "TK": threads_per_row,
             "TR": 64 // threads_per_row},
            {"first": first, "count": part.rows, "row0": p.row0, "y_stride": p.y.shape[1]},
            {"state": ops.state, "x": p.x, "chosen": route.chosen, "w": part, "y": p.y}
            | ({"weights": route.weights} if p.combine else {}) | ({"bias": bias} if bias else {}),
            -(-p.rows * threads_per_row // 64),
            1 if p.combine else route.used,
            PerToken(),
        )  # fmt: skip
