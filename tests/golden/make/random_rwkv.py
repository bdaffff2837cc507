"""RWKV's metadata and random tensors."""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

ARCHITECTURES = {"rwkv6", "rwkv7", "rwkv6qwen2", "arwkv7"}
RANKS = {
    **{"decay": "decay_lora_rank", "iclr": "iclr_lora_rank"},
    **{"value": "value_residual_mix_lora_rank", "gate": "gate_lora_rank"},
}


def add_metadata(file: GgufFile, c: Settings) -> None:
    qwen = c["shifts"] == 1
    file.add("%s.vocab_size", c["vocab"])
    file.add("%s.context_length", c["ctx"])
    file.add("%s.embedding_length", c["n_embd"])
    file.add("%s.block_count", c["n_layer"])
    file.add("%s.feed_forward_length", c["n_ff"])
    file.add("%s.attention.head_count", 0)  # as converters write it
    file.add("%s.attention.head_count_kv", c["n_kv"] if c["arch"] == "rwkv6qwen2" else None)
    file.add(f"%s.attention.layer_norm_{'rms_' if qwen else ''}epsilon", float(c["eps"]))
    file.add("%s.wkv.head_size", c["head_size"])
    file.add("%s.token_shift_count", c["shifts"] if qwen else None)
    file.add("%s.rescale_every_n_layers", c.get("rescale"))
    file.add("%s.time_mix_extra_dim", c.get("mix_rank"))
    file.add("%s.time_decay_extra_dim", c.get("decay_rank"))
    for name, key in RANKS.items():
        file.add(f"%s.attention.{key}", c.get("ranks", {}).get(name))


def add_tensors(file: GgufFile, c: Settings) -> None:
    width, layer_norms = c["n_embd"], c["shifts"] == 2
    file.matrix("token_embd.weight", c["vocab"], width, std=1.0)
    if layer_norms:
        file.norm("token_embd_norm", width, bias=True)
    file.norm("output_norm", width, bias=layer_norms)
    file.matrix("output.weight", c["vocab"], width, gain=c["logit_std"])
    for i in range(c["n_layer"]):
        prefix = f"blk.{i}."
        file.norm(prefix + "attn_norm", width, bias=layer_norms)
        add_time_mix = add_time_mix_7 if c["arch"].endswith("7") else add_time_mix_6
        add_time_mix(file, c, prefix)
        if layer_norms:
            file.norm(prefix + "attn_norm_2", width, bias=True)
            add_channel_mix(file, c, prefix)
        else:
            file.norm(prefix + "ffn_norm", width)
            for name in ("gate", "up"):
                file.matrix(f"{prefix}ffn_{name}.weight", c["n_ff"], width)
            file.matrix(prefix + "ffn_down.weight", width, c["n_ff"], gain=1.5)


def fraction(file: GgufFile, name: str, *shape: int) -> None:
    """Numbers between 0 and 1: how much of a mixture is the token before."""
    file.constant(name + ".weight", file.random.random(shape))


def low_rank(file: GgufFile, name: str, width: int, rank: int) -> None:
    file.matrix(f"{name}1.weight", rank, width, float32=True)
    file.matrix(f"{name}2.weight", width, rank, float32=True)


def add_time_mix_7(file: GgufFile, c: Settings, prefix: str) -> None:
    width, ranks, name = c["n_embd"], c["ranks"], prefix + "time_mix_"
    file.vector(name + "w0.weight", width, mean=-1.0, std=1.5)
    low_rank(file, name + "w", width, ranks["decay"])
    file.vector(name + "a0.weight", width, std=0.5)
    low_rank(file, name + "a", width, ranks["iclr"])
    file.vector(name + "v0.weight", width, std=0.5)
    low_rank(file, name + "v", width, ranks["iclr"] if prefix == "blk.0." else ranks["value"])
    if ranks["gate"]:
        low_rank(file, name + "g", width, ranks["gate"])
    fraction(file, name + "lerp_fused", 6 if ranks["gate"] else 5, 1, 1, width)
    for part, mean in (("k_k", 0.8), ("k_a", 1.0), ("r_k", 0.0)):
        file.vector(f"{name}{part}.weight", width, mean=mean)
    for part in ("key", "value", "receptance", "output"):
        file.matrix(f"{name}{part}.weight", width, width)
    if ranks["gate"]:
        file.norm(prefix + "time_mix_ln", width, bias=True)


def add_time_mix_6(file: GgufFile, c: Settings, prefix: str) -> None:
    width, size, mix, name = c["n_embd"], c["head_size"], c["mix_rank"], prefix + "time_mix_"
    qwen = c["shifts"] == 1
    keys = c["n_kv"] * size if qwen else width
    file.matrix(name + "w1.weight", 5 * mix, width, float32=True)
    file.matrix(name + "w2.weight", 5, width, mix, float32=True, std=0.3 / np.sqrt(mix))
    fraction(file, name + "lerp_x", 1, 1, width)
    fraction(file, name + "lerp_fused", 5, 1, 1, width)
    if not qwen:
        file.vector(name + "first.weight", width // size, size, std=0.5)
    file.vector(name + "decay.weight", width, mean=-2.0, std=1.5)
    low_rank(file, name + "decay_w", width, c["decay_rank"])
    for part, rows in (("key", keys), ("value", keys), ("receptance", width), ("gate", width), ("output", width)):
        file.matrix(f"{name}{part}.weight", rows, width)
        if qwen and part in ("key", "value", "receptance"):
            file.vector(f"{name}{part}.bias", rows)
    if not qwen:
        file.norm(prefix + "time_mix_ln", width, bias=True)


def add_channel_mix(file: GgufFile, c: Settings, prefix: str) -> None:
    width, name = c["n_embd"], prefix + "channel_mix_"
    fraction(file, name + "lerp_k", 1, 1, width)
    file.matrix(name + "key.weight", c["n_ff"], width)
    file.matrix(name + "value.weight", width, c["n_ff"])
    if c["arch"] == "rwkv6":
        fraction(file, name + "lerp_r", 1, 1, width)
        file.matrix(name + "receptance.weight", width, width)
