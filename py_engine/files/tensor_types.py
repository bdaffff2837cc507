"""ggml's tensor types by their numbers in files, and the values and bytes of a block of each.

The numbers are gguf's. gguf 0.19 lacks the newest type.
"""

from __future__ import annotations

from enum import IntEnum

from gguf.constants import GGML_QUANT_SIZES


class TensorType(IntEnum):
    """The types that ggml.h lists. It has dropped the numbers that are missing here."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


# (values, bytes) of a block
BLOCK_SIZES: dict[TensorType, tuple[int, int]] = {
    **{TensorType(int(type)): size for type, size in GGML_QUANT_SIZES.items()},
    TensorType.Q2_0: (64, 18),
}
