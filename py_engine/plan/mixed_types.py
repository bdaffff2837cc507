"""One dispatch for the products of x with two stacked matrices of different tensor types.

Q4_K_M files store attn_v of half of the layers as Q6_K, attn_q and attn_k as Q4_K. On a fast GPU, a small matrix takes
less time than the start of its dispatch. So some workgroups of a dispatch multiply with the first matrix, the others
with the second one (SECOND in matvec.wgsl).

A row gets the bits that it gets if each matrix has a dispatch of its own, as in lists with adapters: the same threads
share it, and as many threads add the squares of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from py_engine.plan import products, small_batch_tiles, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import MATRICES, Buffer, Op, PerToken, Weight, planes_of
from py_engine.plan.products import Product

# #params that differ between two matrices of a dispatch
OWN = ("QUANT", "GROUPS_PER_THREAD", "TK", "TR", "R", "AHEAD", "STAGED", "TOKENS")
QUAD = 4  # rows that RoPE combines


def threads(ops: OpList, stack: Sequence[Weight]) -> int:
    """Threads of a workgroup of matvec.wgsl in all products of a stack that may be one dispatch; 0 if it may not."""
    device = ops.device
    if device.software or not ops.small_batch or len(stack) != 2 or any(weight.scales for weight in stack):
        return 0
    if not all(tiles.dot8(device, w) and len(w.split(device.max_binding)) == 1 for w in stack):
        return 0
    first, second = (tiles.matvec(device, weight, True) for weight in stack)
    count = first["TK"] * first["TR"]
    tile = second["TK"], count // second["TK"], second["R"]
    fits = tiles.workgroup_bytes(device, stack[1], True, tile) <= device.max_workgroup_storage
    return count if tile[1] and fits else 0


def append(ops: OpList, stack: Sequence[Product]) -> bool:
    """Append the products of a stack as one dispatch. False if they cannot be one; then nothing is appended."""
    if not stack[0].threads:
        return False
    begin = len(ops.ops)
    for product in stack:
        products.matvec(ops, product)
    *before, first, second = ops.ops[begin:]
    joined = _joined(ops.device, first, second)
    ops.ops[begin:] = [*before, joined] if joined else []
    return joined is not None


def _joined(device: Device, first: Op, second: Op) -> Op | None:
    """Two products as one dispatch; None if more than their matrices differs, or the device cannot hold both."""
    if first.kernel != second.kernel or _shared(first) != _shared(second):
        return None
    rows = int(first.params["TK"]) * int(first.params["TR"]) // int(second.params["TK"])  # of a workgroup at a time
    if not rows:
        return None
    second = replace(second, params=second.params | {"TR": rows, "R": max(int(second.params["R"]), QUAD // rows)})
    tokens = min(int(op.params.get("TOKENS", 0)) for op in (first, second))  # the same slices
    if tokens:
        first, second = (replace(op, params=op.params | {"TOKENS": tokens}) for op in (first, second))
    workgroups = _workgroups(first) + _workgroups(second)
    own = {f"{name}_2": second.params[name] for name in OWN if name in second.params}
    joined = replace(
        first,
        params=first.params | {"SECOND": 1} | own,
        consts=first.consts | {"rows_2": second.consts["rows"]},
        bindings=first.bindings | {"w_2": second.bindings["w"]},
        grid=(PerToken(tokens), workgroups, 1) if tokens else (workgroups, 1, 1),
    )
    fits = workgroup_bytes(device, joined) <= device.max_workgroup_storage
    fits = fits and storage_buffers(joined) <= device.max_storage_buffers
    return joined if fits and workgroups <= tiles.MAX_WORKGROUPS else None


def _shared(op: Op) -> tuple[object, ...]:
    """What two products in one dispatch have in common."""
    params = {name: value for name, value in op.params.items() if name not in OWN}
    consts = {name: value for name, value in op.consts.items() if name not in ("rows", "row0")}
    return params, consts, {name: bound for name, bound in op.bindings.items() if name not in MATRICES}


def tile_rows(op: Op) -> list[int]:
    """Rows of a workgroup, of each matrix of a product."""
    return [int(op.params[f"TR{end}"]) * int(op.params[f"R{end}"]) for end in ("", "_2") if f"TR{end}" in op.params]


def _workgroups(op: Op) -> int:
    """Workgroups of a product, in a small batch those of each slice."""
    return -(-int(op.consts["rows"]) // tile_rows(op)[0])


def workgroup_bytes(device: Device, op: Op) -> int:
    """Workgroup memory of a dispatch of one or two products of bytes. Two of one token have the rounded x in common."""
    found = 0
    for end in ("", "_2"):
        if (weight := op.bindings.get("w" + end)) is None:
            continue
        assert isinstance(weight, Weight)
        tile = {name: int(op.params[name + end]) for name in OWN[2:] if name + end in op.params}
        if "TOKENS" in tile:
            found += small_batch_tiles.workgroup_bytes(device, weight, tile, bool(op.params["ROUNDS"]))
        else:
            found += tiles.workgroup_bytes(device, weight, not found, (tile["TK"], tile["TR"], tile["R"]))
    return found


def storage_buffers(op: Op) -> int:
    """Storage buffers that a dispatch binds."""
    return buffers_of(op.bindings)


def buffers_of(bindings: Mapping[str, Buffer | Weight]) -> int:
    """Storage buffers of bindings: a matrix has one for each plane."""
    return sum(len(planes_of(name, b)) if isinstance(b, Weight) else 1 for name, b in bindings.items())
