"""Gemma 3n's metadata and random tensors: several residual streams, low-rank residuals, shared caches.

llama.cpp fixes the number of streams, the rank, the width of the per-layer embeddings, the first 20 layers, which have
keys and values, and the first 10, whose feed-forward network is sparse. So a small model has many narrow layers, and
types of few bits where its matrices are widest.
"""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

STREAMS, RANK, EXTRA, WITH_KV = 4, 64, 256, 20
PERIOD = 5  # the last layer of each period has no window


def windowed_layers(c: Settings) -> list[bool]:
    """Which layers attend to a sliding window. The two that share caches are of both kinds."""
    return [i % PERIOD != PERIOD - 1 for i in range(c["n_layer"] - 1)] + [False]


def add_metadata(file: GgufFile, c: Settings) -> None:
    file.add("%s.vocab_size", c["vocab"])
    file.add("%s.context_length", c["ctx"])
    file.add("%s.embedding_length", c["n_embd"])
    file.add("%s.block_count", c["n_layer"])
    file.add("%s.feed_forward_length", [c["n_ff"]] * c["n_layer"])
    file.add("%s.attention.head_count", c["n_head"])
    file.add("%s.attention.head_count_kv", c["n_kv"])
    file.add("%s.attention.key_length", c["head_dim"])
    file.add("%s.attention.value_length", c["head_dim"])
    file.add("%s.attention.layer_norm_rms_epsilon", float(c["eps"]))
    file.add("%s.attention.sliding_window", c["window"])
    file.add("%s.attention.sliding_window_pattern", windowed_layers(c))
    file.add("%s.attention.shared_kv_layers", c["n_layer"] - WITH_KV)
    file.add("%s.rope.freq_base", c["rope_base"])
    file.add("%s.rope.freq_base_swa", 10000.0)
    file.add("%s.rope.dimension_count", c["head_dim"])
    file.add("%s.embedding_length_per_layer_input", EXTRA)
    file.add("%s.altup.active_idx", 0)
    file.add("%s.altup.num_inputs", STREAMS)


def add_tensors(file: GgufFile, c: Settings) -> None:
    width, layers, head, n_ff = c["n_embd"], c["n_layer"], c["head_dim"], c["n_ff"]
    std = 3.2 / width  # the embeddings are scaled by sqrt(width)
    file.matrix("token_embd.weight", c["vocab"], width, std=std)
    file.norm("output_norm", width, mean=c["logit_std"] / (std * np.sqrt(width)))
    for name in ("altup_proj", "altup_unembd_proj"):
        file.matrix(name + ".weight", STREAMS - 1, width, width)
    file.matrix("per_layer_token_embd.weight", c["vocab"], EXTRA * layers, std=EXTRA**-0.5)
    file.kinds["per_layer_token_embd.weight"] = "TQ1_0"
    file.matrix("per_layer_model_proj.weight", EXTRA * layers, width, std=1.0)
    file.norm("per_layer_proj_norm", EXTRA)
    for i in range(layers):
        prefix = f"blk.{i}."
        file.norm(prefix + "attn_norm", width, mean=0.4)
        file.matrix(prefix + "attn_q.weight", c["n_head"] * head, width)
        file.matrix(prefix + "attn_k.weight", c["n_kv"] * head, width)
        file.matrix(prefix + "attn_v.weight", c["n_kv"] * head, width)
        file.matrix(prefix + "attn_output.weight", width, c["n_head"] * head)
        file.norm(prefix + "attn_q_norm", head, mean=0.6)
        file.norm(prefix + "attn_k_norm", head, mean=0.6)
        file.norm(prefix + "post_attention_norm", width, mean=0.15)
        file.norm(prefix + "ffn_norm", width)
        file.matrix(prefix + "ffn_gate.weight", n_ff, width)
        file.matrix(prefix + "ffn_up.weight", n_ff, width)
        file.matrix(prefix + "ffn_down.weight", width, n_ff)
        file.norm(prefix + "post_ffw_norm", width, mean=0.15)
        file.matrix(prefix + "inp_gate.weight", EXTRA, width)
        file.matrix(prefix + "proj.weight", width, EXTRA)
        file.norm(prefix + "post_norm", width, mean=0.15)
        file.matrix(prefix + "laurel_l.weight", RANK, width)
        file.matrix(prefix + "laurel_r.weight", width, RANK)
        file.norm(prefix + "laurel_post_norm", width, mean=0.15)
        # The router's input is divided by the width: these norms make up for it.
        file.norm(prefix + "altup_router_norm", width, mean=float(width))
        file.matrix(prefix + "altup_router.weight", STREAMS, width)
        file.matrix(prefix + "altup_predict_coef.weight", STREAMS * STREAMS, STREAMS, std=0.08, float32=True)
        file.matrix(prefix + "altup_correct_coef.weight", STREAMS, STREAMS, std=0.2, float32=True)
        file.vector(prefix + "altup_correct_scale.weight", width, mean=1.0)
