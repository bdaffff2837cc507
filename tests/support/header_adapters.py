"""Adapters for the matrices that most architectures have, of headers alone."""

from math import prod

from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.adapters import Adapters, Pair

RANK = 16
COMMON = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
OF_EXPERTS = tuple(f"ffn_{part}_{kind}" for part in ("gate", "up", "down", "gate_up") for kind in ("exps", "chexps"))
NOT_ADAPTED = "encoder_decoder"  # refused: tests/unit/test_adapters.py


def matrices(model: Header) -> dict[str, TensorInfo]:
    """The matrices of a model's layers that most architectures have."""
    named = {name: name.split(".") for name in model.tensors if name.startswith("blk.") and name.endswith(".weight")}
    found = {name: (parts[2], model.tensors[name]) for name, parts in named.items()}
    shapes = {**dict.fromkeys(COMMON, 2), **dict.fromkeys(OF_EXPERTS, 3)}
    return {name: info for name, (kind, info) in found.items() if len(info.shape) == shapes.get(kind)}


def adapters_of(model: Header) -> Adapters:
    """An adapter for these matrices."""
    found = Adapters([1.0])
    for name, info in matrices(model).items():
        cols, rows, *experts = info.shape
        a = TensorInfo(f"{name}.lora_a", (cols, RANK, *experts), Q.F16, 0, 2 * cols * RANK * prod(experts))
        b = TensorInfo(f"{name}.lora_b", (RANK, rows, *experts), Q.F16, 0, 2 * rows * RANK * prod(experts))
        found.pairs[name] = [Pair(0, a, b, RANK, 1.0)]
    return found
