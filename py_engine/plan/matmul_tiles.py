"""How products of many rows are divided for a device: the #params of matmul_matrix, matmul_int8 and matmul.wgsl.

The defaults were measured on an H100 with its clocks up. A tile measured on the device itself takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from py_engine.files.tensor_types import TensorType
from py_engine.plan.kernels import Device
from py_engine.plan.plan import PerToken, Weight, planes_of
from py_engine.plan.tiles import FULL_OCCUPANCY

MATMUL = ("TM", "TN", "DEPTH", "SM", "SN", "AHEAD")  # the #params of matmul_matrix.wgsl
MATMUL_TILES = (
    (128, 128, 64, 2, 4, 1), (128, 128, 64, 2, 4, 0), (128, 128, 32, 2, 4, 2), (128, 128, 32, 2, 2, 1),
    (256, 128, 32, 4, 2, 1), (128, 96, 64, 4, 2, 1), (128, 64, 32, 2, 2, 2),
)  # fmt: skip
# Tiles of products of experts: usual ones, those of short batches, and those with little workgroup memory.
GROUPED_TILE = 128, 128, 64, 2, 4, 0
SHORT_GROUPED_TILE = 64, 64, 64, 2, 2, 1
SHALLOW_GROUPED_TILE = 128, 128, 32, 2, 2, 0
SMALL_GROUP = 16  # tokens of a batch, on average, up to which tiles are small
INT8 = ("TM", "TN", "MM", "MN", "STEP")  # the #params of matmul_int8.wgsl
INT8_TILES = (
    (64, 64, 8, 4, 2),
    (32, 64, 4, 4, 2),
    (32, 32, 4, 4, 4),
    (16, 32, 2, 2, 4),
)  # the best first, if they are enough
FLOAT = ("TM", "TN", "MM", "MN")  # the #params of matmul.wgsl
FLOAT_TILES: tuple[tuple[int, ...], ...] = (
    (64, 64, 8, 4),
    (32, 64, 4, 4),
    (32, 32, 4, 4),
    (16, 32, 2, 2),
)  # as INT8_TILES
WIDE_TILE = 128, 128, 8, 8  # of matmul.wgsl on GPUs without f16; with f16 it needs too many registers
ENOUGH_WIDE_TILES = 96  # wide tiles that occupy a GPU
GROUPED_BINDINGS = 3  # tiles, slots and perhaps a bias: what products of experts bind besides others
MAX_SMALL_TILES_BATCH = 256  # tokens up to which a batch has too few large tiles to occupy a GPU


def matmul_key(weight: Weight) -> str:
    """The key in Device.tiles of the tile of a product of many rows: MATMUL."""
    return f"matmul {weight.type.name} {weight.rows}x{weight.cols}"


def in_int8(device: Device, weight: Weight, bindings: int = 0) -> bool:
    """Whether products of many tokens multiply with matmul_int8.wgsl, unless they must be precise.

    `bindings`: storage buffers of a product besides the matrix, the state, the result, and the bytes and scales of x.
    """
    fits = bindings + 4 + len(planes_of("w", weight)) <= device.max_storage_buffers
    return device.dot8 and device.int8 and not device.matrix and weight.layout.dot8 and fits


def int8_tile(device: Device, batch: int, weight: Weight) -> dict[str, int]:
    """The tile of matmul_int8.wgsl: the largest that leaves enough tiles to occupy a GPU."""
    if device.software:
        return {"TM": 16, "TN": 32, "MM": 2, "MN": 2, "STEP": 2}
    fits = [tile for tile in INT8_TILES if int8_bytes(weight, tile) <= device.max_workgroup_storage]
    return dict(zip(INT8, _largest(fits or [INT8_TILES[-1]], batch, weight.rows), strict=True))


def _largest(tiles: Sequence[tuple[int, ...]], batch: int, rows: int) -> tuple[int, ...]:
    """The first tile of (tokens, rows ...) that a product has enough of to occupy a GPU, else the smallest."""
    enough = (t for t in tiles if -(-batch // t[0]) * -(-rows // t[1]) >= FULL_OCCUPANCY)
    return next(enough, tiles[-1])


def int8_bytes(weight: Weight, tile: tuple[int, ...]) -> int:
    """Workgroup memory of matmul_int8.wgsl: STEP groups of each row and token, in bytes, and their scales."""
    tm, tn, _, _, step = tile
    scale = 16 if weight.layout.two_scales else 8
    return 16 * (2 * step + 1) * (tm + tn) + step * (8 * tm + scale * tn)


def matmul(
    device: Device, batch: int, weight: Weight, bindings: int = 0, precise: bool = False
) -> tuple[str, dict[str, int]]:
    """The kernel for batches of `batch` tokens, and its tile of TM tokens x TN rows.

    `precise`: activations are not rounded to bytes, as in encoders of media. Their loads ahead are pinned (PINNED):
    text models gain nothing by that. `bindings`: see in_int8().
    """
    if not precise and in_int8(device, weight, bindings):
        return "matmul_int8", int8_tile(device, batch, weight)
    if device.matrix and batch >= 64:
        measured = dict(device.tiles).get(matmul_key(weight)) if batch > MAX_SMALL_TILES_BATCH else None
        tile = dict(zip(MATMUL, measured or _matmul_matrix_tile(device, batch, weight), strict=True))
        return "matmul_matrix", tile | _sides(device) | {"PINNED": int(precise and tile["AHEAD"] == 1)}
    return "matmul", _float_tile(device, batch, weight.rows)


def _sides(device: Device) -> dict[str, int]:
    return {"SIDE": device.matrix, "LANES": device.subgroup}


def _matmul_matrix_tile(device: Device, batch: int, weight: Weight) -> tuple[int, ...]:
    """The largest tile that leaves enough tiles to occupy a GPU, as measured on an H100."""
    tiles = -(-weight.rows // 128) * (batch // 128)
    fits_deep_tiles = device.max_workgroup_storage >= 48 << 10
    if weight.layout.plain and tiles >= FULL_OCCUPANCY * 3 // 8 and fits_deep_tiles:
        return 128, 128, 64, 2, 4, 1
    if tiles >= FULL_OCCUPANCY * 5 // 8:
        return 128, 128, 32, 2, 2, int(weight.type is TensorType.Q4_K or weight.layout.codebook)
    if tiles >= FULL_OCCUPANCY // 2 and batch > MAX_SMALL_TILES_BATCH and fits_deep_tiles:
        return 128, 128, 64, 2, 4, 1
    if -(-weight.rows // 64) * (batch // 64) >= FULL_OCCUPANCY // 2:
        return 64, 64, 64, 2, 2, 1
    occupied = -(-weight.rows // 32) * (batch // 64) >= FULL_OCCUPANCY // 2
    return (32, 32, 128, 2, 2, 1) if not occupied or batch <= 64 else (64, 32, 64, 2, 2, 1)


def product(
    device: Device, batch: int, weight: Weight, epilogue: str, bindings: int = 0, precise: bool = False
) -> tuple[str, dict[str, int]]:
    """matmul(), for a product with an epilogue: a gated one needs pairs of matrices (gate, up) in each subgroup."""
    kernel, tile = matmul(device, batch, weight, bindings, precise)
    if epilogue == "gated" and kernel == "matmul_matrix" and tile["TN"] % (2 * tile["SN"] * tile["SIDE"]):
        if tile["TM"] >= tile["SM"] * tile["SN"] * tile["SIDE"]:
            tile |= {"SM": tile["SM"] * tile["SN"], "SN": 1}
        else:
            tile |= {"TN": 2 * tile["SN"] * tile["SIDE"]}
    return kernel, tile


def matmul_of_halves(device: Device, batch: int) -> tuple[str, dict[str, int]]:
    """The kernel for a product with a matrix in f16 whose size is not known before, and its tile."""
    if device.matrix and batch >= 64:
        return "matmul_matrix", dict(zip(MATMUL, (64, 64, 64, 2, 2, 0), strict=True)) | _sides(device)
    return "matmul", _float_tile(device, batch, FULL_OCCUPANCY * 64)


def grouped_matmul(
    device: Device, batch: int, used: int, experts: int, weights: Sequence[Weight]
) -> tuple[str, dict[str, int]]:
    """The kernel for products of experts, and its tile. `used`: experts of a token."""
    tokens = -(-batch * used // experts)  # of an expert in a full batch, on average
    if weights and all(in_int8(device, w, GROUPED_BINDINGS + bool(w.scales)) for w in weights):
        tile = (16, 32, 2, 2, 2) if device.software else (64, 64, 8, 4, 2) if tokens > 32 else (32, 64, 4, 4, 2)
        return "matmul_int8", dict(zip(INT8, tile, strict=True))
    if device.matrix and batch >= 64:
        chosen = grouped_tile(device, batch, used, experts)
        return "matmul_matrix", dict(zip(MATMUL, chosen, strict=True)) | _sides(device)
    tiles = [tile for tile in _float_tiles(device) if tokens > 32 or tile[0] <= 32]
    return "matmul", dict(zip(FLOAT, tiles[0], strict=True))


def grouped_tile(device: Device, batch: int, used: int, experts: int) -> tuple[int, ...]:
    """The tile of matmul_matrix.wgsl for products of experts in batches of `batch` tokens, as measured on an H200.

    `used`: experts of a token. Large tiles pay from 32 tokens for each expert on: rows without a token are not
    multiplied.
    """
    if batch * used <= SMALL_GROUP * experts:
        return SHORT_GROUPED_TILE
    if device.max_workgroup_storage >= 48 << 10:
        return GROUPED_TILE
    return SHALLOW_GROUPED_TILE if batch > MAX_SMALL_TILES_BATCH else SHORT_GROUPED_TILE


def of_experts(tile: Mapping[str, int], weight: Weight) -> dict[str, int]:
    """The tile of products of experts, for one of their matrices: what takes long to unpack is loaded ahead."""
    ahead = "AHEAD" in tile and weight.layout.codebook
    return {**tile, **({"AHEAD": 1} if ahead else {})}


def grouped_tiles(tm: int, used: int, experts: int) -> PerToken:
    """The most tiles of `tm` tokens of one expert that a batch can have. `used`: experts of a token."""
    return PerToken(max(1, tm // used), experts)


def _float_tile(device: Device, batch: int, rows: int) -> dict[str, int]:
    """The tile of matmul.wgsl: the largest that leaves enough tiles to occupy a GPU. `rows`: of the matrix."""
    fits = 4 * 36 * (WIDE_TILE[0] + WIDE_TILE[1]) <= device.max_workgroup_storage
    wide_tiles = -(-batch // WIDE_TILE[0]) * -(-rows // WIDE_TILE[1])
    if fits and not device.f16 and not device.software and wide_tiles >= ENOUGH_WIDE_TILES:
        return dict(zip(FLOAT, WIDE_TILE, strict=True))
    return dict(zip(FLOAT, _largest(_float_tiles(device), batch, rows), strict=True))


def _float_tiles(device: Device) -> list[tuple[int, ...]]:
    """Tiles of matmul.wgsl that fit into workgroup memory, the largest first; at least the smallest one."""
    if device.software:  # compiles larger tiles for seconds
        return [(16, 32, 2, 2)]
    size = 2 if device.f16 else 4
    fits = [tile for tile in FLOAT_TILES if 36 * size * (tile[0] + tile[1]) <= device.max_workgroup_storage]
    return fits or [FLOAT_TILES[-1]]


def matmul_alternatives(device: Device, tile: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Other tiles of a product of many rows, which the device has threads and workgroup memory for."""
    found = list[tuple[int, ...]]()
    for other in MATMUL_TILES:
        tm, tn, depth, sm, sn, ahead = other
        used = 2 * (tm + tn) * (depth + 8) * max(1, ahead) + 4 * sm * sn * device.matrix**2
        fits = used <= device.max_workgroup_storage and sm * sn * device.subgroup <= device.max_threads
        if fits and other != tile:
            found.append(other)
    return found
