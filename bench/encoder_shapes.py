"""Hyperparameters of projectors that people run, and files of their shape with random weights.

python -m bench.encoder_shapes smolvlm-500m out.gguf
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from gguf import GGUFWriter

from bench.make_model import Weights
from bench.shapes import ALIGNMENT, Tensor
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import BLOCK_SIZES
from py_engine.files.tensor_types import TensorType as Q
from tools.gguf_writer import add_value, finish

Size = tuple[int, int]  # of an input: (height, width) in pixels, or (mel bins, frames)


@dataclass(frozen=True)
class EncoderShape:
    """An encoder's hyperparameters. `text`: the width of the text model; `input`: the size that is measured."""

    projector: str
    n_layer: int
    n_embd: int
    n_head: int
    n_ff: int
    text: int
    input: Size
    count: int = 1  # inputs of a request, such as the tiles of a picture
    patch: int = 0
    image: int = 0
    merge: int = 1
    mels: int = 0
    windows: int = 0
    gated: bool = False

    @property
    def vision(self) -> bool:
        """Whether it encodes pictures."""
        return self.patch > 0


SHAPES = {
    "tiny": EncoderShape("idefics3", 2, 64, 4, 128, 64, (56, 56), 2, patch=14, image=56, merge=2),  # to try the bench
    # SmolVLM cuts a picture of 2048 x 1536 pixels into 12 tiles and an overview
    "smolvlm-500m": EncoderShape(
        "idefics3", 12, 768, 12, 3072, 960, (512, 512), 13, patch=16, image=512, merge=4
    ),
    "gemma-3-4b": EncoderShape("gemma3", 27, 1152, 16, 4304, 2560, (896, 896), patch=14, image=896, merge=4),
    "qwen2.5-vl-3b": EncoderShape(
        "qwen2.5vl_merger", 32, 1280, 16, 3420, 2048, (1008, 1008), patch=14, image=560, merge=2, windows=8, gated=True
    ),
    "whisper-large": EncoderShape("ultravox", 32, 1280, 20, 5120, 2048, (128, 3000), mels=128),
    "lfm2-audio": EncoderShape("lfm2a", 17, 512, 8, 2048, 2048, (128, 3001), mels=128),
}  # fmt: skip


def metadata(shape: EncoderShape) -> dict[str, Any]:
    """The file's GGUF keys."""
    at = "clip.vision" if shape.vision else "clip.audio"
    found: dict[str, Any] = {
        "clip.projector_type": shape.projector,
        f"clip.has_{'vision' if shape.vision else 'audio'}_encoder": True,
        f"{at}.projection_dim": shape.text,
        f"{at}.embedding_length": shape.n_embd,
        f"{at}.feed_forward_length": shape.n_ff,
        f"{at}.block_count": shape.n_layer,
        f"{at}.attention.head_count": shape.n_head,
        f"{at}.attention.layer_norm_epsilon": 1e-6,
    }
    if not shape.vision:
        return found | {f"{at}.num_mel_bins": shape.mels, f"{at}.projector.stack_factor": 8}
    found |= {f"{at}.patch_size": shape.patch, f"{at}.image_size": shape.image}
    found |= {f"{at}.image_mean": [0.5] * 3, f"{at}.image_std": [0.5] * 3}
    if shape.windows:
        return found | {f"{at}.n_wa_pattern": shape.windows, "clip.use_silu": True}
    found |= {"clip.use_gelu": True, f"{at}.projector.scale_factor": shape.merge}
    return found | {f"{at}.preproc_image_size": 4 * shape.image}


def layer(name: str, *size: int, bias: bool = True, type: Q = Q.F16) -> Iterator[Tensor]:
    """A matrix or the kernel of a convolution, and its bias."""
    yield Tensor(name + ".weight", size, type)
    if bias:
        yield Tensor(name + ".bias", (size[0],), Q.F32)


def norm(name: str, size: int, bias: bool = True) -> Iterator[Tensor]:
    """The vectors of a norm."""
    yield from layer(name, size, bias=bias, type=Q.F32)


