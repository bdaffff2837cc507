"""Blocks of the GGUF file to float32, with gguf and, for types that it cannot read, here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.call import Array
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q


def _fields(blocks: Array, bits: int) -> Array:
    """The small numbers after each block's f16 scale, the lowest bits first: (blocks, values)."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found: Array = ((blocks[:, 2:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(len(blocks), -1)
    return found


def _scales(blocks: Array) -> Array:
    found: Array = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    return found


OWN: dict[Q, Callable[[Array], Array]] = {
    Q.Q1_0: lambda blocks: (2 * _fields(blocks, 1).astype(np.float32) - 1) * _scales(blocks),
    Q.Q2_0: lambda blocks: (_fields(blocks, 2).astype(np.float32) - 1) * _scales(blocks),
}


def dequantize_rows(raw: Array, type: Q) -> Array:
    """The values of rows of blocks, uint8 (rows, bytes of a row): float32 (rows, cols)."""
    if type in OWN:
        blocks = raw.reshape(-1, BLOCK_SIZES[type][1])
        return OWN[type](blocks).reshape(len(raw), -1)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return np.ascontiguousarray(dequantize(raw, GGMLQuantizationType(type)), np.float32)
