"""The next product adds to the residual stream itself what a block returns, which saves a dispatch for each block.

Gemma and others normalise what a block returns before they add it (norm.wgsl with ADD). Others add what adapters add to
a block's product (low_rank_rows.py). Where the next op rounds the normed stream to bytes, it computes the sum as well,
with the same bits, and stores it in a second buffer: the workgroups of the same dispatch still read the first one. The
two buffers change places with each such product, and an even number of them leaves the stream where other lists look
for it.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.plan import low_rank_rows, mixed_types
from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Op
from py_engine.plan.quants import GROUP

BINDINGS = 3  # of lib/post_norm.wgsl; one more than of quantize_rows.wgsl with ADDED
ROUNDING = ("matvec", "matvec_small_batch", "quantize_rows")


def merge(ops: OpList) -> None:
    """Let the ops of one token, or of a small batch, add what the ops before theirs add, where they can."""
    if ops.device.software:
        return
    pairs = enumerate(zip(ops.ops, ops.ops[1:], strict=False))
    found = [i for i, (add, op) in pairs if _may_add(add, op) and _fits(ops.device, add, op)]
    assert len({ops.ops[i].bindings["y"].name for i in found}) <= 1, "a list has one residual stream"
    _merge(ops, found[: len(found) // 2 * 2])


def _may_add(add: Op, op: Op) -> bool:
    """Whether an op normalises and rounds the sum that the op before it stores."""
    if low_rank_rows.adds(add):
        if op.kernel != "quantize_rows" or not op.params["NORM"] or op.params.get("POST_THREADS"):
            return False
        # a row with more columns than are normalised is no residual stream: x_next would lack the others
        whole = not op.params.get("X_STRIDE") and int(op.params["COLS"]) % GROUP == 0
        return whole and op.bindings["x"] == add.bindings["y"]
    return _may_norm(add, op)


def _may_norm(norm: Op, op: Op) -> bool:
    if norm.kernel != "norm" or not norm.params["ADD"] or norm.params["X16"] or norm.grid[1] != 1:
        return False
    if op.kernel not in ROUNDING or not op.params["NORM"] or op.params.get("BESIDE") or op.params.get("LAST"):
        return False
    rounds = op.kernel == "quantize_rows" or op.params.get("DOT8" if op.kernel == "matvec" else "ROUNDS")
    same = op.bindings["x"] == norm.bindings["y"] and op.consts["eps"] == norm.consts["eps"]
    return bool(rounds) and same and int(op.params["COLS"]) % GROUP == 0


def _fits(device: Device, add: Op, op: Op) -> bool:
    """Whether the device has the memory and bindings, and a norm's workgroups are whole parts of the op's."""
    if add.kernel != "norm":
        return mixed_types.storage_buffers(op) + BINDINGS - 1 <= device.max_storage_buffers
    product = "TK" in op.params
    threads = int(op.params["TK"]) * int(op.params["TR"]) if product else int(op.params["WG"])
    used = 4 * (threads + int(op.params.get("TOKENS", 0))) + (mixed_types.workgroup_bytes(device, op) if product else 0)
    bound = mixed_types.storage_buffers(op) + BINDINGS
    whole = threads % int(add.params["WG"]) == 0
    return whole and used <= device.max_workgroup_storage and bound <= device.max_storage_buffers


def _merge(ops: OpList, found: list[int]) -> None:
    """Merge the ops at these indices, which add to one stream, with the ops that follow them."""
    if not found:
        return
    stream = ops.ops[found[0]].bindings["y"]
    assert isinstance(stream, Buffer)
    now, other = stream, ops.buffer(f"{stream.name}.next", stream.shape)
    merged: list[Op] = []
    for i, op in enumerate(ops.ops):
        if i in found:
            continue
        bindings = {name: now if bound == stream else bound for name, bound in op.bindings.items()}
        params = op.params
        if i - 1 in found:
            add = ops.ops[i - 1]
            if add.kernel == "norm":
                bindings |= {"post": add.bindings["x"], "post_norm": add.bindings["norm"]}
                params = params | {"POST_THREADS": add.params["WG"]}
            else:
                bindings |= {"added": add.bindings["x"]}
                params = params | {"ADDED": 1}
            bindings["x_next"] = other
            now, other = other, now
        merged.append(replace(op, params=params, bindings=bindings))
    ops.ops[:] = merged
