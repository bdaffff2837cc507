"""The router of a mixture of experts: how a token's experts are chosen, and what is chosen. Shapes as in ops.py."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, PerToken, Weight

MAX_ROUTE_THREADS = 256  # threads of a workgroup of route.wgsl, each with an expert at a time


@dataclass(frozen=True)
class Routing:
    """How a router chooses experts from its logits.

    A `bias` (experts) is added to the probabilities when choosing, but not to the weights.
    """

    experts: int
    used: int  # experts per token
    normalised: bool  # the weights of the chosen experts are scaled to sum to 1
    scale: float = 1.0  # factor of the weights
    gating: str = "softmax"  # over all experts, or of each "sigmoid" or "sqrt_softplus"
    bias: Weight | None = None
    groups: int = 0  # of neighbouring experts; 0: none
    groups_used: int = 0  # experts are chosen from the groups whose two best have the largest sums
    sharing: int = 1  # neighbouring experts that share a network
    factors: Weight | None = None  # of each expert's weights (experts)
    table: Weight | None = None  # (vocabulary, used), from Weights.integers(): the experts of each token

    @property
    def networks(self) -> int:
        """Networks that the experts have."""
        return self.experts // self.sharing

    @property
    def suffix(self) -> str:
        """What ends the names of buffers: a layer may have networks of both kinds."""
        return ".shared" if self.sharing > 1 else ""


@dataclass(frozen=True)
class Route:
    """The router's result: the networks of the `chosen` (n, used) experts, and their `weights` (n, used)."""

    routing: Routing
    chosen: Buffer
    weights: Buffer

    @property
    def used(self) -> int:
        """Experts per token."""
        return self.routing.used


def choose_experts(ops: OpList, logits: Buffer, routing: Routing) -> Route:
    """Choose the `used` most probable experts from each row of logits (n, experts)."""
    chosen = ops.shaped(f"chosen{routing.suffix}", (ops.batch, routing.used), "u32")
    weights = ops.shaped(f"weights{routing.suffix}", (ops.batch, routing.used))
    bias, factors, threads = routing.bias, routing.factors, min(MAX_ROUTE_THREADS, routing.experts)
    params: dict[str, int] = {}
    if table := routing.table:
        params = {"TABLED": 1, "TOKENS": ops.tokens.shape[1]} | ops.state_params
    ops.add(
        "route",
        {"EXPERTS": routing.experts, "USED": routing.used, "NORMALISED": int(routing.normalised),
         "GATING": routing.gating, "BIASED": int(bias is not None), "WG": threads}
        | ({"GROUPS": routing.groups, "GROUPS_USED": routing.groups_used} if routing.groups else {})
        | ({"SHARING": routing.sharing} if routing.sharing > 1 else {}) | ({"FACTORS": 1} if factors else {})
        | params,
        {"scale": routing.scale, "stride": logits.shape[1]} | ({"rows": table.rows} if table else {}),
        {"logits": logits, "chosen": chosen, "weights": weights} | ({"bias": bias} if bias else {})
        | ({"factors": factors} if factors else {})
        | ({"state": ops.state, "tokens": ops.tokens, "table": table} if table else {}),
        PerToken(),
    )  # fmt: skip
    return Route(routing, chosen, weights)
