"""The memory layout of matrices of every type: sizes, alignment, the split at a binding limit."""

import pytest

from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import quants
from py_engine.plan.kernels import WGSL
from py_engine.plan.plan import Weight

NAMES = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S "
    "IQ1_S IQ1_M TQ1_0 TQ2_0 MXFP4 NVFP4 Q1_0 Q2_0"
)
each_type = pytest.mark.parametrize("type", quants.LAYOUTS, ids=lambda t: t.name)


def test_types() -> None:
    """Every type of ggml that files are made of."""
    assert {t.name for t in quants.LAYOUTS} == set(NAMES.split())


@each_type
def test_planes_hold_each_byte_once(type: Q) -> None:
    layout = quants.LAYOUTS[type]
    assert (WGSL / "quants" / f"{layout.fragment}.wgsl").exists()
    assert len(layout.planes) <= 2  # together with the busiest kernel's eight: every device's limit
    taken = sorted((at, size) for plane in layout.planes.values() for at, size in plane.ranges)
    end = 0
    for at, size in taken:
        assert at == end
        end += size
    assert end == layout.block_bytes
    for plane in layout.planes.values():
        *whole, last = [size for _, size in plane.ranges]
        assert len(plane.ranges) <= quants.RANGES
        assert plane.stride in (1, 2) or plane.stride % 4 == 0
        assert all(size % 4 == 0 for size in whole)
        assert sum(whole) + last <= plane.stride < sum(whole) + last + 4
        assert plane.table % 16 == 0
    if not layout.plain:
        assert (layout.block, layout.block_bytes) == BLOCK_SIZES[type]


@each_type
def test_grid(type: Q) -> None:
    """A grid has as many bytes as its plane reserves for it."""
    sizes = [p.table for p in quants.LAYOUTS[type].planes.values() if p.table]
    assert bool(sizes) == quants.needs_numpy(type)
    if sizes:
        assert [len(quants.grid(type))] == sizes


@each_type
def test_split_at_whole_rows(type: Q) -> None:
    """Every row in one part, every plane of a part within the limit."""
    weight = Weight("w", type, 100, 1024, (("a", 0, 60), ("b", 10, 40)))
    limit = 8192
    parts = weight.split(limit)
    assert len(parts) > 1
    row = 0
    for first, part in parts:
        assert first == row
        assert part.rows == sum(n for _, _, n in part.sources)
        assert all(part.plane_bytes(p) <= limit for p in part.layout.planes)
        row += part.rows
    assert row == 100
