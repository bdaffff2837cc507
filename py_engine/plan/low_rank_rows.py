"""What adapters add to the products of a small batch, computed in the products' dispatches.

Where x is rounded in a dispatch of its own, h = A x is known before the product. There are two ways to compute B h:
    by each workgroup of the product for its own rows (LOW_RANK_OWN_ROWS in matvec_small_batch.wgsl): a step then has
    the dispatches that it has without adapters. For equal adapters only (low_rank_entries.py), which need no barrier
    by further workgroups (lib/low_rank_rows.wgsl). Another op adds both: add_scaled.wgsl, or, after merge(), the one
    that reads their sum
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from py_engine.plan import mixed_types, tiles
from py_engine.plan.low_rank_entries import count_of
from py_engine.plan.op_list import OpList
from py_engine.plan.plan import MATRICES, Buffer, Op, PerToken, Weight
from py_engine.plan.products import Epilogue
from py_engine.plan.quants import GROUP, groups
from py_engine.plan.shared_constants import THREADS

# Values of the largest matrix beside which further workgroups compute B h: on an H100 they, and their memory, slow
# larger products down by more than a dispatch takes (measured up to 4,096 x 6,144 and from 14,336 x 4,096 on).
MOST_VALUES = 1 << 25
LIMITED = ("ACTIVATION", "LIMIT", "UP_LIMIT")  # the #params of an activation
ADDED = ".added."  # in the names of buffers of what adapters add


def append(ops: OpList, y: Buffer, part: Epilogue) -> bool:
    """Let the product into y before add what adapters add, or compute it and append the sum. False: it cannot."""
    matrix, equal = part.bindings["w"], part.params["ADDS"] == "low_rank_equal"
    assert isinstance(matrix, Weight)
    index = next((i for i in range(max(-3, -len(ops.ops)), -1) if _knows(ops.ops[i:], y, part.bindings["h"])), None)
    if index is None or ops.device.software or list(matrix.layout.planes) != ["w_qs"]:
        return False
    op = ops.ops[index + 1]
    alone = index == -2  # a product after it would not add to its own rows
    if equal and alone and (joined := _joined(ops, op, part)):
        ops.ops[index + 1] = joined
        return True
    matrices = [op.bindings[name] for name in MATRICES if name in op.bindings]
    if sum(w.rows * w.cols for w in matrices if isinstance(w, Weight)) > MOST_VALUES:
        return False
    threads = int(op.params["TK"]) * int(op.params["TR"])
    workgroups = -(-y.shape[-1] // threads)  # of each token
    used = 0 if equal else 4 * count_of(part.params) * (1 + GROUP * groups(int(part.params["COLS"])))
    used += mixed_types.workgroup_bytes(ops.device, op)
    bound = mixed_types.storage_buffers(op) + len(part.bindings) + 1
    slices, each, lines = op.grid  # `each`: workgroups of a slice
    assert isinstance(slices, PerToken)
    assert isinstance(each, int)
    each += slices.tile * workgroups
    fits = each <= tiles.MAX_WORKGROUPS and lines == 1
    fits = fits and used <= ops.device.max_workgroup_storage and bound <= ops.device.max_storage_buffers
    if not fits:
        return False
    added = ops.buffer(f"{ops.name}{ADDED}{y.shape[-1]}", (ops.batch, y.shape[-1]))
    own = {**part.params} if equal else {**part.params, "PRELOAD": 0, "THREADS": threads}
    op = _with(op, replace(part, params=own), {"LOW_RANK": workgroups})
    ops.ops[index + 1] = replace(op, bindings=op.bindings | {"added": added}, grid=(slices, each, 1))
    ops.add(
        "add_scaled",
        {"VECS": y.shape[-1] // 4, "GATED": 0},
        {"scale": 1.0},
        {"state": ops.state, "x": added, "y": y},
        -(-y.shape[-1] // (4 * THREADS)),
        ops.batch,
    )
    return True


def _with(op: Op, part: Epilogue, params: dict[str, int]) -> Op:
    """A product with what lib/low_rank.wgsl needs beside it, included as _L."""
    own = {f"{name}_L": value for name, value in part.params.items()}
    bindings = {("w_qs_L" if name == "w" else f"{name}_L"): bound for name, bound in part.bindings.items()}
    return replace(
        op, params=op.params | own | params, consts={**op.consts, **part.consts}, bindings=op.bindings | bindings
    )


def _joined(ops: OpList, op: Op, part: Epilogue) -> Op | None:
    """A product whose workgroups add what adapters add to their rows; None if the device cannot."""
    results = int(op.params["TOKENS"]) * max(mixed_types.tile_rows(op))
    joined = _with(op, part, {"LOW_RANK_OWN_ROWS": 1})
    used = mixed_types.workgroup_bytes(ops.device, op) + 4 * results * (1 + ("w_2" in op.bindings))
    fits = used <= ops.device.max_workgroup_storage
    return joined if fits and mixed_types.storage_buffers(joined) <= ops.device.max_storage_buffers else None


def _knows(ops: Sequence[Op], y: Buffer, h: Buffer | Weight) -> bool:
    """Whether the first op computes h with a rounded x, and the next one multiplies that into y."""
    rounding, product = ops[:2]
    known = rounding.kernel == "quantize_rows" and rounding.bindings.get("h") is h
    later = any(op.bindings["y"] is h for op in ops[1:] if "y" in op.bindings)  # A of another type: the rest of h
    return known and not later and product.kernel == "matvec_small_batch" and product.bindings["y"] is y


def adds(op: Op) -> bool:
    """Whether an op only adds what a product before it has computed for adapters."""
    return op.kernel == "add_scaled" and ADDED in op.bindings["x"].name


def merge(ops: OpList) -> None:
    """Let the rotation of queries and keys, or the rounding of a gated product, add what adapters add itself.

    Residual streams are left to post_norms.py.
    """
    for i in range(len(ops.ops) - 2, 0, -1):
        if ops.ops[i].params.get("LOW_RANK_OWN_ROWS") and (fused := _fused(ops, *ops.ops[i : i + 2])):
            ops.ops[i : i + 2] = [fused]
        if not adds(ops.ops[i]):
            continue
        y, added = ops.ops[i].bindings["y"], ops.ops[i].bindings["x"]
        reader, *later = ops.ops[i + 1 :]
        if reader.kernel == "rope_append" and reader.bindings["y"] is y:
            ops.ops[i : i + 2] = [_adding(reader, added)]
        elif reader.kernel == "activate" and reader.bindings["x"] is y and later and _rounds(reader, later):
            assert isinstance(y, Buffer)
            params = {name: value for name, value in reader.params.items() if name in LIMITED}
            taken = params | {"GATED": 1, "X_STRIDE": y.shape[1] // 4}
            gated = replace(later[0], params=later[0].params | taken, bindings=later[0].bindings | {"x": y})
            ops.ops[i : i + 3] = [_adding(gated, added)]


def _fused(ops: OpList, product: Op, reader: Op) -> Op | None:
    """A product and the rotation or the activation of all its rows; None where the next op is neither.

    They are fused as without adapters (ops.py), whose callers do not know yet that the product adds B h.
    """
    rows, y = int(product.consts["rows"] + product.consts.get("rows_2", 0)), product.bindings["y"]
    if product.params["EPILOGUE"] != "store" or product.consts["row0"]:
        return None
    if reader.kernel == "rope_append" and reader.bindings["y"] is y and not reader.params.get("ADDED"):
        if rows != reader.consts["q_rows"] + 2 * reader.consts["kv_rows"]:
            return None
        name, left = "qkv", list(reader.params.items())
    elif reader.kernel == "activate" and reader.bindings["x"] is y and reader.params["GATED"] and reader.grid[2] == 1:
        if (
            product.params.get("SECOND")
            or rows != 2 * int(reader.params["COLS"])
            or reader.params["Y16"]
            or reader.params.get("WEIGHTED")
        ):
            return None
        name, left = "gated", [(n, v) for n, v in reader.params.items() if n in LIMITED]
    else:
        return None
    consts = {n: v for n, v in reader.consts.items() if n != "x_stride"}
    bindings = {n: b for n, b in reader.bindings.items() if n != "x"}
    fused = replace(
        product,
        params=product.params | dict(left) | {"EPILOGUE": name},
        consts=product.consts | consts,
        bindings=product.bindings | bindings,
    )
    return fused if mixed_types.storage_buffers(fused) <= ops.device.max_storage_buffers else None


def _adding(op: Op, added: Buffer | Weight) -> Op:
    return replace(op, params=op.params | {"ADDED": 1}, bindings=op.bindings | {"added": added})


def _rounds(activate: Op, later: Sequence[Op]) -> bool:
    """Whether the op after an activation rounds its result, which no other op reads."""
    y, rounding = activate.bindings["y"], later[0]
    if rounding.kernel != "quantize_rows" or rounding.bindings["x"] is not y or rounding.params["NORM"]:
        return False
    gated = activate.params["GATED"] and not activate.params.get("WEIGHTED") and activate.grid[2] == 1
    whole = int(rounding.params["COLS"]) % GROUP == 0 and rounding.params["COLS"] == activate.params["COLS"]
    following = next((op for op in later[1:] if y in op.bindings.values()), None)
    return bool(gated and whole and (following is None or following.bindings.get("y") == y))
