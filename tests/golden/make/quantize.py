"""Quantize the tensors of a random model, with gguf-py or with ggml's own routines.

A bare type name (Q4_K) is "pure": every matrix becomes that type. Q4_K_M and MXFP4_MOE choose a type for each tensor as
llama-quantize does (llama.cpp, src/llama-quant.cpp).
"""

import ctypes
from collections.abc import Iterable

import gguf
import numpy as np
from gguf import GGMLQuantizationType as TensorType

from tests.golden.make.llama_cpp_api import Library, NoLlamaCpp
from tests.golden.make.tensor_types import tensor_type

GGUF_PY = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")
GGML = (
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS"),
    *("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "NVFP4", "Q1_0", "Q2_0"),
)
MIXES = ("Q4_K_M", "MXFP4_MOE")
# llama_ftype, which general.file_type records.
FILE_TYPES = {
    **{"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K": 12},
    **{"Q4_K": 15, "Q4_K_M": 15, "Q5_K": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "IQ3_XXS": 23, "IQ1_S": 24},
    **{"IQ4_NL": 25, "IQ3_S": 26, "IQ2_S": 29, "IQ4_XS": 30, "IQ1_M": 31, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37},
    **{"MXFP4": 38, "MXFP4_MOE": 38, "NVFP4": 39, "Q1_0": 40, "Q2_0": 41},
}
# What llama-quantize takes where a row does not divide into blocks of 256.
SMALLER_BLOCKS = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
NEEDS_IMPORTANCE = ("IQ1", "IQ2", "IQ3")


def fits(shape: tuple[int, ...], kind: str) -> bool:
    """Does a row divide into the type's blocks?"""
    block: int = gguf.GGML_QUANT_SIZES[tensor_type(kind)][0]
    return shape[-1] % block == 0


class Quantizer:
    """The types and bytes of a model's tensors."""

    def __init__(self, kind: str, float32: set[str], kinds: dict[str, str], seed: int, library: Library | None) -> None:
        self.kind, self.float32, self.kinds, self.library = kind, float32, kinds, library
        self.random = np.random.default_rng(seed)
        self.layers = 0
        if kind not in GGUF_PY and library is None:
            raise NoLlamaCpp(f"{kind} is quantized by ggml")

    def order(self, names: Iterable[str]) -> list[str]:
        """Tensor names as they lie in the file: as created, or as llama-quantize sorts them."""
        if self.kind in GGUF_PY:
            return list(names)
        return sorted(names, key=lambda name: (int(name.split(".")[1]) if name.startswith("blk.") else -1, name))

    def quantize(self, tensors: dict[str, np.ndarray]) -> dict[str, tuple[np.ndarray, TensorType]]:
        """Each tensor's bytes and type, in the file's order."""
        weights = self.importance(tensors)
        self.layers = 1 + max((int(name.split(".")[1]) for name in tensors if name.startswith("blk.")), default=0)
        out = {}
        for name in self.order(tensors):
            tensor = tensors[name]
            kind = "F32" if name in self.float32 else self.type_of(name, tensor.shape, "output.weight" not in tensors)
            if tensor.dtype == np.int32:
                kind = "I32"
            if kind in ("F32", "I32"):
                data = tensor
            elif kind == "F16":
                data = tensor.astype(np.float16)
            elif self.kind in GGUF_PY:
                data = gguf.quants.quantize(tensor, tensor_type(kind))
            else:
                data = self.with_ggml(tensor, tensor_type(kind), weights.get(name))
            out[name] = (data, tensor_type(kind))
        return out

    def type_of(self, name: str, shape: tuple[int, ...], tied: bool) -> str:
        """A matrix's type; F16 where no block size fits."""
        kind = self.kinds.get(name, self.kind)
        if kind in MIXES:
            layer = int(name.split(".")[1]) if name.startswith("blk.") else 0
            kind = mixed_type(kind, name, shape, tied, layer, self.layers)
        if not fits(shape, kind):
            kind = SMALLER_BLOCKS.get(kind, "F16")
        return kind if fits(shape, kind) else "F16"

    def importance(self, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Random importance of each column, for the types that must have one; (experts, columns)."""
        if not self.kind.startswith(NEEDS_IMPORTANCE):
            return {}
        return {
            name: self.random.uniform(0.5, 1.5, tensor.shape[-1] * (len(tensor) if tensor.ndim > 2 else 1))
            .astype(np.float32)
            .reshape(-1, tensor.shape[-1])
            for name, tensor in tensors.items()
            if tensor.ndim > 1
        }

    def with_ggml(self, tensor: np.ndarray, kind: TensorType, importance: np.ndarray | None) -> np.ndarray:
        """The bytes of a float32 tensor's rows (..., bytes a row)."""
        assert self.library
        block, size = gguf.GGML_QUANT_SIZES[kind]
        columns = tensor.shape[-1]
        experts = np.ascontiguousarray(tensor.reshape(-1, *tensor.shape[-2:]))
        out = np.zeros((*experts.shape[:2], columns // block * size), np.uint8)
        pointer = ctypes.POINTER(ctypes.c_float)
        for i, expert in enumerate(experts):
            weights = None if importance is None else importance[i].ctypes.data_as(pointer)
            self.library.ggml.ggml_quantize_chunk(
                int(kind), expert.ctypes.data, out[i].ctypes.data, 0, len(expert), columns, weights
            )
        return out.reshape(*tensor.shape[:-1], -1)


def mixed_type(mix: str, name: str, shape: tuple[int, ...], tied: bool, layer: int, layers: int) -> str:
    """A tensor's type in one of llama-quantize's mixes, for models other than Falcon and those of 8 experts."""
    is_output = name == "output.weight" or (tied and name == "token_embd.weight")
    if mix == "MXFP4_MOE":
        return "MXFP4" if len(shape) > 2 and not is_output else "Q8_0"
    if is_output:
        return "Q6_K" if fits(shape, "Q4_K") else "Q8_0"
    more_bits = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    sensitive = any(part in name for part in ("attn_v.", "attn_qkv.", "ffn_down"))
    return "Q6_K" if sensitive and more_bits else "Q4_K"
