"""The metadata and tensors of latent attention."""

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

SHARP = 1.4  # gain of queries and keys: spreads the attention's scores


def add_metadata(file: GgufFile, c: Settings) -> None:
    """Add what only latent attention has. Split: a head's key is the latent and the rotated part."""
    rank, rope, key = c["kv_rank"], c["rope_dim"], c["nope"] + c["rope_dim"]
    file.add("%s.attention.q_lora_rank", c.get("q_rank"))
    file.add("%s.attention.kv_lora_rank", rank)
    file.add("%s.attention.key_length", rank + rope if c["split"] else key)
    file.add("%s.attention.value_length", rank if c["split"] else c["v_dim"])
    if c["split"]:
        file.add("%s.attention.key_length_mla", key)
        file.add("%s.attention.value_length_mla", c["v_dim"])
    for name, value in zip(("head_count", "key_length", "top_k"), c.get("index", ()), strict=False):
        file.add(f"%s.attention.indexer.{name}", value)
    if c["arch"] == "hy_v4" and "index" in c and "sharing" not in c:
        file.add("%s.attention.indexer.types", [1] * c["n_layer"])
    for name, value in zip(("count", "sinkhorn_iterations", "epsilon"), c.get("mixed", ()), strict=False):
        file.add(f"%s.hyper_connection.{name}", value)
    file.add("%s.attention.indexer.kpool", c.get("pooled"))
    file.add("%s.attention.indexer.types", c.get("sharing"))
    if "swa" in c:
        rank, key, value = c["swa"]["kv_rank"], c["swa"]["nope"] + rope, c["swa"]["v_dim"]
        file.add("%s.attention.kv_lora_rank_swa", rank)
        file.add("%s.attention.key_length_swa", rank + rope)
        file.add("%s.attention.value_length_swa", rank)
        file.add("%s.attention.key_length_mla_swa", key)
        file.add("%s.attention.value_length_mla_swa", value)
        file.add("%s.attention.indexer.types", [int(not windowed) for windowed in c["pattern"]])
    for name, value in zip(("count", "epsilon", "magnitude"), c.get("streams", ()), strict=False):
        file.add(f"%s.hyper_connection.{name}", value)
    file.add("%s.rope.scaling.yarn_log_multiplier", c.get("yarn_log_multiplier"))


def add_attention(file: GgufFile, c: Settings, prefix: str) -> None:
    """Add a layer's projections."""
    width, heads, rank, nope, rope, v = c["n_embd"], c["n_head"], c["kv_rank"], c["nope"], c["rope_dim"], c["v_dim"]
    q_rows = heads * (nope + rope)
    if q_rank := c.get("q_rank"):
        file.matrix(prefix + "attn_q_a.weight", q_rank, width)
        file.norm(prefix + "attn_q_a_norm", q_rank)
        file.matrix(prefix + "attn_q_b.weight", q_rows, q_rank, gain=SHARP)
    else:
        file.matrix(prefix + "attn_q.weight", q_rows, width, gain=SHARP)
    file.matrix(prefix + "attn_kv_a_mqa.weight", rank + rope, width, gain=SHARP)
    file.norm(prefix + "attn_kv_a_norm", rank)
    if c["split"]:
        # scores are sums over `rank`: the usual deviation of a key of `nope` dimensions
        file.matrix(prefix + "attn_k_b.weight", heads, rank, nope, std=rank**-0.5)
        file.matrix(prefix + "attn_v_b.weight", heads, v, rank)
    else:
        file.matrix(prefix + "attn_kv_b.weight", heads * (nope + v), rank)
    file.matrix(prefix + "attn_output.weight", width, heads * v)
    if c["arch"] in ("bailingmoe3", "dots3note"):
        file.matrix(prefix + "attn_gate.weight", heads, width)
    if c["preset"] == "kimi-k3":
        file.matrix(prefix + "attn_gate.weight", heads * v, width)
    if c["arch"] == "hy_v4":
        file.matrix(prefix + "attn_gate.weight", heads * v, width)
        file.vector(prefix + "attn_sinks.weight", heads, std=1.0)
    if c["arch"] == "dots3note":
        file.norm(prefix + "attn_k_norm", rope, mean=SHARP)
    if c.get("index"):
        count, size, _ = c["index"]
        file.norm(prefix + "indexer.k_norm", size, bias=True)
        file.matrix(prefix + "indexer.proj.weight", count, width)
        file.matrix(prefix + "indexer.attn_k.weight", size, width)
        file.matrix(prefix + "indexer.attn_q_b.weight", count * size, c["q_rank"])
        if "pooled" in c:
            file.matrix(prefix + "indexer_compressor_gate.weight", size, width)
            file.matrix(prefix + "indexer_compressor_ape.weight", c["pooled"], size, float32=True)


def add_streams(file: GgufFile, c: Settings, name: str, parts: int) -> None:
    """What makes weights of the residual streams: `parts` of them for each stream."""
    count = c["streams"][0]
    file.matrix(f"{name}_fn.weight", parts * count, count * c["n_embd"])
    file.vector(f"{name}_base.weight", parts * count, std=0.7)
    file.vector(f"{name}_scale.weight", parts, mean=1.5)


def add_mixed_streams(file: GgufFile, c: Settings, name: str) -> None:
    """What makes weights of residual streams: to read them, to add to them, and to mix each with every other."""
    count = c["mixed"][0]
    rows = (2 + count) * count
    file.matrix(f"{name}_fn.weight", rows, count * c["n_embd"])
    file.vector(f"{name}_base.weight", rows, std=0.7)
    file.vector(f"{name}_scale.weight", 3, mean=1.5)
