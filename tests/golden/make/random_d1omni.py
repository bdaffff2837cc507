"""Random metadata and tensors of D1-Omni's encoder of sound: LFM2-Audio's, with two layers more at its end."""

from typing import Any

import numpy as np

from tests.golden.make.gguf_file import GgufFile

CHANNELS, POSITIONS, KERNEL = 8, 512, 9  # of convolutions; values of a distance's sinusoids; rows of a convolution


def add(file: GgufFile, c: dict[str, Any]) -> None:
    """Add the encoder. `c`: the settings of the encoder of pictures beside it."""
    n, heads, bins, layers, inner = 64, 4, 40, 2, 96
    lengths = {"projection_dim": c["out"], "embedding_length": n, "feed_forward_length": inner, "block_count": layers}
    for key, value in {**lengths, "attention.head_count": heads, "num_mel_bins": bins}.items():
        file.add(f"clip.audio.{key}", value)
    file.add("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for i, cols in ((0, 9), (2, 9), (3, CHANNELS), (5, 9), (6, CHANNELS)):
        shape = (CHANNELS, 1, 3, 3) if cols == 9 else (CHANNELS, CHANNELS, 1, 1)
        file.matrix(f"a.conv1d.{i}.weight", *shape, std=1.5 / np.sqrt(cols), float32=True)
        file.vector(f"a.conv1d.{i}.bias", CHANNELS, 1, 1, std=0.1)
    linear(file, "a.pre_encode.out", n, CHANNELS * bins // 8)
    for i in range(layers):
        block(file, f"a.blk.{i}.", n, heads, inner)
    file.norm("mm.a.mlp.0", n, bias=True)
    linear(file, "mm.a.mlp.1", 80, n)
    linear(file, "mm.a.mlp.3", c["out"], 80)
    file.norm("mm.a.mlp.4", c["out"], bias=True)
    linear(file, "mm.a.mlp.5", 48, c["out"])
    linear(file, "mm.a.mlp.6", c["out"], 48)


def block(file: GgufFile, b: str, n: int, heads: int, inner: int) -> None:
    """A conformer's block."""
    for end in ("", "_1"):
        file.norm(f"{b}ffn_norm{end}", n, bias=True)
        linear(file, f"{b}ffn_up{end}", inner, n)
        linear(file, f"{b}ffn_down{end}", n, inner)
    for name in ("ln1", "ln2", "norm_conv", "conv_norm"):
        file.norm(b + name, n, bias=True)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "conv_pw2"):
        linear(file, b + name, n, n)
    linear(file, b + "conv_pw1", 2 * n, n)
    file.matrix(b + "linear_pos.weight", n, POSITIONS)
    for name in ("pos_bias_u", "pos_bias_v"):
        file.vector(b + name, heads, n // heads, std=0.5)
    file.matrix(b + "conv_dw.weight", n, KERNEL, gain=1.2, float32=True)
    file.vector(b + "conv_dw.bias", n, std=0.1)


def linear(file: GgufFile, name: str, out: int, cols: int) -> None:
    file.matrix(f"{name}.weight", out, cols, gain=1.3)
    file.vector(f"{name}.bias", out, std=0.1)
