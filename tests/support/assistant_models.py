"""Gemma 4 models of random weights, and assistants that draft for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.reference import Reference
from tests.golden.make.reference_attention import KeysValues, rotate, rotation
from tests.golden.make.reference_model import ReferenceModel, gelu, softmax
from tests.support.cpu_models import GOLDEN
from tools.gguf_writer import add_value, finish

BASES = ("gemma4/gemma4", "gemma4/gemma4-dense")
DAMPED = 0.2  # of each layer's output: so the assistant, which also sees the token, often predicts what the model does
OUTPUTS = ("post_attention_norm", "post_ffw_norm", "post_norm")
WIDTH = 32  # of the assistant
LAYERS = [True, True, False]  # with a window


def _fields(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    source = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in source.fields.items() if not key.startswith("GGUF.")}
    fields.pop("tokenizer.ggml.token_type", None)
    return fields, {tensor.name: np.array(tensor.data) for tensor in source.tensors}


def _write(to: Path, arch: str, fields: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    writer = gguf.GGUFWriter(to, arch)
    for key, value in fields.items():
        add_value(writer, key, value)
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    finish(writer)


def write(base: str, model: Path, assistant: Path, dtype: type[np.floating] = np.float16) -> None:
    """Write a golden whose layers add little, and an assistant for it, with matrices of this type.

    Beside the assistant is `.reference.gguf`, the same with the names of a Gemma 4 model's metadata.
    """
    fields, tensors = _fields(GOLDEN / f"{base}.F16.gguf")
    arch = str(fields.pop("general.architecture"))
    for name in tensors:
        if name.removesuffix(".weight").endswith(OUTPUTS):
            tensors[name] = (DAMPED * tensors[name]).astype(np.float32)
    tensors = {name: data.astype(dtype) if data.dtype == np.float16 else data for name, data in tensors.items()}
    _write(model, arch, fields, tensors)

    def of(key: str) -> Any:
        return fields[f"{arch}.{key}"]

    random, wide, heads = np.random.default_rng(3), of("embedding_length"), of("attention.head_count")
    sizes = {True: of("attention.key_length_swa"), False: of("attention.key_length")}
    kv_heads = {True: of("attention.head_count_kv")[-2], False: of("attention.head_count_kv")[-1]}
    own = {key.removeprefix(f"{arch}."): value for key, value in fields.items() if key.startswith(f"{arch}.")}
    own |= {
        "embedding_length": WIDTH, "embedding_length_out": wide, "block_count": len(LAYERS),
        "nextn_predict_layers": len(LAYERS), "feed_forward_length": [48] * len(LAYERS),
        "attention.head_count_kv": [kv_heads[window] for window in LAYERS],
        "attention.sliding_window_pattern": LAYERS, "attention.shared_kv_layers": len(LAYERS),
    }  # fmt: skip
    own.pop("embedding_length_per_layer_input", None)
    own.pop("final_logit_softcapping", None)

    def matrix(rows: int, cols: int, std: float) -> np.ndarray:
        return (std * random.standard_normal((rows, cols))).astype(dtype)

    def norm(size: int, mean: float = 1.0) -> np.ndarray:
        return (mean + 0.1 * random.standard_normal(size)).astype(np.float32)

    projection = np.linalg.qr(random.standard_normal((wide, WIDTH)))[0].T  # (WIDTH, wide): distances stay similar
    embedded = tensors["token_embd.weight"].astype(np.float64) * tensors["output_norm.weight"]
    ours: dict[str, np.ndarray] = {
        "token_embd.weight": (embedded @ projection.T).astype(dtype),
        "output_norm.weight": norm(WIDTH),
        "rope_freqs.weight": tensors["rope_freqs.weight"],
        "nextn.pre_projection.weight": np.concatenate([projection, 0.1 * projection], axis=1).astype(dtype),
        "nextn.post_projection.weight": (projection.T * 1.5).astype(dtype),
    }
    for i, window in enumerate(LAYERS):
        prefix, size = f"blk.{i}.", sizes[window]
        ours |= {
            prefix + "attn_norm.weight": norm(WIDTH),
            prefix + "attn_q.weight": matrix(heads * size, WIDTH, 0.3),
            prefix + "attn_q_norm.weight": norm(size, 0.6),
            prefix + "attn_output.weight": matrix(WIDTH, heads * size, 0.1),
            prefix + "post_attention_norm.weight": norm(WIDTH, 0.2),
            prefix + "ffn_norm.weight": norm(WIDTH),
            prefix + "ffn_gate.weight": matrix(48, WIDTH, 0.3),
            prefix + "ffn_up.weight": matrix(48, WIDTH, 0.3),
            prefix + "ffn_down.weight": matrix(WIDTH, 48, 0.3),
            prefix + "post_ffw_norm.weight": norm(WIDTH, 0.2),
            prefix + "layer_output_scale.weight": np.array([0.9], np.float32),
        }
    others = {key: value for key, value in fields.items() if not key.startswith(f"{arch}.")}
    _write(assistant, "gemma4-assistant", others | {f"gemma4-assistant.{k}": v for k, v in own.items()}, ours)
    _write(reference_of(assistant), arch, others | {f"{arch}.{k}": v for k, v in own.items()}, ours)


def reference_of(assistant: Path) -> Path:
    """The assistant as a model of the architecture that the reference knows."""
    return assistant.with_suffix(".reference.gguf")


class _Keys(Reference):
    """Remembers the keys and values of the layers that have any."""

    shared: dict[int, KeysValues]

    def layer(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        self.shared = shared
        return super().layer(x, layer, shared)


class AssistantReference:
    """What an assistant computes, in float64 (llama.cpp's `gemma4-assistant`)."""

    def __init__(self, model: Path, assistant: Path) -> None:
        self.model, self.own = _Keys(model), ReferenceModel(reference_of(assistant))

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        model, own, at = self.model, self.own, len(ids) - 1
        state = model.hidden(ids[:-1])[-1:]
        logits = []
        for token in (ids[-1], *drafted):
            embedded = model.tensors["token_embd.weight"][[token]] * np.sqrt(model.width)
            x = own.linear(np.concatenate([embedded, state], axis=1), "nextn.pre_projection")
            for i, window in enumerate(LAYERS):
                x = self._layer(x, i, at, window)
            hidden = own.norm(x, "output_norm")
            logits.append(own.linear(hidden, "token_embd")[0])
            state = own.linear(hidden, "nextn.post_projection")
        return np.stack(logits)

    def _layer(self, x: np.ndarray, i: int, at: int, window: bool) -> np.ndarray:
        own, prefix = self.own, f"blk.{i}."
        read = len(self.model.shared) - (2 if window else 1)
        keys, values = self.model.shared[read]  # (positions, heads, size)
        size, first = own.head_dim(i), max(0, at - own.window + 1) if window else 0
        q = own.linear(own.norm(x, prefix + "attn_norm"), prefix + "attn_q").reshape(1, -1, size)
        q = rotate(own, own.norm(q, prefix + "attn_q_norm"), rotation(own, np.array([at]), i))
        keys, values = (np.repeat(a[first:at], q.shape[1] // a.shape[1], axis=1) for a in (keys, values))
        weights = softmax(np.einsum("qhd,khd->hqk", q, keys))
        mixed = np.einsum("hqk,khd->qhd", weights, values).reshape(1, -1)
        x = x + own.norm(own.linear(mixed, prefix + "attn_output"), prefix + "post_attention_norm")
        h = own.norm(x, prefix + "ffn_norm")
        hidden = gelu(own.linear(h, prefix + "ffn_gate")) * own.linear(h, prefix + "ffn_up")
        x = x + own.norm(own.linear(hidden, prefix + "ffn_down"), prefix + "post_ffw_norm")
        return np.asarray(x * own.tensors[prefix + "layer_output_scale.weight"])
