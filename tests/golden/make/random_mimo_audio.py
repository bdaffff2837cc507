"""Random metadata and tensors of MiMo-V2.5's encoders of sound, with small codebooks between them."""

from typing import Any

import numpy as np

from tests.golden.make.gguf_file import GgufFile

MELS, GROUP, LOCAL, INNER = 40, 4, 2, 96


def add(file: GgufFile, c: dict[str, Any]) -> None:
    """Add the encoders. `c`: the settings of the encoder of pictures beside them."""
    n, modes, codes = 64, c["sound_modes"], c["codes"]
    lengths = {"projection_dim": c["out"], "embedding_length": n, "feed_forward_length": INNER}
    lengths |= {"block_count": len(modes), "attention.head_count": 4, "num_mel_bins": MELS, "window_size": 5}
    lengths |= {"local_block_count": LOCAL, "local_group_size": GROUP, "rvq.num_quantizers": len(codes)}
    for key, value in lengths.items():
        file.add(f"clip.audio.{key}", value)
    file.add("clip.audio.rvq.codebook_size", codes)
    file.add("clip.audio.wa_pattern_mode", modes)
    file.add("clip.audio.attention.layer_norm_epsilon", 1e-5)
    for i, cols in ((1, MELS), (2, n)):
        file.matrix(f"a.conv1d.{i}.weight", n, cols, 3, std=0.8 / np.sqrt(cols))
        file.vector(f"a.conv1d.{i}.bias", n, 1, std=0.1)
    for i in range(len(modes)):
        block(file, f"a.blk.{i}.", n, whisper=True)
    for name in ("a.post_ln", "a.downsample.norm"):
        file.norm(name, n, bias=True)
    file.matrix("a.downsample.conv.weight", n, n, 2, std=1 / np.sqrt(n))
    file.matrix("a.rvq.codebook.weight", len(codes), max(codes), n, std=0.7)
    file.matrix("mm.a.code_embd.weight", len(codes), max(codes) + 2, n, std=0.6)
    for i in range(LOCAL):
        block(file, f"mm.a.local_blk.{i}.", n, whisper=False)
    file.norm("mm.a.local_norm", n)
    file.matrix("mm.a.mlp.1.weight", 80, GROUP * n, gain=1.4)
    file.matrix("mm.a.mlp.2.weight", c["out"], 80, gain=1.4)


def block(file: GgufFile, b: str, n: int, *, whisper: bool) -> None:
    """A block of the first encoder (`whisper`), with all biases but those of keys, or of the second, with a gate.

    The second encoder's blocks have biases of queries, keys and values only.
    """
    for name in ("ln1", "ln2"):
        file.norm(b + name, n, bias=whisper)
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        file.matrix(f"{b}{name}.weight", n, n, gain=1.4)
        if name != ("attn_k" if whisper else "attn_out"):
            file.vector(f"{b}{name}.bias", n, std=0.1)
    for name, out, cols in (("ffn_gate", INNER, n), ("ffn_up", INNER, n), ("ffn_down", n, INNER)):
        if not (whisper and name == "ffn_gate"):
            file.matrix(f"{b}{name}.weight", out, cols, gain=1.2)
        if whisper and name != "ffn_gate":
            file.vector(f"{b}{name}.bias", out, std=0.1)
