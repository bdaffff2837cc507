"""Lists for prompts by the size of their batches: the same ops, where products have other tiles.

Large tiles read a matrix less often. In a batch of few tokens they would be too few to occupy a GPU: 16 tokens of an 8B
model took 85 ms instead of 26 on an H200. So a list of prompts has the tiles for USUAL_TOKENS, short(list) and
medium(list) those for fewer, and long(list) those for the whole batch, where they differ. A token has the same result
in all of them. Those of split_attention.py differ in rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from py_engine.plan import matmul_tiles, split_attention, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.lists import MEDIA, PACKED, PREFILL, long, medium, plain, short
from py_engine.plan.lists import split_attention as with_split_attention
from py_engine.plan.plan import Op, PerToken, Plan, Weight

USUAL_TOKENS = 512  # tokens up to which a batch runs the lists as they are named
# the same of lists for fewer tokens
FEWER_TOKENS = ((short, 64), (medium, matmul_tiles.MAX_SMALL_TILES_BATCH))


def split(plan: Plan, device: Device) -> None:
    """Split the lists of prompts by the size of batches. Those of other sizes are compiled when first used."""
    for name in [name for name in plan.lists if plain(name) in (PREFILL, PACKED, MEDIA)]:
        ops = plan.lists[name]
        usual = [_in_tiles_for(op, device, USUAL_TOKENS) for op in ops] if plan.batch > USUAL_TOKENS else ops
        fewer = [(list_of, n) for list_of, n in FEWER_TOKENS if n < plan.batch]
        others = {list_of(name): [_in_tiles_for(op, device, n) for op in ops] for list_of, n in fewer}
        plan.lists[name] = usual
        for other, its_ops in {**others, long(name): ops}.items():
            _add(plan, other, its_ops, unless=usual)
        for list_of, n in fewer if plain(name) == PREFILL and plan.causal else ():
            divided = split_attention.split(plan, others[list_of(name)], n, device)
            _add(plan, with_split_attention(list_of(name)), divided, unless=others[list_of(name)])
        # more tokens than the lists for fewer; tiles of attention_matrix.wgsl are enough in so many
        if plain(name) == PREFILL and plan.causal and plan.batch > matmul_tiles.MAX_SMALL_TILES_BATCH:
            divided = split_attention.split(plan, usual, USUAL_TOKENS, device, ("attention",))
            _add(plan, with_split_attention(name), divided, unless=usual)


def _add(plan: Plan, name: str, ops: list[Op], *, unless: list[Op]) -> None:
    """Add a list that is compiled when first used, unless it is that of other batches."""
    if ops != unless:
        plan.lists[name] = ops
        plan.lazy.add(name)


def lists_for(plan: Plan, lists: Sequence[str], n: int, split_attention: bool = False) -> list[str]:
    """The lists that do what these do, for a batch of n tokens. `split_attention`: with it, where there is one."""
    found, list_of = list[str](), _list_of(n)
    for name in lists:
        divided = [with_split_attention(list_of(name))] if split_attention else []
        found.append(next((other for other in (*divided, list_of(name)) if other in plan.lists), name))
    return found


def splits_attention(plan: Plan, n: int, end: int) -> bool:
    """Whether a batch of n tokens that ends at position `end` is faster with split attention."""
    return end >= split_attention.LEAST_POSITIONS and with_split_attention(_list_of(n)(PREFILL)) in plan.lists


def _list_of(n: int) -> Callable[[str], str]:
    """What names the list for a batch of n tokens."""
    sizes: list[tuple[Callable[[str], str], int]] = [*FEWER_TOKENS, (str, USUAL_TOKENS)]
    return next((list_of for list_of, most in sizes if n <= most), long)


def _in_tiles_for(op: Op, device: Device, batch: int) -> Op:
    """The op with the tile that its product has in batches of `batch` tokens."""
    weight = op.bindings.get("w")
    if op.kernel == "attention_matrix":
        return _attention_in_tiles_for(op, batch)
    if op.kernel == "group_experts" or op.params.get("GROUPED"):
        return _in_grouped_tiles_for(op, device, batch)
    fixed = op.params.get("CACHED")
    if op.kernel not in ("matmul", "matmul_int8", "matmul_matrix") or fixed or not isinstance(weight, Weight):
        return op
    precise = op.kernel == "matmul"  # or of a type that has no integers
    kernel, tile = matmul_tiles.product(device, batch, weight, str(op.params["EPILOGUE"]), precise=precise)
    grid = (-(-weight.rows // tile["TN"]), PerToken(tile["TM"]), 1)
    return replace(op, kernel=kernel, params=op.params | tile, grid=grid)


def _attention_in_tiles_for(op: Op, batch: int) -> Op:
    """Attention with its tile in batches of `batch` tokens. A row's result does not depend on its tile."""
    heads, tokens, z = op.grid
    assert isinstance(heads, int)
    assert isinstance(tokens, PerToken)
    group = int(op.params["G"])
    rows = tiles.attention_rows(int(op.params["ROWS"]), group, batch, heads)
    grid = (heads, replace(tokens, tile=rows // group), z)
    return replace(op, params=op.params | {"ROWS": rows, "TQ": rows // group}, grid=grid)


def _in_grouped_tiles_for(op: Op, device: Device, batch: int) -> Op:
    """The same of an op of group_experts.wgsl, or of a product of experts. Tiles differ with subgroup matrices only."""
    if not device.matrix:
        return op
    experts, used = int(op.params["EXPERTS"]), int(op.params["USED"])
    tile = dict(zip(matmul_tiles.MATMUL, matmul_tiles.grouped_tile(device, batch, used, experts), strict=True))
    weight = op.bindings.get("w")
    if not isinstance(weight, Weight):  # group_experts.wgsl
        return replace(op, params=op.params | {"TM": tile["TM"]})
    tile = matmul_tiles.of_experts(tile, weight)
    rows = int(op.params["STACK"]) * int(op.params["ROWS"])
    grid = (-(-rows // tile["TN"]), matmul_tiles.grouped_tiles(tile["TM"], used, experts), 1)
    return replace(op, params=op.params | tile, grid=grid)
