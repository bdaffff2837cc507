"""Models of random weights, and EAGLE-3 heads that draft for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.reference_model import silu, softmax
from tests.support.layer_inputs import LayerInputs, write_damped, write_file

READ = [1, 2, 3]  # the layers whose inputs a head reads
HEADS, KV_HEADS, HEAD_DIM = 8, 4, 16  # of a head
SHARP = 2.0  # queries and keys are so long that a token attends mostly to itself
EPS, BASE = 1e-5, 5000.0


@dataclass(frozen=True)
class Kind:
    """A model, and what its head is like."""

    base: str
    width: int = 64  # of the head; most models have 64
    known: int = 0  # tokens that it knows; 0: all of the model's
    shares: bool = False  # it has neither embeddings nor an output matrix: it reads the model's
    normed_residual: bool = False
    normed_features: bool = False
    divisors: bool = False  # of its frequencies


KINDS = {
    "reduced": Kind("llama/llama", width=32, known=200, divisors=True),
    "shared": Kind("qwen/qwen3", shares=True, normed_residual=True),
    "normed": Kind("gpt_oss/gpt-oss", known=180, normed_features=True, normed_residual=True),
    "recurrent": Kind("qwen35/qwen35", width=32),
    "odd": Kind("experts/minimax-m2", width=40, known=200),  # widths that are no multiples of 32
}
OTHERS = {  # whose heads are like these
    base.split("/")[1]: Kind(base, known=200)
    for base in (
        "gemma4/gemma4-dense", "gemma4/gemma4-moe", "qwen/qwen3moe", "qwen35/qwen35moe",
        "qwen35/qwen3next",
    )
}  # fmt: skip


def write(kind: Kind, model: Path, head: Path, dtype: type[np.floating] = np.float16) -> None:
    """Write a golden of a few layers which add little, and an EAGLE-3 head for it, with matrices of this type."""
    fields, tensors = write_damped(kind.base, model, dtype)
    arch = str(fields["general.architecture"])
    others = {key: value for key, value in fields.items() if not key.startswith((f"{arch}.", "general."))}
    wide = int(fields[f"{arch}.embedding_length"])
    own: dict[str, Any] = {
        "vocab_size": len(tensors["token_embd.weight"]), "context_length": 1024, "embedding_length": kind.width,
        "block_count": 1, "feed_forward_length": 96, "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS, "attention.key_length": HEAD_DIM, "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": EPS, "rope.dimension_count": HEAD_DIM, "rope.freq_base": BASE,
        "target_layers": READ, "target_hidden_size": wide,
        "norm_before_residual": kind.normed_residual, "norm_before_fc": kind.normed_features,
    }  # fmt: skip
    write_file(
        head, "eagle3", others | {f"eagle3.{key}": value for key, value in own.items()}, _head(kind, tensors, dtype)
    )


def _head(kind: Kind, model: dict[str, np.ndarray], dtype: type[np.floating]) -> dict[str, np.ndarray]:
    """A head's tensors: its attention mostly passes a token's embedding on."""
    random, width, size = np.random.default_rng(5), kind.width, HEADS * HEAD_DIM
    table = model["token_embd.weight"].astype(np.float64)
    vocab, wide = table.shape

    def matrix(rows: int, cols: int, std: float) -> np.ndarray:
        return std * random.standard_normal((rows, cols))

    def norm(length: int) -> np.ndarray:
        return (1 + 0.1 * random.standard_normal(length)).astype(np.float32)

    projection = np.eye(wide)[:width] if width == wide else np.linalg.qr(matrix(wide, width, 1.0))[0].T
    kv = np.eye(KV_HEADS * HEAD_DIM)[:, :width]  # (rows, width): a head's keys and values are columns of an embedding
    queries = np.repeat(kv.reshape(KV_HEADS, HEAD_DIM, width), HEADS // KV_HEADS, axis=0).reshape(size, width)
    output = model.get("output.weight", model["token_embd.weight"]).astype(np.float64) * model["output_norm.weight"]
    matrices = {
        "fc": matrix(width, len(READ) * wide, 0.02),
        "blk.0.attn_q": np.concatenate([SHARP * queries, matrix(size, width, 0.05)], axis=1),
        "blk.0.attn_k": np.concatenate([SHARP * kv, matrix(len(kv), width, 0.05)], axis=1),
        "blk.0.attn_v": np.concatenate([kv, matrix(len(kv), width, 0.05)], axis=1),
        "blk.0.attn_output": queries.T * (3 * KV_HEADS / HEADS) + matrix(width, size, 0.02),
        "blk.0.ffn_gate": matrix(96, width, 0.2),
        "blk.0.ffn_up": matrix(96, width, 0.2),
        "blk.0.ffn_down": matrix(width, 96, 0.1),
    }
    vectors = {f"blk.0.{name}": norm(width) for name in ("attn_norm", "attn_norm_2", "ffn_norm")}
    vectors["output_norm"] = norm(width)
    if kind.normed_features:
        vectors["enc.output_norm"] = norm(len(READ) * wide)
    if kind.divisors:
        vectors["rope_freqs"] = np.linspace(1, 4, HEAD_DIM // 2).astype(np.float32)
    tokens = np.sort(random.permutation(vocab)[: kind.known]) if kind.known else np.arange(vocab)
    if not kind.shares:
        matrices |= {"token_embd": table @ projection.T, "output": (output @ projection.T)[tokens]}
    named = {f"{name}.weight": data.astype(dtype) for name, data in matrices.items()}
    named |= {f"{name}.weight": data for name, data in vectors.items()}
    return named | ({"d2t": tokens.astype(np.int64)} if kind.known else {})


class EagleReference:
    """What an EAGLE-3 head computes, in float64 (llama.cpp's `eagle3`)."""

    def __init__(self, model: Path, head: Path) -> None:
        self.model, reader = LayerInputs(model), gguf.GGUFReader(head)
        self.own = {tensor.name.removesuffix(".weight"): np.array(tensor.data) for tensor in reader.tensors}
        self.normed_residual, self.normed_features = (
            bool(reader.fields[f"eagle3.norm_before_{what}"].contents()) for what in ("residual", "fc")
        )

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        model, own = self.model, self.own
        model.hidden(ids)
        states = np.concatenate([model.inputs[layer] for layer in READ], axis=1)[:-1]
        if self.normed_features:
            states = self._norm(states, "enc.output_norm")
        states, logits = states @ own["fc"].T.astype(np.float64), []
        for token in [None, *drafted]:
            ids = ids if token is None else [*ids, token]
            x = self._layer(ids[1:], states)
            states = np.concatenate([states, x[-1:]])  # the next token goes on from there
            found = self._norm(x[-1:], "output_norm") @ self._matrix("output").T.astype(np.float64)
            whole = np.full(len(model.tensors["token_embd.weight"]), -np.inf)
            whole[own["d2t"] if "d2t" in own else slice(None)] = found[0]
            logits.append(whole)
        return np.stack(logits)

    def _matrix(self, name: str) -> np.ndarray:
        model = self.model.tensors
        if name in self.own:
            return self.own[name].astype(np.float64)
        return model[f"{name}.weight" if f"{name}.weight" in model else "token_embd.weight"]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * self.own[name])

    def _layer(self, ids: Sequence[int], states: np.ndarray) -> np.ndarray:
        """The residual stream after the layer (n, width). `states`: of the token before each of `ids`."""
        own, n = self.own, len(ids)
        hidden = self._norm(states, "blk.0.attn_norm_2")
        embedded = self._norm(self._matrix("token_embd")[list(ids)], "blk.0.attn_norm")
        y = np.concatenate([embedded, hidden], axis=1)
        q, k, v = (y @ own[f"blk.0.attn_{name}"].T.astype(np.float64) for name in "qkv")
        q, k, v = (part.reshape(n, -1, HEAD_DIM) for part in (q, k, v))
        q, k = self._rotate(q), self._rotate(k)
        k, v = (np.repeat(part, HEADS // KV_HEADS, axis=1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD_DIM)
        weights = softmax(np.where(np.arange(n)[None, :] > np.arange(n)[:, None], -np.inf, scores))
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(n, -1)
        x = (hidden if self.normed_residual else states) + mixed @ own["blk.0.attn_output"].T.astype(np.float64)
        h = self._norm(x, "blk.0.ffn_norm")
        gate, up = (h @ own[f"blk.0.ffn_{name}"].T.astype(np.float64) for name in ("gate", "up"))
        return np.asarray(x + (silu(gate) * up) @ own["blk.0.ffn_down"].T.astype(np.float64))

    def _rotate(self, x: np.ndarray) -> np.ndarray:
        """Rotate pairs of neighbouring dimensions by the positions of the rows of x (n, heads, HEAD_DIM)."""
        angles = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        angles = (angles / self.own.get("rope_freqs", 1.0))[:, None]
        a, b, out = x[..., ::2], x[..., 1::2], np.empty_like(x)
        out[..., ::2], out[..., 1::2] = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
        return out
