"""How each GGUF tensor type lies in GPU memory, one entry a type.

A matrix of `rows` x `cols` is kept as groups of 32 elements (`GROUP`), rows padded with zeros to whole groups. The
raw GGUF blocks of quantised types are badly aligned (18 or 34 bytes), so a kernel (wgsl/repack_*.wgsl) sorts them at
load into planes, each of which starts on a 256-byte boundary and is read in 16-byte loads:

    qs  the numbers, `qs_bytes` a group
    d   the scales, two bytes (f16) a group, where the type has them

wgsl/quants/<fragment>.wgsl turns a group back into 32 floats. Block formats: ggml's `ggml-common.h`.
"""

from dataclasses import dataclass

from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Q

from py_engine.errors import WispError

GROUP = 32
ALIGN = 256  # WebGPU's minStorageBufferOffsetAlignment, at most


@dataclass(frozen=True)
class Layout:
    """Where a type's bytes go: fragment and repack kernel by name, bytes per group in each plane."""

    fragment: str
    qs_bytes: int
    d_bytes: int = 0
    dot8: bool = False  # the fragment has w_dot, for activations in bytes

    @property
    def planes(self) -> dict[str, int]:
        """Plane name (as bound in WGSL) -> bytes per group."""
        return {"w_qs": self.qs_bytes} | ({"w_d": self.d_bytes} if self.d_bytes else {})


LAYOUTS = {
    Q.F32: Layout("f32", 4 * GROUP),
    Q.F16: Layout("f16", 2 * GROUP),
    Q.BF16: Layout("bf16", 2 * GROUP),
    Q.Q8_0: Layout("q8_0", GROUP, 2, True),
    Q.Q4_0: Layout("q4_0", GROUP // 2, 2, True),
}


def layout(type: Q, tensor: str) -> Layout:
    """The layout of a tensor's type; WispError unsupported_quantization where there is none."""
    if type not in LAYOUTS:
        known = ", ".join(t.name for t in LAYOUTS)
        raise WispError(
            f"Tensor {tensor} is stored as {type.name}, which Wisp cannot run yet. Use a file in one of: {known}.",
            "unsupported_quantization",
        )
    return LAYOUTS[type]


def groups(cols: int) -> int:
    """Groups of 32 in a padded row of `cols` elements."""
    return -(-cols // GROUP)


def row_bytes(type: Q, cols: int) -> int:
    """Bytes of one row of `cols` elements in the GGUF file."""
    block, size = GGML_QUANT_SIZES[type]
    return cols // block * size
