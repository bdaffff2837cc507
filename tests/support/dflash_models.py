"""Models of random weights, and DFlash models that draft for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.reference_model import gelu, silu, softmax
from tests.support.layer_inputs import LayerInputs, write_damped, write_file

QUIET_STATES = 0.1  # of fused states: most of what a masked token attends to is the newest token
MASK = 7  # the token whose embedding masked tokens have
EPS, BASE = 1e-6, 5000.0
WIDE = 96  # of its feed-forward networks


@dataclass(frozen=True)
class Kind:
    """A model, and what its DFlash model is like."""

    base: str
    heads: tuple[int, int, int] = (8, 4, 16)  # query heads, key/value heads, and the size of a head
    read: tuple[int, ...] = (1, 3, 2)  # the layers whose inputs it reads
    layers: int = 2
    block: int = 8
    owns: bool = False  # it has embeddings and an output matrix; else it reads the model's
    known: int = 0  # tokens that it knows; 0: all of the model's
    window: int = 0  # of its first layer
    causal: bool = False  # a block's tokens see no later ones
    sinks: bool = False
    shares_values: bool = False  # its keys, normalised, are its values
    post_norms: bool = False  # norms after attention and feed-forward networks, and a factor of each layer
    activation: str = "silu"
    embedding_scale: float = 0.0
    value_scale: float = 0.0
    divisors: bool = False  # of its frequencies
    sections: bool = False  # positions have axes. It uses the first one, and no divisors


KINDS = {
    "plain": Kind("qwen/qwen3"),
    "owned": Kind("llama/llama", read=(1, 2), owns=True, known=200, divisors=True, causal=True),
    "windowed": Kind("gpt_oss/gpt-oss", window=12, sinks=True, layers=3),
    "recurrent": Kind("qwen35/qwen35", owns=True, sections=True),
    "gemma": Kind(
        "gemma4/gemma4-dense", shares_values=True, post_norms=True, activation="gelu_pytorch_tanh",
        embedding_scale=8.0, value_scale=0.7, window=6, layers=1,
    ),
    "scaled": Kind("experts/minimax-m2", value_scale=0.7, block=4),
}  # fmt: skip
OTHERS = {  # whose DFlash models are like these
    base.split("/")[1]: Kind(base)
    for base in (
        "gemma4/gemma4-moe", "qwen/qwen3moe", "qwen35/qwen35moe", "qwen35/qwen3next", "dense/muse-glimmer",
        "experts/mimo2", "experts/k2-horizon", "experts/minimax-01",
    )
}  # fmt: skip


def random_kind(seed: int) -> Kind:
    """A DFlash model of any shape, for a model of any architecture. With SiLU: llama.cpp rounds GELU to f16."""
    random = np.random.default_rng(seed)

    def chance() -> bool:
        return bool(random.random() < 0.4)

    bases = sorted(kind.base for kind in [*KINDS.values(), *OTHERS.values()])
    n_kv, group = int(random.integers(1, 5)), int(random.integers(1, 5))
    return Kind(
        bases[seed % len(bases)],
        (n_kv * group, n_kv, int(random.choice([8, 16, 24, 32, 64]))),
        tuple(int(layer) for layer in random.permutation([1, 2, 3])[: random.integers(1, 4)]),
        layers=int(random.integers(1, 5)),
        block=int(random.integers(2, 17)),
        owns=chance(),
        window=int(random.integers(9, 40)) if chance() else 0,
        causal=chance(),
        sinks=chance(),
        shares_values=chance(),
        post_norms=chance(),
        embedding_scale=float(random.uniform(0.5, 9)) if chance() else 0.0,
        value_scale=float(random.uniform(0.3, 2)) if chance() else 0.0,
        divisors=chance(),
        sections=chance(),
    )


def write(kind: Kind, model: Path, draft: Path, dtype: type[np.floating] = np.float16) -> None:
    """Write a golden of a few layers which add little, and a DFlash model for it, with matrices of this type."""
    fields, tensors = write_damped(kind.base, model, dtype, MASK)
    arch = str(fields["general.architecture"])
    others = {key: value for key, value in fields.items() if not key.startswith((f"{arch}.", "general."))}
    n_head, n_kv, dim = kind.heads
    own: dict[str, Any] = {
        "vocab_size": len(tensors["token_embd.weight"]), "context_length": 1024,
        "embedding_length": int(fields[f"{arch}.embedding_length"]), "block_count": kind.layers,
        "feed_forward_length": WIDE, "attention.head_count": n_head, "attention.head_count_kv": n_kv,
        "attention.key_length": dim, "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": EPS, "rope.dimension_count": dim, "rope.freq_base": BASE,
        "target_layers": list(kind.read), "block_size": kind.block,
    }  # fmt: skip
    if kind.window:
        own["attention.sliding_window"] = kind.window
        own["attention.sliding_window_pattern"] = [i == 0 for i in range(kind.layers)]
    own |= {"rope.dimension_sections": [dim // 2, 0, 0, 0]} if kind.sections else {}
    own |= {"attention.causal": True} if kind.causal else {}
    own |= {"hidden_activation": kind.activation} if kind.activation != "silu" else {}
    own |= {"embedding_scale": kind.embedding_scale} if kind.embedding_scale else {}
    own |= {"attention.value_scale": kind.value_scale} if kind.value_scale else {}
    metadata = others | {"tokenizer.ggml.mask_token_id": MASK} | {f"dflash.{key}": value for key, value in own.items()}
    write_file(draft, "dflash", metadata, _draft(kind, tensors, dtype))


def _draft(kind: Kind, model: dict[str, np.ndarray], dtype: type[np.floating]) -> dict[str, np.ndarray]:
    """A DFlash model's tensors: each masked token mostly passes on what the token before it has."""
    (n_head, n_kv, dim), random = kind.heads, np.random.default_rng(5)
    size = n_head * dim
    table = model["token_embd.weight"].astype(np.float64)
    vocab, width = table.shape

    def matrix(rows: int, cols: int, std: float) -> np.ndarray:
        return std * random.standard_normal((rows, cols))

    def norm(length: int) -> np.ndarray:
        return (1 + 0.1 * random.standard_normal(length)).astype(np.float32)

    kv = np.eye(n_kv * dim, width)  # a head's values are columns of an embedding
    passed = np.repeat(kv.reshape(n_kv, dim, width), n_head // n_kv, axis=0).reshape(size, width)
    vectors: dict[str, np.ndarray] = {}
    matrices: dict[str, np.ndarray] = {"fc": matrix(width, len(kind.read) * width, 0.1)}
    for i in range(kind.layers):
        b = f"blk.{i}."
        vectors |= {b + name: norm(width) for name in ("attn_norm", "ffn_norm")}
        vectors |= {b + name: norm(dim) for name in ("attn_q_norm", "attn_k_norm")}
        mask = table[MASK] * vectors[b + "attn_norm"]
        values = kv if kind.shares_values else kv - np.outer(kv @ mask, mask) / (mask @ mask)  # masked: zeros
        matrices |= {
            b + "attn_q": matrix(size, width, 0.2),
            b + "attn_k": values if kind.shares_values else matrix(n_kv * dim, width, 0.2),
            b + "attn_output": passed.T * (8 * n_kv / n_head) + matrix(width, size, 0.02),
            b + "ffn_gate": matrix(WIDE, width, 0.1), b + "ffn_up": matrix(WIDE, width, 0.1),
            b + "ffn_down": matrix(width, WIDE, 0.05),
        }  # fmt: skip
        if not kind.shares_values:
            matrices[b + "attn_v"] = values
        if kind.post_norms:
            vectors |= {b + "post_attention_norm": norm(width), b + "post_ffw_norm": QUIET_STATES * norm(width)}
            vectors[b + "layer_output_scale"] = np.array([0.8], np.float32)
        if kind.sinks:
            vectors[b + "attn_sinks"] = random.standard_normal(n_head).astype(np.float32)
    vectors |= {"output_norm": norm(width), "enc.output_norm": QUIET_STATES * norm(width)}
    if kind.divisors:
        vectors["rope_freqs"] = np.linspace(1, 4, dim // 2).astype(np.float32)
    tokens = np.sort(random.permutation(vocab)[: kind.known]) if kind.known else np.arange(vocab)
    if kind.owns:
        output = model.get("output.weight", model["token_embd.weight"]).astype(np.float64)
        matrices |= {"token_embd": table, "output": output[tokens]}
    named = {f"{name}.weight": data.astype(dtype) for name, data in matrices.items()}
    named |= {f"{name}.weight": data for name, data in vectors.items()}
    return named | ({"d2t": tokens.astype(np.int64)} if kind.known else {})


class DFlashReference:
    """What a DFlash model computes, in float64 (llama.cpp's `dflash`)."""

    def __init__(self, kind: Kind, model: Path, draft: Path) -> None:
        self.kind, self.model, reader = kind, LayerInputs(model), gguf.GGUFReader(draft)
        self.own = {tensor.name.removesuffix(".weight"): np.array(tensor.data, np.float64) for tensor in reader.tensors}

    def drafts(self, ids: Sequence[int], count: int) -> np.ndarray:
        """The logits (count, vocab) of the tokens after `ids`. The model has computed all of these but the last."""
        kind, own, n = self.kind, self.own, len(ids) - 1
        self.model.hidden(ids[:-1])
        states = np.concatenate([self.model.inputs[layer] for layer in kind.read], axis=1)
        fused = self._norm(states @ own["fc"].T, "enc.output_norm")
        x = self._matrix("token_embd")[[ids[-1], *[MASK] * count]] * (kind.embedding_scale or 1.0)
        for i in range(kind.layers):
            x = self._layer(x, fused, i, np.arange(n + 1 + count))
        found = self._norm(x[1:], "output_norm") @ self._matrix("output").T
        whole = np.full((count, len(self._matrix("token_embd"))), -np.inf)
        whole[:, own["d2t"].astype(int) if "d2t" in own else slice(None)] = found
        return whole

    def _matrix(self, name: str) -> np.ndarray:
        model = self.model.tensors
        if name in self.own:
            return self.own[name]
        return np.asarray(model[f"{name}.weight" if f"{name}.weight" in model else "token_embd.weight"])

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return _normed(x) * self.own[name]

    def _keys(self, x: np.ndarray, b: str, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values (n, heads, head_dim) of rows."""
        k = (x @ self.own[b + "attn_k"].T).reshape(len(x), *self.kind.heads[1:])
        v = _normed(k) if self.kind.shares_values else (x @ self.own[b + "attn_v"].T).reshape(k.shape)
        return self._rotate(self._norm(k, b + "attn_k_norm"), positions), v

    def _layer(self, x: np.ndarray, fused: np.ndarray, i: int, positions: np.ndarray) -> np.ndarray:
        """The residual stream of a block after layer i. `positions`: of the fused rows, then of the block's."""
        kind, own, b, n = self.kind, self.own, f"blk.{i}.", len(fused)
        n_head, n_kv, dim = kind.heads
        y = self._norm(x, b + "attn_norm")
        q = self._norm((y @ own[b + "attn_q"].T).reshape(len(x), n_head, dim), b + "attn_q_norm")
        q = self._rotate(q, positions[n:])
        parts = self._keys(fused, b, positions[:n]), self._keys(y, b, positions[n:])
        k, v = (np.repeat(np.concatenate(both), n_head // n_kv, axis=1) for both in zip(*parts, strict=True))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(dim)
        distance = positions[n:, None] - positions[None, :]
        hidden = (distance < 0) & kind.causal
        if kind.window and i == 0:
            hidden |= distance >= kind.window
        scores = np.where(hidden, -np.inf, scores)
        if kind.sinks:
            sinks = np.broadcast_to(own[b + "attn_sinks"][:, None, None], (*scores.shape[:2], 1))
            scores = np.concatenate([scores, sinks], axis=2)
        weights = softmax(scores)[:, :, : len(positions)]
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(len(x), -1) * (kind.value_scale or 1.0)
        added = mixed @ own[b + "attn_output"].T
        x = x + (self._norm(added, b + "post_attention_norm") if kind.post_norms else added)
        h = self._norm(x, b + "ffn_norm")
        activation = silu if kind.activation == "silu" else gelu
        added = (activation(h @ own[b + "ffn_gate"].T) * (h @ own[b + "ffn_up"].T)) @ own[b + "ffn_down"].T
        if not kind.post_norms:
            return np.asarray(x + added)
        return np.asarray((x + self._norm(added, b + "post_ffw_norm")) * own[b + "layer_output_scale"])

    def _rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Rotate the halves of rows x (n, heads, head_dim) by their positions."""
        dim = x.shape[-1]
        angles = positions[:, None] * BASE ** (-np.arange(0, dim, 2) / dim)
        angles = (angles if self.kind.sections else angles / self.own.get("rope_freqs", 1.0))[:, None]
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate(
            [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], axis=-1
        )


def _normed(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS))
