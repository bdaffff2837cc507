"""The GPU memory layout of each GGUF tensor type, one entry per type.

A matrix of `rows` x `cols` is stored row by row. The raw blocks of quantised types (32 or 256 values in 17 to 210
bytes) are badly aligned. wgsl/repack.wgsl therefore repacks them at load into at most two planes. A plane starts on a
256-byte boundary and holds one record of fixed size per block:

    w_qs  the quantised values, in 16-byte loads where the type allows it
    w_d   the scales, which several threads read at once. For types whose values are indices into a grid of patterns,
          the grid precedes the scales.

Plain types need no repacking, only rows padded with zeros to whole groups of 32 (`GROUP`). A quantised row consists of
whole blocks. wgsl/quants/<fragment>.wgsl dequantizes a group to 32 floats. Block formats: ggml's `ggml-common.h`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.draft_header import described, field_of
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q

GROUP = 32
ALIGN = 256  # the largest minStorageBufferOffsetAlignment that WebGPU allows
CODEBOOKS = frozenset({"iq4_nl", "iq4_xs", "mxfp4", "nvfp4"})  # fragments
RANGES = 3  # most ranges of a plane


@dataclass(frozen=True)
class Plane:
    """One record per block: `ranges` (first byte in the raw block, bytes) end to end, zero-padded to `stride` bytes.

    The stride is 1, 2 or a multiple of 4, and so is every range but the last. `table` bytes precede the records.
    """

    stride: int
    ranges: tuple[tuple[int, int], ...]
    table: int = 0


@dataclass(frozen=True)
class Layout:
    """A type's layout: the WGSL fragment, the values and bytes of a block, and the planes by their names in WGSL."""

    fragment: str
    block: int
    block_bytes: int
    planes: Mapping[str, Plane]
    dot8: bool = True  # the fragment has w_dot, the product with activations rounded to bytes
    groups_per_thread: int = 1  # groups that a thread of matvec.wgsl reads at a time
    two_scales: bool = False  # each half of a group of 32 has a scale of its own

    @property
    def codebook(self) -> bool:
        """Whether codes of four bits stand for the values, which takes long to unpack (wgsl/quants/codebook.wgsl)."""
        return self.fragment in CODEBOOKS

    @property
    def plain(self) -> bool:
        """Whether the plane holds the file's bytes, apart from the padding of rows."""
        return list(self.planes) == ["w_qs"] and self.planes["w_qs"].ranges == ((0, self.block_bytes),)


def _plain(fragment: str, size: int) -> Layout:
    return Layout(fragment, GROUP, GROUP * size, {"w_qs": Plane(GROUP * size, ((0, GROUP * size),))}, False)


def _packed(
    type: Q,
    qs: list[tuple[int, int]],
    d: list[tuple[int, int]],
    stride: int = 0,
    grid: int = 0,
    groups_per_thread: int = 1,
    two_scales: bool = False,
) -> Layout:
    """Planes of these ranges. `stride`: of w_d, if padded; `grid`: 16-bit entries before w_d's records."""
    block, size = BLOCK_SIZES[type]
    planes = {
        "w_qs": Plane(sum(n for _, n in qs), tuple(qs)),
        "w_d": Plane(stride or sum(n for _, n in d), tuple(d), 2 * grid),
    }
    return Layout(type.name.lower(), block, size, planes, groups_per_thread=groups_per_thread, two_scales=two_scales)


