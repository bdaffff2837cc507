"""Tensor types that gguf 0.19 does not read: it knows Q1_0 by name only, and Q2_0 not at all."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType

Q2_0, Q2_0_SIZE = 42, (64, 18)  # ggml's number; values and bytes of a block


def tensor_type(name: str) -> GGMLQuantizationType:
    """gguf's member of this name."""
    return GGMLQuantizationType[name]


def add_types() -> None:
    """Make gguf read and write files with Q2_0."""
    if Q2_0 in GGMLQuantizationType._value2member_map_:
        return
    added = int.__new__(GGMLQuantizationType, Q2_0)
    added._name_, added._value_ = "Q2_0", Q2_0
    GGMLQuantizationType._member_map_["Q2_0"] = GGMLQuantizationType._value2member_map_[Q2_0] = added
    gguf.GGML_QUANT_SIZES[added] = Q2_0_SIZE


def dequantize(data: np.ndarray, type: GGMLQuantizationType) -> np.ndarray:
    """The values (..., cols) of rows of blocks (..., bytes of a row)."""
    if type.name == "I32":
        return data
    if type.name not in ("Q1_0", "Q2_0"):
        return np.asarray(gguf.quants.dequantize(data, type))
    block, size = gguf.GGML_QUANT_SIZES[type]
    blocks = data.reshape(-1, size)
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    codes = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").astype(np.float32)
    values = 2 * codes - 1 if type.name == "Q1_0" else codes[:, ::2] + 2 * codes[:, 1::2] - 1
    return np.asarray(values * scales).reshape(*data.shape[:-1], data.shape[-1] // size * block)


add_types()
