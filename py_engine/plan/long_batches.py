"""Lists for long batches of a prompt: the same ops, where products have the largest tiles.

Large tiles read a matrix less often. In a batch of few tokens they would be too few to occupy a GPU: 16 tokens of an 8B
model took 85 ms instead of 26 on an H200. So a list of prompts has the tiles for SHORT tokens, and long(list) those for
the plan's whole batch, where the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from py_engine.plan import tiles
from py_engine.plan.kernels import Device
from py_engine.plan.lists import MEDIA, PACKED, PREFILL, long, plain
from py_engine.plan.plan import Op, PerToken, Plan, Weight

SHORT = 512  # tokens up to which a batch runs the list for short batches


def split(plan: Plan, device: Device) -> None:
    """Split the lists of prompts into those for usual and for long batches. The latter are compiled when first used."""
    if plan.batch <= SHORT:
        return
    for name in [name for name in plan.lists if plain(name) in (PREFILL, PACKED, MEDIA)]:
        ops = plan.lists[name]
        usual = [_in_tiles_for(op, device, SHORT) for op in ops]
        if usual != ops:
            plan.lists[name], plan.lists[long(name)] = usual, ops
            plan.lazy.add(long(name))


def sized(plan: Plan, lists: Sequence[str], n: int) -> list[str]:
    """The lists that do what these do, for a batch of n tokens."""
    return [long(name) if n > SHORT and long(name) in plan.lists else name for name in lists]


def _in_tiles_for(op: Op, device: Device, batch: int) -> Op:
    """The op with the tile that its product has in batches of `batch` tokens."""
    weight = op.bindings.get("w")
    fixed = op.params.get("GROUPED") or op.params.get("CACHED")
    if op.kernel != "matmul_matrix" or fixed or not isinstance(weight, Weight):
        return op
    kernel, tile = tiles.matmul(device, batch, weight)
    grid = (-(-weight.rows // tile["TN"]), PerToken(tile["TM"]), 1)
    return replace(op, kernel=kernel, params=op.params | tile, grid=grid)
