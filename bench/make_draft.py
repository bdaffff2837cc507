"""Write an EAGLE-3 head or a DFlash model of random weights: it measures what drafts cost that are all rejected.

python -m bench.make_draft llama-3.1-8b out.gguf --kind eagle3

It is for a model that bench.make_model makes of the same shape; embeddings and output are that model's.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType

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


def tensors(kind: str, shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of the tensors of a head or a DFlash model."""
    dim, q, kv = shape.n_embd, shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    wide = 2 * dim if kind == EAGLE else dim  # of what queries, keys and values read
    yield "fc.weight", (dim, READ[kind] * dim)
    yield "output_norm.weight", (dim,)
    if kind == DFLASH:
        yield "enc.output_norm.weight", (dim,)
    for i in range(LAYERS[kind]):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (dim,)
        yield b + "attn_q.weight", (q, wide)
        yield b + "attn_k.weight", (kv, wide)
        yield b + "attn_v.weight", (kv, wide)
        yield b + "attn_output.weight", (dim, q)
        for name in ("attn_norm_2",) if kind == EAGLE else ():
            yield f"{b}{name}.weight", (dim,)
        for name in ("attn_q_norm", "attn_k_norm") if kind == DFLASH else ():
            yield f"{b}{name}.weight", (shape.head_dim,)
        yield b + "ffn_norm.weight", (dim,)
        yield b + "ffn_gate.weight", (shape.n_ff, dim)
        yield b + "ffn_up.weight", (shape.n_ff, dim)
        yield b + "ffn_down.weight", (dim, shape.n_ff)


def write(kind: str, shape: Shape, path: str) -> None:
    """Write the file, with matrices in Q8_0."""
    writer, weights = GGUFWriter(path, kind), Weights(1.0)
    for key, value in metadata(kind, shape).items():
        add_value(writer, key, value)
    add_tokenizer(writer, shape.vocab)
    if kind == DFLASH:
        writer.add_mask_token_id(MASK)
    for name, size in tensors(kind, shape):
        raw = GGMLQuantizationType.Q8_0 if len(size) == 2 else None
        writer.add_tensor(name, weights.of(name, size, Q.Q8_0), raw_dtype=raw)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path")
    parser.add_argument("--kind", default=EAGLE, choices=KINDS)
    options = parser.parse_args()
    write(options.kind, SHAPES[options.shape], options.path)


if __name__ == "__main__":
    main()
