"""Write a GGUF with the shape of a real model and random weights. Speed does not depend on their values.

python -m bench.make_model smollm2-135m out.gguf --type Q4_0
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES, TokenType
from gguf.constants import GGMLQuantizationType as Q


@dataclass(frozen=True)
class Shape:
    """Hyperparameters of a llama, or of a qwen2, which has biases on queries, keys and values."""

    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_dim: int
    vocab: int
    tied: bool
    context: int = 16384
    rope_base: float = 500000.0
    architecture: str = "llama"


SHAPES = {
    "smollm2-135m": Shape(30, 576, 1536, 9, 3, 64, 49152, True),
    "qwen2-0.5b": Shape(24, 896, 4864, 14, 2, 64, 151936, True, 32768, 1000000.0, "qwen2"),
    "llama-3.2-1b": Shape(16, 2048, 8192, 32, 8, 64, 128256, True),
    "llama-3.1-8b": Shape(32, 4096, 14336, 32, 8, 128, 128256, False),
}


def write(shape: Shape, type: Q, path: str, name: str) -> None:
    """Write the file. Every quantisation block has random values and a small scale."""
    writer = GGUFWriter(path, shape.architecture)
    writer.add_name(name)
    writer.add_block_count(shape.n_layer)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(1e-5)
    _tokenizer(writer, shape.vocab)
    random = np.random.default_rng(1)
    q, kv = shape.n_head * shape.head_dim, shape.n_head_kv * shape.head_dim
    matrices = [("token_embd", shape.vocab, shape.n_embd)]
    if not shape.tied:
        matrices.append(("output", shape.vocab, shape.n_embd))
    vectors = ["output_norm"]
    for i in range(shape.n_layer):
        b = f"blk.{i}."
        vectors += [b + "attn_norm", b + "ffn_norm"]
        matrices += [
            (b + "attn_q", q, shape.n_embd),
            (b + "attn_k", kv, shape.n_embd),
            (b + "attn_v", kv, shape.n_embd),
            (b + "attn_output", shape.n_embd, q),
            (b + "ffn_gate", shape.n_ff, shape.n_embd),
            (b + "ffn_up", shape.n_ff, shape.n_embd),
            (b + "ffn_down", shape.n_embd, shape.n_ff),
        ]
        if shape.architecture == "qwen2":
            for part, rows in (("q", q), ("k", kv), ("v", kv)):
                writer.add_tensor(f"{b}attn_{part}.bias", np.zeros(rows, np.float32))
    for vector in vectors:
        writer.add_tensor(vector + ".weight", np.ones(shape.n_embd, np.float32))
    for matrix, rows, cols in matrices:
        writer.add_tensor(matrix + ".weight", _matrix(random, type, rows, cols), raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrix(random: np.random.Generator, type: Q, rows: int, cols: int) -> np.ndarray:
    """Raw bytes (rows, bytes of a row): small numbers for plain types, small scales for blocks."""
    if type in (Q.F32, Q.F16):
        return (random.standard_normal((rows, cols), np.float32) * 0.02).astype(
            np.float32 if type == Q.F32 else np.float16
        )
    block, size = GGML_QUANT_SIZES[type]
    raw = random.integers(0, 256, (rows * cols // block, size), np.uint8)
    at = {Q.Q4_0: [0], Q.Q8_0: [0], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [size - 2]}[type]
    for offset in at:
        raw[:, offset : offset + 2] = np.array([0.002 if block == 32 else 0.00004], np.float16).view(np.uint8)
    return raw.reshape(rows, -1)


def _tokenizer(writer: GGUFWriter, vocab: int) -> None:
    """Byte-level BPE without merges, padded to the vocabulary's size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    tokens = [chr(b) if b in printable else chr(next(others)) for b in range(256)]
    tokens += [f"<{i}>" for i in range(len(tokens), vocab - 1)] + ["<|end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * (vocab - 1) + [TokenType.CONTROL])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(vocab - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path")
    parser.add_argument("--type", default="Q4_0", choices=["F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"])
    parser.add_argument("--context", type=int, default=16384, help="the longest context, in tokens")
    options = parser.parse_args()
    write(
        replace(SHAPES[options.shape], context=options.context),
        Q[options.type],
        options.path,
        f"{options.shape} {options.type}, random weights",
    )


if __name__ == "__main__":
    main()
