"""Tiles of attention of prompts without subgroup matrices: what attention.wgsl needs of their numbers."""

from itertools import product

import pytest

from py_engine.plan import attention_tiles
from py_engine.plan.kernels import Device


@pytest.mark.parametrize("software", [False, True])
@pytest.mark.parametrize(
    ("head_dim", "value_dim", "group"),
    [
        (64, 64, 71), (128, 128, 96), (256, 256, 71), (512, 512, 1), (512, 512, 2),
        (576, 576, 1), (576, 576, 2), (192, 128, 1), (80, 80, 3), (32, 32, 8),
    ],
)  # fmt: skip
def test_tiles_fit_the_device(head_dim: int, value_dim: int, group: int, software: bool) -> None:
    """Threads and workgroup memory; each row's scores and sums have threads."""
    for f16, storage, page in product((False, True), (16384, 32768, 49152, 65536), (16, 64)):
        device = Device(f16=f16, max_workgroup_storage=storage, max_threads=256, software=software)
        shape = attention_tiles._Shape(head_dim, value_dim, group, page, 2 if f16 else 4)
        if shape.bytes(group, 4, one_buffer=True) > storage:
            continue  # the rows of one token do not fit: there is no tile
        tile = attention_tiles.attention(device, head_dim, value_dim, group, page)
        rows, positions, threads = tile["ROWS"], tile["TS"], tile["WG"]
        assert threads <= device.max_threads
        assert shape.bytes(rows, positions, bool(tile["ONE_BUFFER"])) <= storage
        assert rows % tile["SR"] == rows % tile["VR"] == page % positions == 0
        assert rows // tile["SR"] * positions // 4 <= threads
        assert rows // tile["VR"] * -(-value_dim // 4 // tile["VC"]) <= threads
