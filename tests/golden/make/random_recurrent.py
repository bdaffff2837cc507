"""The random metadata and tensors of recurrent layers: Mamba-2 and gated delta nets."""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

MAMBA2 = {"granitehybrid", "mamba2", "nemotron_h", "nemotron_h_moe", "falcon-h1"}
MAMBA = {"mamba", "jamba"}
PLAMO2_RANK = 64  # columns that PLaMo 2's time steps are made of
DELTA = {"qwen35", "qwen35moe", "qwen3next", "qwen4exp"}


def add_metadata(file: GgufFile, c: Settings) -> None:
    """`d_inner`: columns of all heads' values; `ssm_heads` of them, which share `ssm_groups` heads of keys."""
    file.add("%s.ssm.conv_kernel", c["d_conv"])
    file.add("%s.ssm.inner_size", c["d_inner"])
    file.add("%s.ssm.state_size", c["d_state"])
    file.add("%s.ssm.time_step_rank", c["ssm_heads"])
    file.add("%s.ssm.group_count", c["ssm_groups"] if c["arch"] == "plamo2" else c["ssm_groups"] or None)
    if c["arch"].startswith("nemotron_h"):  # which llama.cpp requires, beside that of the RMS norms
        file.add("%s.attention.layer_norm_epsilon", 1e-5)
    file.add("%s.full_attention_interval", c.get("attention_every"))
    file.add("%s.rope.dimension_sections", c.get("sections"))


def kv_heads(c: Settings) -> list[int]:
    """The key/value heads of each layer; 0: it has no attention."""
    layers = range(c["n_layer"])
    if "attention_layers" in c:
        return [c["n_kv"] if i in c["attention_layers"] else 0 for i in layers]
    if c["arch"] in DELTA:  # the last of every few layers
        every = c.get("attention_every", 4)
        return [c["n_kv"] if (i + 1) % every == 0 else 0 for i in layers]
    if "layers" in c:
        return [c["n_kv"] if kind == "*" else 0 for kind in c["layers"]]
    if c["arch"] in ("falcon-h1", "mamba", "mamba2"):
        return [c["n_kv"] if c["arch"] == "falcon-h1" else 0 for i in layers]
    return [c["n_kv"] if i % 3 == 1 else 0 for i in layers]


def add_mamba(file: GgufFile, c: Settings, prefix: str) -> None:
    width, inner, size, rank = c["n_embd"], c["d_inner"], c["d_state"], c["ssm_heads"]
    file.matrix(prefix + "ssm_in.weight", 2 * inner, width)
    file.matrix(prefix + "ssm_conv1d.weight", inner, c["d_conv"], float32=True)
    file.vector(prefix + "ssm_conv1d.bias", inner)
    file.matrix(prefix + "ssm_x.weight", rank + 2 * size, inner)
    if c["arch"] == "jamba":
        for name, count in (("dt", rank), ("b", size), ("c", size)):
            file.norm(f"{prefix}ssm_{name}_norm", count)
    file.matrix(prefix + "ssm_dt.weight", inner, rank)
    file.constant(prefix + "ssm_a", -np.exp(file.random.standard_normal((inner, size)) * 0.8))
    file.vector(prefix + "ssm_dt.bias", inner, mean=-1.0, std=0.8)
    file.vector(prefix + "ssm_d", inner, mean=1.0)
    file.matrix(prefix + "ssm_out.weight", width, inner)


def add_plamo2(file: GgufFile, c: Settings, prefix: str) -> None:
    """Mamba-2's scan, with dt, keys and queries made as Mamba makes them."""
    width, inner, size, heads = c["n_embd"], c["d_inner"], c["d_state"], c["ssm_heads"]
    file.matrix(prefix + "ssm_in.weight", 2 * inner, width)
    file.matrix(prefix + "ssm_conv1d.weight", inner, c["d_conv"], float32=True)
    file.matrix(prefix + "ssm_x.weight", PLAMO2_RANK + 2 * size, inner)
    for name, count in (("dt", PLAMO2_RANK), ("b", size), ("c", size)):
        file.vector(f"{prefix}ssm_{name}_norm", count, mean=1.0, std=0.15)
    file.matrix(prefix + "ssm_dt.weight", heads, PLAMO2_RANK)
    add_rates(file, prefix, heads)
    file.vector(prefix + "ssm_d", heads, mean=1.0)
    file.matrix(prefix + "ssm_out.weight", width, inner)


