"""The product after attention joins the splits of short contexts itself, which saves a dispatch for each layer.

attention_combine.wgsl and the product after it become three ops: both, for longer contexts, and the product that reads
the splits. They give a token the same bits, as lib/merged_splits.wgsl joins few splits in both. Of one token, this is
the product with attn_output; of latent attention, also of a small batch's tokens, those with the heads' value matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from py_engine.plan.kernels import Device
from py_engine.plan.plan import Contexts, Op
from py_engine.plan.quants import GROUP

KERNEL = "attention_combine"
JOINED = ("HEAD_DIM", "TS", "SPLIT", "MERGED", "SINKS", "WINDOW", "CHUNKED")  # #params that the product takes over

JOINING_THREADS = 256  # of a workgroup of head_products.wgsl


def merge(ops: list[Op], device: Device) -> None:
    """Let the products of a list join the splits, where they can."""
    if device.software:
        return
    for i in range(len(ops) - 2, -1, -1):
        combine, product = ops[i : i + 2]
        if _joins(combine, product) and _reads_alone(combine, ops[i + 2 :]):
            ops[i : i + 2] = _alternatives(device, combine, product)


def _reads_alone(combine: Op, later: Iterable[Op]) -> bool:
    """Whether no later op binds what `combine` has joined, before another one writes the same buffer."""
    joined = combine.bindings["y"]
    first = next((op for op in later if joined in op.bindings.values()), None)
    return first is None or (first.kernel == KERNEL and first.bindings["y"] == joined)


def _joins(combine: Op, product: Op) -> bool:
    """Whether a product of bytes can join the splits in place of the dispatch before it."""
    if combine.kernel != KERNEL or combine.params["FRESH"] or combine.params.get("PART"):
        return False
    if product.kernel == "head_products":
        aligned = int(product.consts["x_first"]) % 4 == 0 and product.consts["x_head"] == combine.params["HEAD_DIM"]
        whole = aligned and product.params["TM"] == 1
    else:
        plain = product.kernel == "matvec" and product.params["DOT8"] and not product.params.get("BESIDE")
        whole = bool(plain and not product.params["LAST"] and not product.params["NORM"])
    return whole and product.bindings["x"] == combine.bindings["y"] and int(product.params["COLS"]) % GROUP == 0


def _alternatives(device: Device, combine: Op, product: Op) -> list[Op]:
    """For contexts of more splits than MERGED: both as they are; for others the product with the splits."""
    limit = int(combine.params["MERGED"]) * int(combine.params["TS"])
    bindings = {name: bound for name, bound in product.bindings.items() if name != "x"}
    bindings |= {name: combine.bindings[name] for name in ("parts", "sinks") if name in combine.bindings}
    params = product.params | {name: combine.params[name] for name in JOINED if name in combine.params}
    grid = product.grid
    if product.kernel == "head_products":  # with few workgroups for a head, as each of them joins its splits
        params |= {"WG": min(JOINING_THREADS, device.max_threads)}
        grid = -(-int(params["ROWS"]) * int(params["TK"]) // int(params["WG"])), *grid[1:]
    return [
        replace(combine, contexts=Contexts(above=limit)),
        replace(product, params=params, bindings=bindings, grid=grid, contexts=Contexts(up_to=limit)),
        replace(product, contexts=Contexts(above=limit)),
    ]
