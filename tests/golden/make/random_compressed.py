"""Random metadata and tensors of attention to compressed keys, and of experts that the token chooses."""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings
from tests.golden.make.random_latent import SHARP, add_mixed_streams
from tests.golden.make.random_layers import add_experts


def add_metadata(file: GgufFile, c: Settings) -> None:
    file.add("%s.attention.q_lora_rank", c["q_rank"])
    file.add("%s.attention.compress_ratios", c["ratios"])
    file.add("%s.attention.compress_rope_freq_base", c["compress_base"])
    file.add("%s.hash_layer_count", c["hash_layers"])
    for name, value in zip(("head_count", "key_length", "top_k"), c["index"], strict=True):
        file.add(f"%s.attention.indexer.{name}", value)
    for name, value in zip(("count", "sinkhorn_iterations", "epsilon"), c["mixed"], strict=True):
        file.add(f"%s.hyper_connection.{name}", value)
    for name, value in zip(("group_count", "lora_rank"), c["out"], strict=True):
        file.add(f"%s.attention.output_{name}", value)


def add_tensors(file: GgufFile, c: Settings) -> None:
    width, count = c["n_embd"], c["mixed"][0]
    file.matrix("token_embd.weight", c["vocab"], width, std=1.0)
    file.norm("output_norm", width)
    file.matrix("output.weight", c["vocab"], width, gain=c["logit_std"])
    file.matrix("output_hc_fn.weight", count, count * width)
    file.vector("output_hc_base.weight", count, std=0.7)
    file.vector("output_hc_scale.weight", 1, mean=1.5)
    for i in range(c["n_layer"]):
        prefix = f"blk.{i}."
        add_attention(file, c, prefix, c["ratios"][i])
        file.norm(prefix + "attn_norm", width)
        file.norm(prefix + "ffn_norm", width)
        add_mixed_streams(file, c, prefix + "hc_attn")
        add_mixed_streams(file, c, prefix + "hc_ffn")
        add_experts(file, c | {"probs_bias": i >= c["hash_layers"]}, prefix)
        if i < c["hash_layers"]:
            choices = [file.random.permutation(c["n_expert"])[: c["n_used"]] for _ in range(c["vocab"])]
            file.integers(prefix + "ffn_gate_tid2eid.weight", np.array(choices))


def add_attention(file: GgufFile, c: Settings, prefix: str, ratio: int) -> None:
    """Add a layer's projections, and what compresses its keys."""
    width, heads, size, rank, (groups, out) = c["n_embd"], c["n_head"], c["head_dim"], c["q_rank"], c["out"]
    file.vector(prefix + "attn_sinks.weight", heads, std=1.0)
    file.matrix(prefix + "attn_q_a.weight", rank, width)
    file.norm(prefix + "attn_q_a_norm", rank)
    file.matrix(prefix + "attn_q_b.weight", heads * size, rank)
    file.matrix(prefix + "attn_kv.weight", size, width)
    file.norm(prefix + "attn_kv_a_norm", size, mean=SHARP)
    file.matrix(prefix + "attn_output_a.weight", groups * out, heads * size // groups)
    file.matrix(prefix + "attn_output_b.weight", width, groups * out)
    if not ratio:
        return
    add_compressor(file, c, prefix + "attn", size, ratio, 2 if ratio == 4 else 1)
    if ratio == 4:
        count, own, _ = c["index"]
        file.matrix(prefix + "indexer.proj.weight", count, width)
        file.matrix(prefix + "indexer.attn_q_b.weight", count * own, rank)
        add_compressor(file, c, prefix + "indexer", own, ratio, 2)


def add_compressor(file: GgufFile, c: Settings, name: str, size: int, ratio: int, parts: int) -> None:
    """Add what compresses keys to `size` values. `parts`: 2 if a key is also made of the positions before."""
    file.matrix(f"{name}_compressor_kv.weight", parts * size, c["n_embd"])
    file.matrix(f"{name}_compressor_gate.weight", parts * size, c["n_embd"], gain=2.0)
    file.matrix(f"{name}_compressor_ape.weight", ratio, parts * size, std=1.0, float32=not c.get("small_terms"))
    file.norm(f"{name}_compressor_norm", size, mean=SHARP)
