"""Gemma 4's and EmbeddingGemma 2's random models: layers of two head sizes, per-layer embeddings, shared caches."""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings


def windowed_layers(c: Settings) -> list[bool]:
    """Which layers attend to a sliding window: all but every fourth (`period`) and the last."""
    period = c.get("period", 4)
    return [(i + 1) % period != 0 and i != c["n_layer"] - 1 for i in range(c["n_layer"])]


def kv_heads(c: Settings) -> list[int]:
    """Key and value heads of each layer; those without a window have half as many."""
    return [c["n_kv"] if windowed else max(1, c["n_kv"] // 2) for windowed in windowed_layers(c)]


def widths(c: Settings) -> list[int]:
    """Feed-forward width of each layer; those that share a cache are twice as wide."""
    own = c["n_layer"] - c["shared"]
    return [c["n_ff"] * (1 if i < own else 2) for i in range(c["n_layer"])]


def add_metadata(file: GgufFile, c: Settings) -> None:
    head = c["head_dim"]
    file.add("%s.vocab_size", c["vocab"])
    file.add("%s.context_length", c["ctx"])
    file.add("%s.embedding_length", c["n_embd"])
    file.add("%s.block_count", c["n_layer"])
    file.add("%s.attention.head_count", c["n_head"])
    file.add("%s.attention.layer_norm_rms_epsilon", float(c["eps"]))
    file.add("%s.rope.freq_base", c["rope_base"])
    file.add("%s.attention.sliding_window", c["window"])
    file.add("%s.final_logit_softcapping", c.get("final_cap"))
    file.add("%s.attention.key_length", 2 * head)
    file.add("%s.attention.value_length", 2 * head)
    file.add("%s.attention.key_length_swa", head)
    file.add("%s.attention.value_length_swa", head)
    file.add("%s.attention.head_count_kv", kv_heads(c))
    file.add("%s.feed_forward_length", widths(c))
    file.add("%s.rope.dimension_count", 2 * head)
    file.add("%s.rope.dimension_count_swa", head)
    file.add("%s.rope.freq_base_swa", 10000.0)
    file.add("%s.attention.sliding_window_pattern", windowed_layers(c))
    file.add("%s.embedding_length_per_layer_input", c["pl"])
    file.add("%s.attention.shared_kv_layers", c["shared"] or None if c["arch"] != "gemma4" else c["shared"])
    file.add("%s.pooling_type", c.get("pooling"))
    file.add("%s.embedding_length_out", c.get("n_out"))
    if "n_expert" in c:
        file.add("%s.expert_count", c["n_expert"])
        file.add("%s.expert_used_count", c["n_used"])
        file.add("%s.expert_feed_forward_length", c["n_ff_expert"])


def add_tensors(file: GgufFile, c: Settings) -> None:
    width, layers, head, extra = c["n_embd"], c["n_layer"], c["head_dim"], c["pl"]
    std = 1.6 / width  # the embeddings are scaled by sqrt(width)
    file.matrix("token_embd.weight", c["vocab"], width, std=std)
    file.norm("output_norm", width, mean=c["logit_std"] / (std * np.sqrt(width)))
    if "n_out" in c:
        file.matrix("output.weight", c["n_out"], width)
    else:  # a quarter of the wide heads' pairs rotates; the others' frequencies are divided to nothing
        file.constant("rope_freqs.weight", [1.0] * (head // 4) + [1e30] * (head - head // 4))
    if extra and "n_out" not in c:
        file.matrix("per_layer_token_embd.weight", c["vocab"], extra * layers, std=extra**-0.5)
    if extra:
        file.matrix("per_layer_model_proj.weight", extra * layers, width, std=1.0)
        file.norm("per_layer_proj_norm", extra)
    for i, (windowed, heads, n_ff) in enumerate(zip(windowed_layers(c), kv_heads(c), widths(c), strict=True)):
        prefix = f"blk.{i}."
        size = head if windowed else 2 * head
        file.norm(prefix + "attn_norm", width)
        file.matrix(prefix + "attn_q.weight", c["n_head"] * size, width)
        file.norm(prefix + "attn_q_norm", size, mean=0.6)
        if i < layers - c["shared"]:
            file.matrix(prefix + "attn_k.weight", heads * size, width)
            file.norm(prefix + "attn_k_norm", size, mean=0.6)
            if windowed or extra:  # else the keys before their norm are the values
                file.matrix(prefix + "attn_v.weight", heads * size, width)
        file.matrix(prefix + "attn_output.weight", width, c["n_head"] * size)
        file.norm(prefix + "post_attention_norm", width)
        file.norm(prefix + "ffn_norm", width)
        file.matrix(prefix + "ffn_gate.weight", n_ff, width)
        file.matrix(prefix + "ffn_up.weight", n_ff, width)
        file.matrix(prefix + "ffn_down.weight", width, n_ff, gain=1.5)
        file.norm(prefix + "post_ffw_norm", width)
        file.vector(prefix + "layer_output_scale.weight", 1, mean=0.8, std=0.1)
        if extra:
            file.matrix(prefix + "inp_gate.weight", extra, width)
            file.matrix(prefix + "proj.weight", width, extra)
            file.norm(prefix + "post_norm", width)
        if "n_expert" in c:
            add_experts(file, c, prefix)


def add_experts(file: GgufFile, c: Settings, prefix: str) -> None:
    """The experts beside a layer's dense network, with norms of their own, and factors of their outputs."""
    width, experts, n_ff = c["n_embd"], c["n_expert"], c["n_ff_expert"]
    file.matrix(prefix + "ffn_gate_inp.weight", experts, width, gain=np.sqrt(width), float32=True)
    file.vector(prefix + "ffn_gate_inp.scale", width, mean=1.0)
    for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
        file.norm(prefix + name, width)
    file.matrix(prefix + "ffn_gate_up_exps.weight", experts, 2 * n_ff, width)
    file.matrix(prefix + "ffn_down_exps.weight", experts, width, n_ff, gain=1.5)
    file.vector(prefix + "ffn_down_exps.scale", experts, mean=1.0)
