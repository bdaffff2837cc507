"""Write an EAGLE-3 head or a DFlash model for a model of `bench.make_model`: what drafts of random weights cost.

python -m bench.make_draft llama-3.1-8b out.gguf --kind eagle3 [--agrees]

A head that agrees predicts the tokens of a model whose layers add nothing (`bench.make_model ... --idle-after 0`): its
attention passes a token's embedding on, and that model reads nothing else. Embeddings and output are the model's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from bench.make_model import Weights, add_tokenizer
from bench.shapes import SHAPES, Shape
from py_engine.files.draft_header import DFLASH, EAGLE
from py_engine.files.tensor_types import TensorType as Q
from tools.gguf_writer import add_value, finish

KINDS = (EAGLE, DFLASH)
READ = {EAGLE: 3, DFLASH: 5}  # layers of the model, as of published ones
LAYERS = {EAGLE: 1, DFLASH: 5}
BLOCK_SIZE = 16  # of a DFlash model
MASK = 7  # the token that a DFlash model's unknown ones are


@dataclass(frozen=True)
class Tensor:
    """One tensor. `ones`: it is identity matrices side by side, each times one of these; None: it is random."""

    name: str
    shape: tuple[int, ...]
    ones: tuple[float, ...] | None = None


def metadata(kind: str, shape: Shape) -> dict[str, Any]:
    """The file's GGUF keys, without the tokenizer's."""
    n = READ[kind]
    found: dict[str, Any] = {
        "vocab_size": shape.vocab, "context_length": shape.context, "embedding_length": shape.n_embd,
        "block_count": LAYERS[kind], "feed_forward_length": shape.n_ff, "attention.head_count": shape.n_head,
        "attention.head_count_kv": shape.n_head_kv, "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim, "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": shape.head_dim, "rope.freq_base": shape.rope_base,
        "target_layers": [1 + i * (shape.n_layer - 2) // (n - 1) for i in range(n)],
    }  # fmt: skip
    if kind == EAGLE:
        found |= {"target_hidden_size": shape.n_embd, "norm_before_residual": False, "norm_before_fc": False}
    else:
        found["block_size"] = BLOCK_SIZE
    return {f"{kind}.{name}": value for name, value in found.items()}


def tensors(kind: str, shape: Shape, agrees: bool) -> Iterator[Tensor]:
    """The tensors of a head or a DFlash model."""
    dim, q, kv = shape.n_embd, shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    wide = 2 * dim if kind == EAGLE else dim  # of what queries, keys and values read
    zero, same, embedded, fresh = ((), (1.0,), (1.0, 0.0), (1.0, -1.0)) if agrees else (None,) * 4
    yield Tensor("fc.weight", (dim, READ[kind] * dim), zero)
    yield Tensor("output_norm.weight", (dim,))
    if kind == DFLASH:
        yield Tensor("enc.output_norm.weight", (dim,))
    for i in range(LAYERS[kind]):
        b = f"blk.{i}."
        yield Tensor(b + "attn_norm.weight", (dim,))
        yield Tensor(b + "attn_q.weight", (q, wide), embedded)
        yield Tensor(b + "attn_k.weight", (kv, wide), embedded)
        # less the state before, which the residual stream begins with
        yield Tensor(b + "attn_v.weight", (kv, wide), fresh)
        yield Tensor(b + "attn_output.weight", (dim, q), same)
        for name in ("attn_norm_2",) if kind == EAGLE else ():
            yield Tensor(f"{b}{name}.weight", (dim,))
        for name in ("attn_q_norm", "attn_k_norm") if kind == DFLASH else ():
            yield Tensor(f"{b}{name}.weight", (shape.head_dim,))
        yield Tensor(b + "ffn_norm.weight", (dim,))
        yield Tensor(b + "ffn_gate.weight", (shape.n_ff, dim))
        yield Tensor(b + "ffn_up.weight", (shape.n_ff, dim))
        yield Tensor(b + "ffn_down.weight", (dim, shape.n_ff), zero)


def contents(tensor: Tensor, weights: Weights) -> np.ndarray:
    """Matrices in Q8_0: uint8 (rows, bytes of a row); vectors as they are."""
    if tensor.ones is not None:
        made = np.zeros(tensor.shape, np.float32)
        for i, factor in enumerate(tensor.ones):
            np.fill_diagonal(made[:, i * tensor.shape[1] // len(tensor.ones) :], factor)
        return np.asarray(quantize(made, GGMLQuantizationType.Q8_0))
    return weights.of(tensor.name, tensor.shape, Q.Q8_0)


def write(kind: str, shape: Shape, path: str, agrees: bool, peak: float) -> None:
    """Write the file. `agrees`: it predicts what a model predicts whose layers add nothing. `peak`: as the model's."""
    if agrees and kind != EAGLE:
        raise SystemExit("Only an EAGLE-3 head can agree: a DFlash model drafts several tokens from one.")
    if agrees:  # a head for keys and values of each query's, so that the whole embedding passes
        shape = replace(shape, n_head_kv=shape.n_head)
    writer, weights = GGUFWriter(path, kind), Weights(peak)
    for key, value in metadata(kind, shape).items():
        add_value(writer, key, value)
    add_tokenizer(writer, shape.vocab)
    if kind == DFLASH:
        writer.add_mask_token_id(MASK)
    for tensor in tensors(kind, shape, agrees):
        raw = GGMLQuantizationType.Q8_0 if len(tensor.shape) == 2 else None
        writer.add_tensor(tensor.name, contents(tensor, weights), raw_dtype=raw)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path")
    parser.add_argument("--kind", default=EAGLE, choices=KINDS)
    parser.add_argument("--agrees", action="store_true", help="for a model whose layers add nothing")
    parser.add_argument("--peak", type=float, default=1.0, help="factor of the logits, as the model's")
    options = parser.parse_args()
    write(options.kind, SHAPES[options.shape], options.path, options.agrees, options.peak)


if __name__ == "__main__":
    main()
