"""Lowering of matrix products to dispatches: matvec for one token, matvec_small_batch for a few, matmul for many.

A matrix larger than a binding is split by rows into several dispatches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from py_engine.plan import matmul_tiles, matrix_scales, rounded_rows, small_batch_tiles, tiles
from py_engine.plan.cache import Cache
from py_engine.plan.kernels import Device
from py_engine.plan.low_rank_input import LowRankInput
from py_engine.plan.op_list import OpList, strided
from py_engine.plan.plan import Buffer, PerToken, Weight, planes_of
from py_engine.plan.rounded_rows import Rounding, rounded


@dataclass(frozen=True)
class Epilogue:
    """What a kernel does with the product, and what it needs for that.

    Of a small batch: "store", "add" (to y, times the #param FACTOR if there is one), "activate", "gated", "gate" or
    "qkv".
    Of many tokens: "store", "add" or "accumulate" (add, in any order), and where stores_halves() "activate", "gated"
    or "split".
    """

    name: str
    params: Mapping[str, int | float | str] = field(default_factory=dict)
    consts: Mapping[str, int | float] = field(default_factory=dict)
    bindings: Mapping[str, Buffer | Weight] = field(default_factory=dict)


STORE, ADD = Epilogue("store"), Epilogue("add")


@dataclass(frozen=True)
class Product:
    """y[:, row0 : row0 + rows] = epilogue(x W^T + bias[row0:]).

    `norm`: the RMS norm of x (with `eps`), fused with the product. Small batches only.
    `threads`: of a workgroup of matvec.wgsl, if matrices that are stacked have as many (mixed_types.py); 0: the tile's.
    `beside`: what else is computed of x or its norm, where fits_beside().
    """

    x: Buffer
    weight: Weight
    y: Buffer
    bias: Weight | None = None
    epilogue: Epilogue = STORE
    row0: int = 0
    norm: Weight | None = None
    eps: float = 0.0
    threads: int = 0
    beside: LowRankInput | None = None


def binds_norm(device: Device, weight: Weight, bias: Weight | None) -> bool:
    """Whether a product with the norm of its input fits into a device's storage buffers: for a token as for a few.

    One answer for both, because a norm in a dispatch of its own gives other bits.
    """
    dot8 = tiles.dot8(device, weight)
    tile = tiles.matvec(device, weight, dot8)
    rounds = not dot8 or small_batch_tiles.rounds(device, weight, True, tile["TK"] * tile["TR"])
    inputs = 2 if rounds else 3  # x and the norm's weights, or what rounded() returns
    others = 2 + bool(bias) + bool(weight.scales)  # the state, the result ...
    return inputs + others + len(planes_of("w", weight)) <= device.max_storage_buffers


def fits_beside(ops: OpList, product: Product, weight: Weight) -> bool:
    """Whether a small matrix can be multiplied beside a product: in a small batch, with both of its kernels."""
    first = product.weight.split(ops.device.max_binding)[0][1]
    floats = list(weight.layout.planes) == ["w_qs"] and not weight.layout.dot8
    vectors = 3 + bool(product.norm) + bool(product.bias) + bool(product.weight.scales)  # the state, x, the result ...
    bound = vectors + len(planes_of("w", first)) + len(product.epilogue.bindings) + 2  # A and h
    fits = bound <= ops.device.max_storage_buffers and small_batch_tiles.fits_beside(ops.device, first)
    return ops.small_batch and floats and fits


def with_beside(ops: OpList, product: Product, weight: Weight, h: Buffer) -> Product:
    """The product with h = x A^T beside it. A normed x may be rounded by LOW_RANK_LANES threads only."""
    most = small_batch_tiles.LOW_RANK_LANES if product.norm else rounded_rows.THREADS
    part = product.weight.split(ops.device.max_binding)[0][1]
    return replace(product, beside=LowRankInput(weight, h, small_batch_tiles.low_rank_lanes(ops.device, part, most)))


def append(ops: OpList, product: Product) -> None:
    """Append the product, in as many parts as the binding limit requires."""
    for first, part in product.weight.split(ops.device.max_binding):
        lower = matvec if ops.small_batch else _matmul
        beside = None if first else product.beside
        lower(ops, replace(product, weight=part, row0=product.row0 + first, beside=beside))


def matvec(ops: OpList, p: Product) -> None:
    """Append the product of one token, or of a small batch. The matrix must fit into one binding."""
    weight, norm, beside = p.weight, p.norm, p.beside
    vectors: dict[str, Buffer | Weight] = {"x": p.x}
    dot8 = tiles.dot8(ops.device, weight)
    tile = tiles.matvec(ops.device, weight, dot8)
    if p.threads:
        tile |= {"TR": p.threads // tile["TK"]}
    threads = tile["TK"] * tile["TR"]
    variant: dict[str, int | float | str] = {"GROUPS_PER_THREAD": weight.layout.groups_per_thread} if dot8 else {}
    variant |= strided(p.x, weight.cols)
    if ops.batch > 1:
        looped = int(ops.device.software and not dot8)
        kernel, variant = "matvec_small_batch", variant | {"DOT8": int(dot8), "LOOPED": looped}
        rounds = dot8 and not beside and small_batch_tiles.rounds(ops.device, weight, norm is not None, threads)
        if dot8:
            variant |= {"ROUNDS": int(rounds), "SCALED": int(norm is not None and not rounds)}
            if not rounds:
                # What is computed beside the product is computed beside the rounding, where x is at hand as floats.
                rounding = Rounding(p.x, weight.cols, norm, p.eps, threads)
                vectors, norm, beside = rounded(ops, rounding, beside), None, None
        tile = small_batch_tiles.matvec_small_batch(ops.device, weight, dot8, rounds)
    else:
        kernel, variant = "matvec", variant | {"DOT8": int(dot8), "LAST": int(p.x.shape[0] > 1), "EXPERTS": 0}
    workgroups = -(-weight.rows // (tile["TR"] * tile["R"]))
    if beside:
        first = beside.workgroups(tile["TK"] * tile["TR"])
        variant, vectors = variant | beside.params(first), vectors | beside.bindings()
        workgroups += first * tile.get("TOKENS", 1)
    ops.add(
        kernel,
        {"QUANT": weight.layout.fragment, "COLS": weight.cols, "NORM": int(norm is not None),
         "BIAS": int(p.bias is not None), "EPILOGUE": p.epilogue.name}
        | variant | tile | ops.state_params | dict(p.epilogue.params) | matrix_scales.params(weight),
        {"rows": weight.rows, "row0": p.row0, "y_stride": p.y.shape[-1]}
        | ({"eps": p.eps} if norm else {}) | dict(p.epilogue.consts),
        {"state": ops.state, "w": weight, "y": p.y} | vectors | ({"norm": norm} if norm else {})
        | ({"bias": p.bias} if p.bias else {}) | dict(p.epilogue.bindings) | matrix_scales.bindings(weight),
        *_grid(workgroups, tile.get("TOKENS", 0)),
    )  # fmt: skip


def _grid(workgroups: int, tokens: int) -> list[int | PerToken]:
    """The grid of a product, with one more dimension if one is too few for its rows.

    `workgroups`: of each slice of `tokens` tokens; of one token, if 0.
    """
    lines = -(-workgroups // tiles.MAX_WORKGROUPS)
    return [*([PerToken(tokens)] if tokens else []), -(-workgroups // lines), *([lines] if lines > 1 else [])]


def split_heads(cache: Cache, q_rows: int, kv_rows: int) -> Epilogue:
    """Queries into y, f16; keys and values, which are not rotated, into an encoder's cache."""
    return Epilogue("split", {}, {"q_rows": q_rows, "kv_rows": kv_rows}, cache.write_bindings)


def stores_halves(ops: OpList, weight: Weight) -> bool:
    """Whether the product with this matrix may have an epilogue that stores f16."""
    whole = len(weight.split(ops.device.max_binding)) == 1 and not weight.scales
    return whole and not ops.small_batch and matmul_tiles.matmul(ops.device, ops.batch, weight)[0] == "matmul_matrix"


def halves(ops: OpList, x: Buffer) -> dict[str, int]:
    """The #params of the mat-mul kernels that say what is f16."""
    return {"HALVES": int(ops.device.f16), "X16": int(x.dtype == "f16")}


def int8(weight: Weight) -> dict[str, int]:
    """The #params of matmul_int8.wgsl that depend on W's type."""
    return {"INT8": 1, "TWO_SCALES": int(weight.layout.two_scales)}


def _matmul(ops: OpList, p: Product) -> None:
    weight = p.weight
    assert not strided(p.x, weight.cols), "rows of many tokens follow each other"
    more = bool(p.bias) + bool(weight.scales)
    kernel, tile = matmul_tiles.product(ops.device, ops.batch, weight, p.epilogue.name, more, ops.precise)
    in_matrices = kernel == "matmul_matrix" and not weight.scales  # results that no kernel reads one by one
    bias = 0 if p.bias is None else 2 if in_matrices else 1
    epilogue = "accumulate" if p.epilogue is ADD and ops.precise and in_matrices else p.epilogue.name
    # sums of f16 could overflow before they are scaled
    sums32 = ops.device.f16 and kernel == "matmul" and (ops.precise or weight.scales is not None)
    in_int8 = kernel == "matmul_int8"
    ops.add(
        kernel,
        {"QUANT": weight.layout.fragment, "COLS": weight.cols, "BIAS": bias, "GROUPED": 0}
        | {"EPILOGUE": epilogue, **p.epilogue.params}
        | (int8(weight) if in_int8 else halves(ops, p.x))
        | ({"SUMS32": 1} if sums32 else {})
        | tile
        | matrix_scales.params(weight),
        {"rows": weight.rows, "row0": p.row0, "y_stride": p.y.shape[1], **p.epilogue.consts},
        {"state": ops.state, "w": weight, "y": p.y, **p.epilogue.bindings}
        | (rounded(ops, Rounding(p.x, weight.cols, in_order=True)) if in_int8 else {"x": p.x})
        | ({"bias": p.bias} if p.bias else {})
        | matrix_scales.bindings(weight),
        -(-weight.rows // tile["TN"]),
        PerToken(tile["TM"]),
    )
