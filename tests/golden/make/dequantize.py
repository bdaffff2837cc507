"""dequant.npz: random block bytes of every quantized type and the float32 values they stand for.

<TYPE>.raw is uint8 (blocks, bytes a block), <TYPE>.f32 float32 (blocks, values a block). All bits are random, so every
code, sub-scale and sign is met, which quantized normal weights do not do. Only float16 scales are kept finite; some are
negative, subnormal or zero. The values are gguf-py's and must equal those of ggml's C routines.
"""

import ctypes
from pathlib import Path

import gguf
import numpy as np

from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.tensor_types import dequantize, tensor_type

SEED = 1
BLOCKS = 24
# Type: (byte offsets of its float16 scales, ending of ggml's routine).
TYPES: dict[str, tuple[tuple[int, ...], str | None]] = {
    "BF16": ((), None),
    "Q4_0": ((0,), "q4_0"),
    "Q4_1": ((0, 2), "q4_1"),
    "Q5_0": ((0,), "q5_0"),
    "Q5_1": ((0, 2), "q5_1"),
    "Q8_0": ((0,), "q8_0"),
    "Q2_K": ((80, 82), "q2_K"),
    "Q3_K": ((108,), "q3_K"),
    "Q4_K": ((0, 2), "q4_K"),
    "Q5_K": ((0, 2), "q5_K"),
    "Q6_K": ((208,), "q6_K"),
    "IQ4_NL": ((0,), "iq4_nl"),
    "IQ4_XS": ((0,), "iq4_xs"),
    "IQ3_S": ((0,), "iq3_s"),
    "IQ3_XXS": ((0,), "iq3_xxs"),
    "IQ2_XXS": ((0,), "iq2_xxs"),
    "IQ2_XS": ((0,), "iq2_xs"),
    "IQ2_S": ((0,), "iq2_s"),
    "IQ1_S": ((0,), "iq1_s"),
    "IQ1_M": ((), "iq1_m"),
    "TQ1_0": ((52,), "tq1_0"),
    "TQ2_0": ((64,), "tq2_0"),
    "MXFP4": ((), "mxfp4"),
    "NVFP4": ((), "nvfp4"),
    "Q1_0": ((0,), "q1_0"),
    "Q2_0": ((0,), "q2_0"),
}


def random_blocks(name: str, random: np.random.Generator) -> np.ndarray:
    """Random bytes (BLOCKS, bytes a block) whose scales are finite."""
    size = gguf.GGML_QUANT_SIZES[tensor_type(name)][1]
    raw = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for offset in TYPES[name][0]:
        scale = (random.standard_normal(BLOCKS) * 2.0 ** random.integers(-12, 3, BLOCKS)).astype(np.float16)
        scale[1], scale[2] = 0, 3e-7  # zero and subnormal
        raw[:, offset : offset + 2] = scale.view(np.uint8).reshape(BLOCKS, 2)
    if name == "MXFP4":
        raw[:, 0] = random.integers(100, 140, BLOCKS)  # E8M0 exponent, bias 127
        raw[:3, 0] = (0, 1, 2)
    if name == "BF16":
        values = (random.standard_normal(BLOCKS) * 2.0 ** random.integers(-30, 30, BLOCKS)).astype(np.float32)
        upper = np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16))
        raw = upper.view(np.uint8).reshape(BLOCKS, size)
    if name == "IQ1_M":  # its float16 scale lies in the upper four bits of the four 16-bit words at byte 48
        bits = (random.standard_normal(BLOCKS) * 0.1).astype(np.float16).view(np.uint16)
        words = raw[:, 48:56].copy().view(np.uint16)
        for k in range(4):
            words[:, k] = (words[:, k] & 0x0FFF) | (((bits >> (4 * k)) & 0xF) << 12)
        raw[:, 48:56] = words.view(np.uint8)
    return raw


def with_ggml(library: Library, routine: str, raw: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The values by ggml's own routine."""
    out = np.zeros(shape, np.float32)
    own = getattr(library.ggml, "dequantize_row_" + routine)
    own(ctypes.c_void_p(raw.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(out.size))
    return out


def make(out: Path, library: Library) -> None:
    """Write the file if ggml's routines agree."""
    random = np.random.default_rng(SEED)
    arrays = {}
    for name, (_, routine) in TYPES.items():
        raw = random_blocks(name, random)
        values = dequantize(raw, tensor_type(name)).astype(np.float32).reshape(BLOCKS, -1)
        assert np.isfinite(values).all(), name
        if routine:
            np.testing.assert_array_equal(with_ggml(library, routine, raw, values.shape), values, name)
        arrays[name + ".raw"], arrays[name + ".f32"] = raw, values
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
