"""Tiles of products with subgroup matrices fit what matmul_matrix.wgsl needs."""

from dataclasses import replace
from itertools import product

import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import matmul_tiles, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Weight

GPU = Device(f16=True, subgroup=32, max_workgroup_storage=49152, max_threads=1024)
MEASURED = [None, *matmul_tiles.MATMUL_TILES]


def weight_of(rows: int) -> Weight:
    return Weight("w", Q.F16, rows, 1280, (("w", 0, rows),))


@pytest.mark.parametrize("measured", MEASURED)
@pytest.mark.parametrize("side", [8, 16])
def test_a_subgroup_has_whole_matrices_and_pairs_of_them_where_it_gates(
    measured: tuple[int, ...] | None, side: int
) -> None:
    """A tile that was measured for other products may have an odd number of matrices for each subgroup."""
    for batch, rows, epilogue in product((64, 512, 2048), (64, 1000, 6840, 100_000), ("store", "gated")):
        weight = weight_of(rows)
        device = replace(GPU, matrix=side)
        if measured:
            device = tiles.with_tile(device, matmul_tiles.matmul_key(weight), measured)
        kernel, tile = matmul_tiles.product(device, batch, weight, epilogue)
        assert kernel == "matmul_matrix"
        assert tile["TM"] % (tile["SM"] * side) == 0
        assert tile["TN"] % (tile["SN"] * side * (1 + (epilogue == "gated"))) == 0
        assert tile["SM"] * tile["SN"] * device.subgroup <= device.max_threads


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("tile", matmul_tiles.MATMUL_TILES)
def test_loads_ahead_of_encoders_are_pinned(tile: tuple[int, ...], precise: bool) -> None:
    device = tiles.with_tile(replace(GPU, matrix=16), matmul_tiles.matmul_key(weight_of(4096)), tile)
    _, chosen = matmul_tiles.matmul(device, 512, weight_of(4096), precise=precise)
    assert tuple(chosen[name] for name in matmul_tiles.MATMUL) == tile
    assert chosen["PINNED"] == (precise and tile[-1] == 1)
