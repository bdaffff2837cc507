"""Random metadata and tensors of Parakeet, a FastConformer as an encoder of sound."""

from typing import Any

import numpy as np

from tests.golden.make.gguf_file import GgufFile

N_FFT, WINDOW, RATE = 512, 400, 16000
CHANNELS = 8  # of the convolutions that halve frames and bins


def add(file: GgufFile, c: dict[str, Any]) -> None:
    """Add the encoder. `c`: the settings of the encoder of pictures beside it."""
    n, heads, bins, layers = 64, 4, 40, 2
    lengths = {"projection_dim": c["out"], "embedding_length": n, "feed_forward_length": 96, "block_count": layers}
    lengths |= {"attention.head_count": heads, "num_mel_bins": bins}
    lengths |= {"subsampling_factor": 8, "conv_kernel_size": 5}
    for key, value in lengths.items():
        file.add(f"clip.audio.{key}", value)
    file.add("clip.audio.attention.layer_norm_epsilon", 1e-5)
    file.constant("a.mel_filters", filters(bins))
    file.constant("a.window", 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / (WINDOW - 1)))
    for i, cols in ((0, 9), (2, 9), (3, CHANNELS), (5, 9), (6, CHANNELS)):
        shape = (CHANNELS, 1, 3, 3) if cols == 9 else (CHANNELS, CHANNELS, 1, 1)
        file.matrix(f"a.conv1d.{i}.weight", *shape, std=1.5 / np.sqrt(cols), float32=True)
        file.vector(f"a.conv1d.{i}.bias", CHANNELS, 1, 1, std=0.1)
    file.matrix("a.pre_encode.out.weight", n, CHANNELS * bins // 8, gain=1.5)
    file.vector("a.pre_encode.out.bias", n, std=0.1)
    for i in range(layers):
        block(file, f"a.blk.{i}.", n, heads, 96)
    file.vector("mm.a.norm_pre.weight", n, mean=1.0)
    file.matrix("mm.a.mlp.1.weight", 80, n, gain=1.4)
    file.matrix("mm.a.mlp.2.weight", c["out"], 80, gain=1.4)


def block(file: GgufFile, b: str, n: int, heads: int, inner: int) -> None:
    """A conformer's block, without biases of matrices; its batch norm has a mean and a variance."""
    for end in ("", "_1"):
        file.norm(f"{b}ffn_norm{end}", n, bias=True)
        file.matrix(f"{b}ffn_up{end}.weight", inner, n, gain=1.3)
        file.matrix(f"{b}ffn_down{end}.weight", n, inner)
    for name in ("ln1", "ln2", "norm_conv", "conv_norm"):
        file.norm(b + name, n, bias=True)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out", "linear_pos", "conv_pw2"):
        file.matrix(f"{b}{name}.weight", n, n, gain=1.3)
    for name in ("pos_bias_u", "pos_bias_v"):
        file.vector(b + name, heads, n // heads, std=0.5)
    file.matrix(b + "conv_pw1.weight", 2 * n, n, gain=1.3)
    file.matrix(b + "conv_dw.weight", n, 5, gain=1.2, float32=True)
    file.vector(b + "conv_norm_mean", n, std=0.3)
    file.constant(b + "conv_norm_var", file.random.uniform(0.3, 1.5, n))


def filters(bins: int) -> np.ndarray:
    """Slaney's triangles of equal areas, as NeMo has them: (bins, frequencies)."""
    step = np.log(6.4) / 27  # of the logarithmic part, above 1000 Hz
    scale = np.linspace(0, 15 + np.log(RATE / 2 / 1000) / step, bins + 2)
    edges = np.where(scale < 15, scale * 200 / 3, 1000 * np.exp((scale - 15) * step))
    frequencies = np.arange(N_FFT // 2 + 1) * RATE / N_FFT
    left, middle, right = (edges[i : bins + i, None] for i in range(3))
    sides = (frequencies - left) / (middle - left), (right - frequencies) / (right - middle)
    triangles: np.ndarray = np.maximum(0, np.minimum(*sides)) * 2 / (right - left)
    return triangles