def add_mamba2(file: GgufFile, c: Settings, prefix: str) -> None:
    width, inner, heads, groups = c["n_embd"], c["d_inner"], c["ssm_heads"], c["ssm_groups"]
    channels = inner + 2 * groups * c["d_state"]
    file.matrix(prefix + "ssm_in.weight", inner + channels + heads, width)
    file.matrix(prefix + "ssm_conv1d.weight", channels, c["d_conv"], float32=True)
    file.vector(prefix + "ssm_conv1d.bias", channels)
    add_rates(file, prefix, heads, 1)
    file.vector(prefix + "ssm_d", heads, 1, mean=1.0)
    if c.get("ssm_norm", True):
        file.norm(prefix + "ssm_norm", groups, inner // groups)
    file.matrix(prefix + "ssm_out.weight", width, inner)


def add_delta(file: GgufFile, c: Settings, prefix: str) -> None:
    width, inner, heads = c["n_embd"], c["d_inner"], c["ssm_heads"]
    channels = inner + 2 * c["ssm_groups"] * c["d_state"]
    file.matrix(prefix + "attn_qkv.weight", channels, width)
    file.matrix(prefix + "attn_gate.weight", inner, width)
    file.matrix(prefix + "ssm_conv1d.weight", channels, c["d_conv"], float32=True)
    add_rates(file, prefix, heads)
    if c["arch"] == "qwen3next":
        file.matrix(prefix + "ssm_ba.weight", 2 * heads, width)
    else:
        file.matrix(prefix + "ssm_beta.weight", heads, width)
        file.matrix(prefix + "ssm_alpha.weight", heads, width)
    file.norm(prefix + "ssm_norm", inner // heads)
    file.matrix(prefix + "ssm_out.weight", width, inner)


def add_kda(file: GgufFile, c: Settings, prefix: str) -> None:
    """Kimi's gated delta net, with a decay for each dimension of a key. Ling 3's has no low ranks."""
    width, heads, size = c["n_embd"], c["n_head"], c["kda_dim"]
    inner = heads * size
    for part in "qkv":
        file.matrix(f"{prefix}attn_{part}.weight", inner, width)
        file.matrix(f"{prefix}ssm_conv1d_{part}.weight", inner, 1, c["d_conv"], float32=True)
    for part in "fg":
        if c["arch"] == "bailingmoe3":
            file.matrix(f"{prefix}ssm_{part}_a.weight", inner, width)
            continue
        if c["arch"] == "kimi-k3" and part == "g":
            file.matrix(prefix + "ssm_g.weight", inner, width)
            continue
        file.matrix(f"{prefix}ssm_{part}_a.weight", size, width)
        file.matrix(f"{prefix}ssm_{part}_b.weight", inner, size)
    file.matrix(prefix + "ssm_beta.weight", heads, width)
    shape = (heads,) if c["arch"] in ("kimi-k3", "glm5-next") else (heads, 1)
    file.constant(prefix + "ssm_a", -np.exp(file.random.standard_normal(shape) * 0.8))
    file.vector(prefix + "ssm_dt.bias", inner, mean=-1.0, std=0.8)
    file.norm(prefix + "ssm_norm", size)
    file.matrix(prefix + "attn_output.weight", width, inner)


def add_fixed_decay(file: GgufFile, c: Settings, prefix: str) -> None:
    """MiniMax's linear attention: each head's queries, keys and values; gates."""
    width, inner = c["n_embd"], c["n_head"] * c["head_dim"]
    file.norm(prefix + "attn_norm_2", inner)
    file.matrix(prefix + "attn_qkv.weight", 3 * inner, width)
    file.matrix(prefix + "attn_gate.weight", inner, width)
    file.matrix(prefix + "attn_output.weight", width, inner)


def add_rates(file: GgufFile, prefix: str, *shape: int) -> None:
    """How fast each head forgets: A, below 0, and the bias of its time step."""
    file.constant(prefix + "ssm_a", -np.exp(file.random.standard_normal(shape) * 0.8))
    file.vector(prefix + "ssm_dt.bias", shape[0], mean=-1.0, std=0.8)
