"""Write a GGUF with the shape of a real model and random weights, of the magnitude of trained ones.

python -m bench.make_model smollm2-135m out.gguf --type Q4_0

Every draft of a model of the first layers only (`--layers 4`) is accepted if the others add nothing (`--idle-after 4`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType, TokenType
from gguf.quants import dequantize

from bench.shapes import MIXES, SHAPES, Shape, metadata, tensors
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q
from py_engine.proof.random_data import SCALES
from tools.gguf_writer import finish

TYPES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", *MIXES)
STD = 0.02  # of all weights
SAMPLE = 1 << 10  # blocks that a type's magnitude is measured with
POOL = 1 << 16  # random blocks, which all matrices of a type repeat


class Weights:
    """Makes random tensors: uint8 (..., rows, bytes of a row) for quantised types, else floats of their shape."""

    def __init__(self, peak: float) -> None:
        """`peak`: factor of the logits; 6 is like a trained model's."""
        self._random, self._peak = np.random.default_rng(1), peak
        self._pools: dict[Q, np.ndarray] = {}

    def of(self, name: str, shape: tuple[int, ...], type: Q) -> np.ndarray:
        """The contents of one tensor."""
        if len(shape) == 1:
            if name.endswith(".bias"):
                return np.zeros(shape, np.float32)
            return np.full(shape, self._peak if name.startswith("output_norm") else 1.0, np.float32)
        if type in (Q.F32, Q.F16):
            values = self._random.standard_normal(shape, np.float32) * np.float32(STD)
            return values.astype(np.float32 if type == Q.F32 else np.float16)
        block, size = BLOCK_SIZES[type]
        if type not in self._pools:
            self._pools[type] = self._blocks(type, block, size)
        pool, count = self._pools[type], prod(shape) // block
        blocks = np.tile(pool, (-(-count // len(pool)), 1))[:count]
        return blocks.reshape(*shape[:-1], -1)

    def _blocks(self, type: Q, block: int, size: int) -> np.ndarray:
        """POOL random blocks in `size` bytes, of the magnitude of trained weights: (POOL, size) uint8.

        Their mean is 0: signs of scales are random, and minimums those that make it so. Else all tokens would share
        what it adds in each layer, and scores of attention would reach hundreds.
        """
        raw = self._random.integers(0, 256, (POOL, size), np.uint8)
        if type == Q.MXFP4:  # its scale is a power of two in a byte
            raw[:, 0] = 127 - 7
        if places := SCALES.get(type, ()):
            signs = self._random.choice(np.array([-1.0, 1.0], np.float32), POOL)
            factors = np.ones(len(places), np.float32)
            if len(places) == 2:  # a scale and a minimum
                scaled, least = (_weights(raw, places, each, type).mean() for each in np.eye(2, dtype=np.float32))
                factors[1] = -scaled / least
            factors *= STD / _weights(raw, places, factors, type).std()
            _set_scales(raw, places, signs[:, None] * factors)
        return raw


def _set_scales(blocks: np.ndarray, places: Sequence[int], values: np.ndarray) -> None:
    """Set the scales of blocks (n, bytes), which begin at `places` of each, to `values` (n or 1, places)."""
    for at, column in zip(places, values.astype(np.float16).T, strict=True):
        blocks[:, at : at + 2] = np.ascontiguousarray(column)[:, None].view(np.uint8)


def _weights(blocks: np.ndarray, places: Sequence[int], scales: np.ndarray, type: Q) -> np.ndarray:
    """The weights of a sample of the blocks, with these scales (places) in each."""
    _set_scales(blocks, places, scales[None])
    return np.asarray(dequantize(blocks[:SAMPLE], GGMLQuantizationType(type)))


def write(
    shape: Shape, type: str, path: str, name: str, peak: float = 1.0, idle_after: int | None = None,
    tokens: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write the file. `type`: of all matrices, or one of MIXES; `peak`: factor of the logits; `idle_after`: layers
    after the first so many add nothing; `tokens`: texts that the vocabulary has, too.
    """
    writer, weights = GGUFWriter(path, shape.architecture), Weights(peak)
    writer.add_name(name)
    for key, value in metadata(shape).items():
        (writer.add_float32 if isinstance(value, float) else writer.add_uint32)(key, value)
    add_tokenizer(writer, shape.vocab, tokens)
    for tensor in tensors(shape, type):
        data = weights.of(tensor.name, tensor.shape, tensor.type)
        if idle_after is not None and is_output(tensor.name, idle_after):
            data = np.zeros_like(data)
        raw = None if tensor.type in (Q.F32, Q.F16) else GGMLQuantizationType(tensor.type)
        writer.add_tensor(tensor.name, data, raw_dtype=raw)
    finish(writer)


def is_output(name: str, first: int) -> bool:
    """Whether a tensor makes what a layer adds to the residual stream, from layer `first` on."""
    found = re.fullmatch(r"blk\.(\d+)\.(attn_output|ffn_down|ffn_down_exps)\.weight", name)
    return found is not None and int(found[1]) >= first


def add_tokenizer(writer: GGUFWriter, vocab: int, also: Sequence[str] = ()) -> None:
    """Byte-level BPE without merges, padded to the vocabulary's size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    tokens = [chr(b) if b in printable else chr(next(others)) for b in range(256)] + list(also)
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
    parser.add_argument("--type", default="Q4_0", choices=TYPES)
    parser.add_argument("--context", type=int, default=16384, help="the longest context, in tokens")
    parser.add_argument("--peak", type=float, default=1.0, help="factor of the logits; 6 is like a trained model's")
    parser.add_argument("--layers", type=int, help="use only the first so many")
    parser.add_argument("--idle-after", type=int, metavar="N", help="all layers but the first N add nothing")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    write(
        replace(shape, context=options.context, n_layer=options.layers or shape.n_layer),
        options.type,
        options.path,
        f"{options.shape} {options.type}, random weights",
        options.peak,
        options.idle_after,
    )


if __name__ == "__main__":
    main()
