"""The next product adds a block's norm to the residual stream itself, which saves a dispatch for each block.

Gemma and others normalise what a block returns before they add it (norm.wgsl with ADD). Where the next op rounds the
normed stream to bytes, it computes the sum as well, with the same bits, and stores it in a second buffer: the
workgroups of the same dispatch still read the first one. The two buffers change places with each such product, and an
even number of them leaves the stream where other lists look for it.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.plan import mixed
from py_engine.plan.kernels import Device
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import Buffer, Op
from py_engine.plan.quants import GROUP

BINDINGS = 3  # of lib/post_norm.wgsl
ROUNDING = ("matvec", "matvec_small_batch", "quantize_rows")


def merge(ops: OpList) -> None:
    """Let the ops of one token, or of a small batch, add the norms before theirs, where they can."""
    if ops.device.software:
        return
    pairs = enumerate(zip(ops.ops, ops.ops[1:], strict=False))
    found = [i for i, (norm, op) in pairs if _adds(norm, op) and _fits(ops.device, norm, op)]
    assert len({ops.ops[i].bindings["y"].name for i in found}) <= 1, "a list has one residual stream"
    _merge(ops, found[: len(found) // 2 * 2])


def _adds(norm: Op, op: Op) -> bool:
    """Whether an op normalises and rounds the sum that the op before it stores."""
    if norm.kernel != "norm" or not norm.params["ADD"] or norm.params["X16"] or norm.grid[1] != 1:
        return False
    if op.kernel not in ROUNDING or not op.params["NORM"] or op.params.get("BESIDE") or op.params.get("LAST"):
        return False
    rounds = op.kernel == "quantize_rows" or op.params.get("DOT8" if op.kernel == "matvec" else "ROUNDS")
    same = op.bindings["x"] == norm.bindings["y"] and op.consts["eps"] == norm.consts["eps"]
    return bool(rounds) and same and int(op.params["COLS"]) % GROUP == 0


def _fits(device: Device, norm: Op, op: Op) -> bool:
    """Whether the op's workgroups are whole ones of norm.wgsl, and the device has the memory and bindings for it."""
    product = "TK" in op.params
    threads = int(op.params["TK"]) * int(op.params["TR"]) if product else int(op.params["WG"])
    used = 4 * (threads + int(op.params.get("TOKENS", 0))) + (mixed.workgroup_bytes(device, op) if product else 0)
    bound = mixed.storage_buffers(op) + BINDINGS
    whole = threads % int(norm.params["WG"]) == 0
    return whole and used <= device.max_workgroup_storage and bound <= device.max_storage_buffers


def _merge(ops: OpList, found: list[int]) -> None:
    """Merge the norms at these indices, all of one stream, with the ops that follow them."""
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
            norm = ops.ops[i - 1]
            bindings |= {"post": norm.bindings["x"], "post_norm": norm.bindings["norm"], "x_next": other}
            params = params | {"POST_THREADS": norm.params["WG"]}
            now, other = other, now
        merged.append(replace(op, params=params, bindings=bindings))
    ops.ops[:] = merged
