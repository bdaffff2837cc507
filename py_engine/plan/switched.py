"""Adapters within a model that control tokens of the text switch on: low-rank products by each token's own adapter.

The products are those of a mixture of experts in which each token has one expert. Shapes as in ops.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.plan.experts import (
    ExpertProduct,
    Groups,
    append_product,
    group,
    grouped_product,
    small_product,
)
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.products import ADD
from py_engine.plan.routing import Route, Routing

SWITCH_THREADS = 64


@dataclass(frozen=True)
class Switch:
    """What a list knows of its tokens' adapters. `tokens`: those to be embedded, as the plan's tokens."""

    route: Route
    groups: Groups | None  # how a large batch is sorted by adapter
    tokens: Buffer


@dataclass(frozen=True)
class LowRank:
    """The matrices of every adapter for one product, (adapters * rank, cols) and (adapters * rows, rank).

    `row0`: the first row of the product's result in a stack.
    """

    a: Weight
    b: Weight
    row0: int = 0


def switch(ops: Ops, control: Sequence[int], substitutes: Sequence[int], others: float) -> Switch:
    """Find each token's adapter: 0, or the number of a token in `control` that came before, from 1 on.

    `substitutes`: the tokens that are embedded in place of these. `others`: the weight of any other token.
    """
    count = len(control)
    tokens = ops.buffer("switched_tokens", ops.tokens.shape, "u32", "state")
    chosen = ops.buffer(f"{ops.name}.adapters", (ops.batch, 1), "u32")
    weights = ops.buffer(f"{ops.name}.adapter_weights", (ops.batch, 1))
    ops.add(
        "switch_adapters",
        {"ADAPTERS": count, "TOKENS": tokens.shape[1], "WG": SWITCH_THREADS} | ops.state_params,
        {"others": others},
        {"state": ops.state, "tokens": ops.tokens, "control": ops.constant("control", [*control, *substitutes])}
        | {"embedded": tokens, "chosen": chosen, "weights": weights},
        PerToken(),
    )
    route = Route(Routing(count + 1, 1, normalised=False), chosen, weights)
    return Switch(route, None if ops.small_batch else group(ops, route), tokens)


def add_low_rank(ops: Ops, found: Switch, x: Buffer, pairs: Sequence[LowRank], y: Buffer) -> None:
    """y[:, row0 :] += B A x, for each pair, with the matrices of the token's adapter."""
    route, groups = found.route, found.groups
    out = ops.buffer(f"{ops.name}.switched.{y.shape[1]}", (ops.batch, y.shape[1])) if groups else None
    for pair in pairs:
        rank, rows = pair.a.rows // route.routing.networks, pair.b.rows // route.routing.networks
        low = ops.rows("switched_low", rank)
        append_product(ops, route, groups, ExpertProduct(x, (pair.a, None), low, rank))
        if groups and out:
            grouped_product(ops, route, groups, ExpertProduct(low, (pair.b, None), out, rows, row0=pair.row0))
        else:
            small_product(ops, route, ExpertProduct(low, (pair.b, None), y, rows, ADD, pair.row0, sum=True))
    if out:
        ops.add_scaled(out, 1.0, y)
