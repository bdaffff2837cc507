"""The CPU engine's memory layout of each GGUF tensor type: panels of four rows, which wasm/formats.h describes."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q

ROWS = 4  # rows of a panel
GROUP = 32  # columns whose activations share a scale
ROUNDED_GROUP_BYTES = 4 + 2 * 4 + GROUP + 2 * GROUP  # of a rounded row: a scale, two sums, levels as bytes and as i16

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
HALF_SCALE = {"HALF_32": 2, "HALF_16": 4, "FLOAT_32": 4, "LEVELS_32": 4, "LEVELS_16": 4}
LEVELS = {"LEVELS_32": 8, "LEVELS_16": 16}


@dataclass(frozen=True)
class Format:
    """A type's layout: the kinds of values and scales (wasm/formats.h), and what is subtracted from a code.

    `table`: the values that codes stand for, plus the offset.
    """

    kind: str
    scales: str
    minimum: bool = False
    offset: int = 0
    table: tuple[int, ...] = ()

    @property
    def values(self) -> int:
        """Columns of a unit."""
        if self.kind == "FLOATS":
            return 1
        return 256 if self.scales in LEVELS else GROUP

    def unit_bytes(self, type: Q) -> int:
        """Bytes of a unit: its columns of four rows."""
        if self.kind == "FLOATS":
            return ROWS * BLOCK_SIZES[type][1]
        scales = ROWS * (HALF_SCALE[self.scales] + LEVELS.get(self.scales, 0)) * (1 + self.minimum)
        return scales + ROWS * self.values // (1 if self.kind.endswith("BYTES") else 2)


def _signed(*levels: int) -> tuple[int, ...]:
    """Codes of levels with a sign: the positive ones first."""
    return (*levels, *(-level for level in levels))


def _codes(scales: str, levels: tuple[int, ...]) -> Format:
    """Codes for these levels. The table holds them plus an offset, so that none is negative."""
    offset = -min(levels)
    return Format("CODES", scales, offset=offset, table=tuple(level + offset for level in levels))


E2M1 = _signed(0, 1, 2, 3, 4, 6, 8, 12)  # floats of four bits, times two

FORMATS: dict[Q, Format] = {
    Q.F32: Format("FLOATS", "NO_SCALE"),
    Q.F16: Format("FLOATS", "NO_SCALE"),
    Q.BF16: Format("FLOATS", "NO_SCALE", offset=1),
    Q.Q4_0: Format("NIBBLES", "HALF_32", offset=8),
    Q.Q4_1: Format("NIBBLES", "HALF_32", minimum=True),
    Q.Q5_0: Format("BYTES", "HALF_32", offset=16),
    Q.Q5_1: Format("BYTES", "HALF_32", minimum=True),
    Q.Q8_0: Format("SIGNED_BYTES", "HALF_32"),
    Q.Q2_K: Format("NIBBLES", "LEVELS_16", minimum=True),
    Q.Q3_K: Format("NIBBLES", "LEVELS_16", offset=4),
    Q.Q4_K: Format("NIBBLES", "LEVELS_32", minimum=True),
    Q.Q5_K: Format("BYTES", "LEVELS_32", minimum=True),
    Q.Q6_K: Format("BYTES", "LEVELS_16", offset=32),
    Q.IQ4_NL: Format("SIGNED_CODES", "HALF_32", table=tuple(level & 255 for level in IQ4)),
    Q.IQ4_XS: Format("SIGNED_CODES", "LEVELS_32", table=tuple(level & 255 for level in IQ4)),
    Q.MXFP4: _codes("FLOAT_32", E2M1),
    Q.NVFP4: _codes("HALF_16", E2M1),
    Q.Q1_0: Format("NIBBLES", "HALF_32", offset=1),
    Q.Q2_0: Format("NIBBLES", "HALF_32", offset=1),
    Q.TQ1_0: Format("NIBBLES", "LEVELS_32", offset=1),
    Q.TQ2_0: Format("NIBBLES", "LEVELS_32", offset=1),
    Q.IQ3_S: _codes("LEVELS_32", _signed(1, 3, 5, 7, 9, 11, 13, 15)),
    Q.IQ3_XXS: _codes("LEVELS_32", _signed(4, 12, 20, 28, 36, 44, 52, 62)),
    Q.IQ2_XXS: _codes("LEVELS_32", (*_signed(8, 25, 43), 0, 0)),
    Q.IQ2_XS: _codes("LEVELS_16", (*_signed(8, 25, 43), 0, 0)),
    Q.IQ2_S: _codes("LEVELS_16", (*_signed(8, 25, 43), 0, 0)),
    Q.IQ1_S: _codes("LEVELS_32", (-7, 1, 9, 0, -9, -1, 7, 0)),
    Q.IQ1_M: _codes("LEVELS_16", (-7, 1, 9, 0, -9, -1, 7, 0)),
}


def weight_bytes(type: Q, rows: int, cols: int) -> int:
    """Bytes of a matrix: whole panels."""
    format = FORMATS[type]
    return -(-rows // ROWS) * (cols // format.values) * format.unit_bytes(type)