def tensors(shape: EncoderShape) -> Iterator[Tensor]:
    """The tensors, in the file's order: matrices F16, all else F32."""
    if shape.projector == "lfm2a":
        yield from _fastconformer(shape)
        return
    n, rms = shape.n_embd, shape.gated
    yield from _beginning(shape)
    prefix = "v." if shape.vision else "a."
    for i in range(shape.n_layer):
        b = f"{prefix}blk.{i}."
        yield from norm(b + "ln1", n, bias=not rms)
        yield from norm(b + "ln2", n, bias=not rms)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            yield from layer(b + name, n, n, bias=shape.vision or name != "attn_k")
        for name in ("ffn_gate", "ffn_up") if shape.gated else ("ffn_up",):
            yield from layer(b + name, shape.n_ff, n)
        yield from layer(b + "ffn_down", n, shape.n_ff)
    yield from norm(prefix + "post_ln", n, bias=not rms)
    match shape.projector:
        case "idefics3":
            yield from layer("mm.model.fc", shape.text, n * shape.merge**2, bias=False)
        case "gemma3":
            yield from norm("mm.soft_emb_norm", n, bias=False)
            yield from layer("mm.input_projection", n, shape.text, bias=False)
        case "qwen2.5vl_merger":
            yield from layer("mm.0", 4 * n, 4 * n)
            yield from layer("mm.2", shape.text, 4 * n)
        case "ultravox":
            yield from norm("mm.a.norm_pre", 8 * n, bias=False)
            yield from layer("mm.a.mlp.1", 4096, 8 * n, bias=False)
            yield from norm("mm.a.norm_mid", 2048, bias=False)
            yield from layer("mm.a.mlp.2", shape.text, 2048, bias=False)


def _fastconformer(shape: EncoderShape) -> Iterator[Tensor]:
    """All of LFM2-Audio's encoder; its convolutions have 256 channels."""
    n, channels = shape.n_embd, 256
    for i, kernel in ((0, (1, 3, 3)), (2, (1, 3, 3)), (3, (channels, 1, 1)), (5, (1, 3, 3)), (6, (channels, 1, 1))):
        yield from layer(f"a.conv1d.{i}", channels, *kernel, type=Q.F32)
    yield from layer("a.pre_encode.out", n, channels * shape.mels // 8)
    for i in range(shape.n_layer):
        b = f"a.blk.{i}."
        for end in ("", "_1"):
            yield from norm(f"{b}ffn_norm{end}", n)
            yield from layer(f"{b}ffn_up{end}", shape.n_ff, n)
            yield from layer(f"{b}ffn_down{end}", n, shape.n_ff)
        for name in ("ln1", "ln2", "norm_conv", "conv_norm"):
            yield from norm(b + name, n)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out", "conv_pw2"):
            yield from layer(b + name, n, n)
        yield from layer(b + "linear_pos", n, 512, bias=False)
        for name in ("pos_bias_u", "pos_bias_v"):
            yield Tensor(b + name, (shape.n_head, n // shape.n_head), Q.F32)
        yield from layer(b + "conv_pw1", 2 * n, n)
        yield from layer(b + "conv_dw", n, 9, type=Q.F32)
    yield from norm("mm.a.mlp.0", n)
    yield from layer("mm.a.mlp.1", shape.text, n)
    yield from layer("mm.a.mlp.3", shape.text, shape.text)


def _beginning(shape: EncoderShape) -> Iterator[Tensor]:
    """What comes before the blocks."""
    n = shape.n_embd
    if not shape.vision:
        yield from layer("a.conv1d.1", n, shape.mels, 3)
        yield from layer("a.conv1d.2", n, n, 3)
        yield Tensor("a.position_embd.weight", (1500, n), Q.F32)
        return
    kernel = (n, 3, shape.patch, shape.patch)
    yield from layer("v.patch_embd", *kernel, bias=not shape.windows)
    if shape.windows:
        yield Tensor("v.patch_embd.weight.1", kernel, Q.F16)
    else:
        yield Tensor("v.position_embd.weight", ((shape.image // shape.patch) ** 2, n), Q.F32)


def header(shape: EncoderShape) -> Header:
    """The header of such a file."""
    infos, at = {}, 0
    for tensor in tensors(shape):
        nbytes = prod(tensor.shape) * BLOCK_SIZES[tensor.type][1]
        infos[tensor.name] = TensorInfo(tensor.name, tensor.shape[::-1], tensor.type, at, nbytes)
        at += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return Header(3, {"general.architecture": "clip", **metadata(shape)}, infos, ALIGNMENT, 0, at)


def write(shape: EncoderShape, path: str, name: str) -> None:
    """Write the file with random weights."""
    writer, weights = GGUFWriter(path, "clip"), Weights(1.0)
    writer.add_name(name)
    for key, value in metadata(shape).items():
        add_value(writer, key, value)
    for tensor in tensors(shape):
        writer.add_tensor(tensor.name, weights.of(tensor.name, tensor.shape, tensor.type))
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path")
    options = parser.parse_args()
    write(SHAPES[options.shape], options.path, f"{options.shape} encoder, random weights")


if __name__ == "__main__":
    main()
