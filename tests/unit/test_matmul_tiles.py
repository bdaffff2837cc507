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


@pytest.mark.parametrize(
    ("type", "tile", "pinned"),
    [
        (Q.F16, (128, 128, 64, 2, 4, 1), 1), (Q.F16, (128, 128, 64, 2, 4, 0), 0), (Q.F16, (128, 128, 32, 2, 2, 1), 0),
        (Q.F16, (128, 64, 32, 2, 2, 2), 0), (Q.Q8_0, (32, 32, 128, 2, 2, 1), 0), (Q.Q4_K, (32, 32, 128, 2, 2, 1), 1),
        (Q.IQ4_NL, (32, 32, 128, 2, 2, 1), 1),
    ],
)  # fmt: skip
def test_loads_ahead_are_pinned_where_that_is_faster(type: Q, tile: tuple[int, ...], pinned: int) -> None:
    weight = Weight("w", type, 4096, 1280, (("w", 0, 4096),))
    device = tiles.with_tile(replace(GPU, matrix=16), matmul_tiles.matmul_key(weight), tile)
    _, chosen = matmul_tiles.matmul(device, 512, weight)
    assert tuple(chosen[name] for name in matmul_tiles.MATMUL) == tile
    assert chosen["PINNED"] == pinned