LAYOUTS = {
    Q.F32: _plain("f32", 4),
    Q.F16: _plain("f16", 2),
    Q.BF16: _plain("bf16", 2),
    Q.Q8_0: _packed(Q.Q8_0, [(2, 32)], [(0, 2)]),
    Q.Q4_0: _packed(Q.Q4_0, [(2, 16)], [(0, 2)]),
    Q.Q4_K: _packed(Q.Q4_K, [(16, 128)], [(0, 16)], groups_per_thread=2),  # d: d, dmin, 12 bytes of scales
    Q.Q5_K: _packed(Q.Q5_K, [(16, 160)], [(0, 16)], groups_per_thread=2),  # qs: fifth bits, nibbles
    Q.Q6_K: _packed(Q.Q6_K, [(0, 192)], [(192, 18)], 20, two_scales=True),  # qs: nibbles, upper bits; d: scales, d
    Q.Q3_K: _packed(Q.Q3_K, [(0, 96)], [(96, 14)], 16, two_scales=True),  # qs: third bits, lower bits; d: scales, d
    Q.Q2_K: _packed(Q.Q2_K, [(16, 64)], [(0, 16), (80, 4)], two_scales=True),  # d: scales, d, dmin
    Q.Q4_1: _packed(Q.Q4_1, [(4, 16)], [(0, 4)]),  # d: d, m
    Q.Q5_0: _packed(Q.Q5_0, [(6, 16)], [(2, 4), (0, 2)], 8),  # d: fifth bits, d
    Q.Q5_1: _packed(Q.Q5_1, [(8, 16)], [(0, 8)]),  # d: d, m, fifth bits
    Q.IQ4_NL: _packed(Q.IQ4_NL, [(2, 16)], [(0, 2)]),
    Q.IQ4_XS: _packed(Q.IQ4_XS, [(8, 128)], [(0, 8)]),  # d: d, scales
    Q.MXFP4: _packed(Q.MXFP4, [(1, 16)], [(0, 1)]),  # d: exponent
    Q.NVFP4: _packed(Q.NVFP4, [(4, 32)], [(0, 4)], two_scales=True),  # d: the scales of 16 values each
    Q.Q1_0: _packed(Q.Q1_0, [(2, 16)], [(0, 2)]),
    Q.Q2_0: _packed(Q.Q2_0, [(2, 16)], [(0, 2)]),
    Q.TQ1_0: _packed(Q.TQ1_0, [(0, 48)], [(48, 6)], 8),  # d: the last 16 values, d
    Q.TQ2_0: _packed(Q.TQ2_0, [(0, 64)], [(64, 2)]),
    Q.IQ3_S: _packed(Q.IQ3_S, [(2, 108)], [(0, 2)], grid=512),  # qs: indices, their ninth bits, signs, scales
    Q.IQ3_XXS: _packed(Q.IQ3_XXS, [(2, 96)], [(0, 2)], grid=256),  # qs: indices, signs and scales
    Q.IQ2_XXS: _packed(Q.IQ2_XXS, [(2, 64)], [(0, 2)], grid=256),
    Q.IQ2_XS: _packed(Q.IQ2_XS, [(2, 64)], [(66, 8), (0, 2)], 12, grid=512, two_scales=True),  # d: scales, d
    # qs: indices, signs; d: upper bits, scales, d
    Q.IQ2_S: _packed(Q.IQ2_S, [(2, 64)], [(66, 16), (0, 2)], 20, grid=1024, two_scales=True),
    Q.IQ1_S: _packed(Q.IQ1_S, [(2, 48)], [(0, 2)], grid=2048),  # qs: indices, upper bits and scales
    Q.IQ1_M: _packed(
        Q.IQ1_M, [(0, 48)], [(48, 8)], grid=2048, two_scales=True
    ),  # qs: indices, upper bits; d: scales and d
}


def layout(type: Q, tensor: str) -> Layout:
    """The layout of a tensor's type. WispError unsupported_quantization if there is none."""
    if type not in LAYOUTS:
        known = ", ".join(t.name for t in LAYOUTS)
        raise WispError(
            f"{described(tensor)} is stored as {type.name}, which Wisp cannot run yet. Use a file in one of: {known}.",
            "unsupported_quantization",
            param=field_of(tensor),
        )
    return LAYOUTS[type]


def grid(type: Q) -> bytes:
    """The patterns of a type's grid, 16 bits each: eight 2-bit or four 4-bit values. gguf needs numpy for it."""
    from gguf import quants as definitions

    grid_hex: bytes = getattr(definitions, type.name).grid_hex
    return bytes.fromhex(grid_hex.decode())


def needs_numpy(type: Q) -> bool:
    """Whether the type has a grid, which needs numpy."""
    return type in LAYOUTS and any(p.table for p in LAYOUTS[type].planes.values())


def groups(cols: int) -> int:
    """Groups of 32 in a padded row of `cols` values."""
    return -(-cols // GROUP)


def row_bytes(type: Q, cols: int) -> int:
    """Bytes of one row of `cols` values in the GGUF file."""
    block, size = BLOCK_SIZES[type]
    return cols // block * size
