"""How attention of many tokens is divided for a device without subgroup matrices: the #params of attention.wgsl.

A workgroup multiplies ROWS rows of queries with TS positions at a time. Queries, keys and values are in workgroup
memory, so the widest heads have the smallest tiles. A tile measured on the device itself takes precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.plan.kernels import Device

# Of a measured tile. ROWS: of queries; TS: positions; WG: threads; SR: rows of a thread's scores, of four positions
# each; VR: rows of a thread's sums; TEAMS: groups of threads that share a tile's sums, each of its own positions;
# AHEAD: keys and values are loaded into registers, 2: before the scores, 1: before the softmax, 0: not; HALF_SUMS:
# values are summed in f16, eight at a time
TILE = ("ROWS", "TS", "WG", "SR", "VR", "TEAMS", "AHEAD", "HALF_SUMS")
SIZES = (
    (64, 64),
    (64, 32),
    (32, 32),
    (32, 16),
    (16, 16),
    (16, 8),
    (8, 8),
    (8, 4),
    (4, 4),
)  # (ROWS, TS), the best first
THREADS = 128
MAX_CHAIN = 8  # vectors whose products are summed in f16
MAX_SUMS = 16  # vectors of a thread's sums, which are in registers


def key(head_dim: int, group: int) -> str:
    """The key in Device.tiles of the tile of attention of many tokens: TILE."""
    return f"attention of a prompt {head_dim} {group}"


@dataclass(frozen=True)
class _Shape:
    """Dimensions of keys and values, query heads of a key, positions of a page, bytes of a number in the workgroup."""

    head_dim: int
    value_dim: int
    group: int
    page: int
    size: int

    @property
    def chain(self) -> int:
        """Vectors whose products are summed in f16."""
        return next(n for n in range(MAX_CHAIN, 0, -1) if self.head_dim // 4 % n == 0)

    @property
    def vectors(self) -> int:
        """Vectors of a row of keys or values in workgroup memory, in whole chains: values may be wider."""
        return -(-max(self.head_dim, self.value_dim) // (4 * self.chain)) * self.chain

    @property
    def unused(self) -> int:
        """Vectors between rows, so that eight consecutive ones begin in different banks."""
        return (6 - self.vectors % 4) % 4 if self.size == 2 else 1 - self.vectors % 2

    def bytes(self, rows: int, positions: int, one_buffer: bool) -> int:
        """Workgroup memory of attention.wgsl: queries, keys, values, weights, maxima and factors of rows."""
        pitch = 4 * (self.vectors + self.unused)
        numbers = (rows + positions * (1 if one_buffer else 2)) * pitch + rows * positions
        return numbers * self.size + rows * positions + 4 * rows


def attention(
    device: Device, head_dim: int, value_dim: int, group: int, page: int, precise: bool = False
) -> dict[str, int]:
    """The tile of attention.wgsl: #params.

    `page`: positions of a page of the cache. `precise`: products and sums are in f32.
    """
    shape = _Shape(head_dim, value_dim, group, page, 2 if device.f16 else 4)
    if device.software:
        params = _params(device, shape, _software_tile(device, shape))
    else:
        measured = None if precise else dict(device.tiles).get(key(head_dim, group))
        params = _params(device, shape, measured or _tile(device, shape))
    return params | ({"SUMS32": 1, "HALF_SUMS": 0} if device.f16 and precise else {})


def _params(device: Device, shape: _Shape, tile: tuple[int, ...]) -> dict[str, int]:
    params = dict(zip(TILE, tile, strict=True))
    team = params["WG"] // params["TEAMS"]
    columns = team * params["VR"] // params["ROWS"]  # threads of a team that share a row's sums, at most
    joined = 16 * team if params["TEAMS"] > 1 else 0
    two_fit = shape.bytes(params["ROWS"], params["TS"], one_buffer=False) + joined <= device.max_workgroup_storage
    return params | {
        "TQ": params["ROWS"] // shape.group,
        "CHAIN": shape.chain,
        "UNUSED": shape.unused,
        "VC": -(-shape.value_dim // 4 // columns),
        "ONE_BUFFER": int(not two_fit),
        "HALF_SUMS": int(device.f16 and params["HALF_SUMS"]),
        "LOOPED": int(device.software),
    }


def _tile(device: Device, shape: _Shape) -> tuple[int, ...]:
    """The largest tile that fits."""
    sizes = [(_rows(rows, shape.group), positions) for rows, positions in SIZES if positions <= shape.page]
    rows, positions = _first_that_fits(device, shape, sizes, score_rows=4)
    sum_rows = 4 if rows % 4 == 0 else 1
    score_rows = next(n for n in (4, 2, 1) if rows % n == 0 and (n == 1 or rows // n * positions // 4 >= 64))
    threads = max(THREADS, rows // score_rows * positions // 4)
    columns = -(-shape.value_dim // 4 // MAX_SUMS * sum_rows)
    columns = min(columns, device.max_threads // (rows // sum_rows))
    threads = max(threads, rows // sum_rows * columns)
    return rows, positions, threads, score_rows, sum_rows, 1, 1, 1


def _first_that_fits(
    device: Device, shape: _Shape, sizes: Sequence[tuple[int, int]], score_rows: int
) -> tuple[int, int]:
    """The first of `sizes` (rows, positions) that the device can hold; else the smallest, the rows of one token.

    `score_rows`: rows of a thread's scores.
    """
    for rows, positions in sizes:
        fits = shape.bytes(rows, positions, one_buffer=True) <= device.max_workgroup_storage
        if fits and rows // score_rows * positions // 4 <= device.max_threads:
            return rows, positions
    return shape.group, 4


def _rows(rows: int, group: int) -> int:
    """Rows of a tile of about so many: those of at least one token."""
    return rows if group <= rows else -(-group // 4) * 4


def _software_tile(device: Device, shape: _Shape) -> tuple[int, ...]:
    sizes = [(max(4, shape.group), positions) for positions in (16, 8, 4)]
    rows, positions = _first_that_fits(device, shape, sizes, score_rows=1)
    return rows, positions, max(16, rows * positions // 4, shape.value_dim // 4), 1, 1, 1, 0, 0
