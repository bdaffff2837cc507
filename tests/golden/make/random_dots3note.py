"""Random metadata and tensors of dots3-note's encoders of pictures and of sound."""

from typing import Any

import numpy as np

from tests.golden.make.gguf_file import GgufFile

CHANNELS = 8  # of the convolutions of sound
BINS = 44


def experts(file: GgufFile, b: str, count: int, n: int, inner: int, *, bias: bool) -> None:
    """A mixture in place of a block's network."""
    file.matrix(f"{b}ffn_gate_inp.weight", count, n, gain=2.0, float32=True)
    for name in ("gate", "up"):
        file.matrix(f"{b}ffn_{name}_exps.weight", count, inner, n, std=1.5 / np.sqrt(n))
    file.matrix(f"{b}ffn_down_exps.weight", count, n, inner, std=1 / np.sqrt(inner))
    if bias:
        file.vector(f"{b}exp_probs_b.weight", count, std=0.3)


def add_sound(file: GgufFile, c: dict[str, Any]) -> None:
    """Add the encoder of sound. `c`: the settings of the encoder of pictures beside it."""
    n, heads, inner, layers = 64, 4, 96, 2
    lengths = {"projection_dim": c["out"], "embedding_length": n, "feed_forward_length": inner, "block_count": layers}
    for key, value in {**lengths, "attention.head_count": heads, "num_mel_bins": BINS}.items():
        file.add(f"clip.audio.{key}", value)
    file.add("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for i in range(3):
        cols = 9 * (CHANNELS if i else 1)
        file.matrix(f"a.conv2d.{i + 1}.weight", CHANNELS, cols // 9, 3, 3, std=1.5 / np.sqrt(cols))
        file.vector(f"a.conv2d.{i + 1}.bias", CHANNELS, std=0.1)
    file.matrix("a.conv_out.weight", n, CHANNELS * -(-BINS // 8), gain=1.5)
    for i in range(layers):
        b = f"a.blk.{i}."
        for name in ("ln1", "ln2"):
            file.norm(b + name, n)
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            file.matrix(f"{b}{name}.weight", n, n, gain=1.5)
            file.vector(f"{b}{name}.bias", n, std=0.1)
        for name in ("ffn_gate", "ffn_up"):
            file.matrix(f"{b}{name}.weight", inner, n, gain=1.3)
        file.matrix(f"{b}ffn_down.weight", n, inner)
    file.norm("a.post_ln", n)
    file.norm("mm.a.norm_pre", n, bias=True)
    for name, out, cols in (("mm.a.mlp.1", 80, n), ("mm.a.mlp.3", c["out"], 80)):
        file.matrix(f"{name}.weight", out, cols, gain=1.4)
        file.vector(f"{name}.bias", out, std=0.1)
