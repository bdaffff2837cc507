"""The checksum kernel against tests/support/checksums.py; repeated repacks. test_shards.py tests the sums in JS."""

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.gpu.repack import checksum, repacks
from py_engine.plan.placement import Placement
from py_engine.plan.shared_constants import THREADS
from tests.support.checksums import checksums
from tests.support.kernels.bench import Bench, Setup, dispatch, planes

BYTES = 4 * THREADS * 40  # more than one workgroup sums


@pytest.mark.parametrize("short", [0, 1, 2, 3, BYTES - 5, BYTES])
def test_sums_of_a_record(plain_bench: Bench, short: int) -> None:
    """Records of any length: sums are added to the buffer, and bytes after the end do not count."""
    random = np.random.default_rng(short)
    raw = random.integers(0, 256, BYTES + 64).astype(np.uint8)
    job = checksum(BYTES - short, 2, "checksums", plain_bench.device)
    found = np.array([1, 2, 0, 0, 5, 6], np.uint32)
    contents = {"raw": raw, "sums": found.view(np.uint8)}
    out = dispatch(plain_bench.page, job.shader, contents, job.consts, [*job.grid])
    assert out["sums"].view(np.uint32)[:6].tolist() == [1, 2, *checksums(raw[: BYTES - short].tobytes()), 5, 6]


@pytest.mark.parametrize("row0", [0, 1, 2])
def test_repack_replaces_what_was_damaged(plain_bench: Bench, row0: int) -> None:
    """Scales of some rows start and end within a word: repack replaces these scales and leaves their neighbours."""
    bench = plain_bench
    bench.begin(Setup(batch=1, n=1))
    weight = bench.weight("w", Q.Q4_0, 4, 96)
    whole, row = planes(weight, bench.raw["w"]), bench.raw["w"].size // 4
    place = Placement(weight, 0, row0, 1, row)
    for job in repacks(place, bench.device):
        size = weight.plane_row_bytes(job.plane)
        damaged = whole[job.plane].copy()
        damaged[row0 * size : (row0 + 1) * size] ^= 0xFF
        contents = {"raw": bench.raw["w"][row0 * row : (row0 + 1) * row], job.binding: damaged}
        out = dispatch(bench.page, job.shader, contents, job.consts, [*job.grid])
        np.testing.assert_array_equal(out[job.binding][: damaged.size], whole[job.plane])
