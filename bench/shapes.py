"""Hyperparameters of models that people run, and the tensors of their GGUF files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q

# File types that mix tensor types as llama.cpp's quantize does: of most matrices, and of those that get more bits.
MIX = "Q4_K_M"
MIXES = {MIX: (Q.Q4_K, Q.Q6_K), "Q5_K_M": (Q.Q5_K, Q.Q6_K)}
# llama.cpp's fallback types, for rows that are no multiple of a K-quant's block of 256 values.
FALLBACK = {Q.Q4_K: Q.Q5_0, Q.Q5_K: Q.Q5_1, Q.Q6_K: Q.Q8_0, Q.IQ4_XS: Q.IQ4_NL}
ALIGNMENT = 32  # bytes


@dataclass(frozen=True)
class Shape:
    """A model's hyperparameters. `n_ff`: of one expert in a mixture; `window`: tokens of sliding attention, 0: none."""

    architecture: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    vocab: int
    tied: bool
    context: int = 32768
    rope_base: float = 500000.0
    window: int = 0
    experts: int = 0
    experts_used: int = 0


SHAPES = {
    "smollm2-135m": Shape("llama", 30, 576, 1536, 9, 3, 64, 49152, True),
    "qwen2-0.5b": Shape("qwen2", 24, 896, 4864, 14, 2, 64, 151936, True, rope_base=1000000.0),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, True, rope_base=1000000.0),
    "gemma-3-1b": Shape("gemma3", 26, 1152, 6912, 4, 1, 256, 262144, True, rope_base=1000000.0, window=512),
    "llama-3.2-1b": Shape("llama", 16, 2048, 8192, 32, 8, 64, 128256, True),
    "qwen3-4b": Shape("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, True, rope_base=1000000.0),
    "qwen3-8b": Shape("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, False, rope_base=1000000.0),
    "llama-3.1-8b": Shape("llama", 32, 4096, 14336, 32, 8, 128, 128256, False),
    # 12 of the 48 layers of Qwen3-30B-A3B
    "qwen3-moe": Shape(
        "qwen3moe", 12, 2048, 768, 32, 4, 128, 151936, False, rope_base=1000000.0, experts=128, experts_used=8
    ),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a file. `shape` in numpy's order: (size,), (rows, cols) or (experts, rows, cols)."""

    name: str
    shape: tuple[int, ...]
    type: Q


def metadata(shape: Shape) -> dict[str, Any]:
    """The file's GGUF keys, without the tokenizer's."""
    found: dict[str, Any] = {
        "block_count": shape.n_layer,
        "context_length": shape.context,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": shape.rope_base,
    }
    if shape.architecture in ("llama", "qwen2"):
        found["rope.dimension_count"] = shape.head_dim
    if shape.window:
        found["attention.sliding_window"] = shape.window
    if shape.experts:
        found |= {
            "expert_count": shape.experts,
            "expert_used_count": shape.experts_used,
            "expert_feed_forward_length": shape.n_ff,
        }
    return {f"{shape.architecture}.{name}": value for name, value in found.items()}


def tensors(shape: Shape, type: str) -> Iterator[Tensor]:
    """The tensors, in the file's order. `type`: of all matrices, or one of MIXES."""
    dim, q, kv = shape.n_embd, shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    low, high = MIXES[type] if type in MIXES else (Q[type], Q[type])

    def vector(name: str, size: int, end: str = "weight") -> Tensor:
        return Tensor(f"{name}.{end}", (size,), Q.F32)

    def matrix(name: str, kind: Q, *size: int) -> Tensor:
        fits = size[-1] % BLOCK_SIZES[kind][0] == 0
        return Tensor(f"{name}.weight", size, kind if fits else FALLBACK[kind])

    yield matrix("token_embd", high if shape.tied else low, shape.vocab, dim)
    yield vector("output_norm", dim)
    if not shape.tied:
        yield matrix("output", high, shape.vocab, dim)
    for i in range(shape.n_layer):
        b = f"blk.{i}."
        better = high if _use_more_bits(i, shape.n_layer) else low
        yield vector(b + "attn_norm", dim)
        yield vector(b + "ffn_norm", dim)
        if shape.architecture in ("qwen3", "gemma3", "qwen3moe"):
            yield vector(b + "attn_q_norm", shape.head_dim)
            yield vector(b + "attn_k_norm", shape.head_dim)
        if shape.architecture == "gemma3":
            yield vector(b + "post_attention_norm", dim)
            yield vector(b + "post_ffw_norm", dim)
        yield matrix(b + "attn_q", low, q, dim)
        yield matrix(b + "attn_k", low, kv, dim)
        yield matrix(b + "attn_v", better, kv, dim)
        yield matrix(b + "attn_output", low, dim, q)
        if shape.architecture == "qwen2":
            for part, rows in (("q", q), ("k", kv), ("v", kv)):
                yield vector(f"{b}attn_{part}", rows, "bias")
        if shape.experts:
            yield Tensor(b + "ffn_gate_inp.weight", (shape.experts, dim), Q.F32)
            yield matrix(b + "ffn_gate_exps", low, shape.experts, shape.n_ff, dim)
            yield matrix(b + "ffn_up_exps", low, shape.experts, shape.n_ff, dim)
            yield matrix(b + "ffn_down_exps", better, shape.experts, dim, shape.n_ff)
        else:
            yield matrix(b + "ffn_gate", low, shape.n_ff, dim)
            yield matrix(b + "ffn_up", low, shape.n_ff, dim)
            yield matrix(b + "ffn_down", better, dim, shape.n_ff)


def gets_better(name: str, layers: int) -> bool:
    """Whether a mix has its second type for a matrix. `layers`: the model's. The embeddings count as the head."""
    if name in ("output.weight", "token_embd.weight"):
        return True
    found = re.fullmatch(r"blk\.(\d+)\.(attn_v|ffn_down|ffn_down_exps|ffn_down_shexp)\.weight", name)
    return found is not None and _use_more_bits(int(found[1]), layers)


def _use_more_bits(layer: int, layers: int) -> bool:
    """Whether the mix has `high` for a layer's attn_v and ffn_down: llama.cpp's use_more_bits."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def header(shape: Shape, type: str) -> Header:
    """The header of such a file, with what a plan reads: no tokenizer."""
    infos, at = {}, 0
    for tensor in tensors(shape, type):
        block, size = BLOCK_SIZES[tensor.type]
        nbytes = prod(tensor.shape) // block * size
        infos[tensor.name] = TensorInfo(tensor.name, tensor.shape[::-1], tensor.type, at, nbytes)
        at += -(-nbytes // ALIGNMENT) * ALIGNMENT
    keys = {"general.architecture": shape.architecture, **metadata(shape)}
    return Header(3, keys, infos, ALIGNMENT, 0, at)
