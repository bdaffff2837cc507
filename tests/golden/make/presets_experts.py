"""Presets of mixtures of experts: leading dense layers, shared experts, routing by sigmoids, biases and groups.

`n_ff` is an expert's width, `n_ff_dense` a dense layer's, `lead` the number of leading dense layers; the last of `step`
layers has experts. `gating` is 1 for softmax, 2 for sigmoid.
"""

from typing import Any

SMALL: dict[str, Any] = {"n_embd": 80, "head_dim": 24, "n_ff": 40, "vocab": 304, "n_expert": 6, "n_used": 2}
SLIM = SMALL | {"n_embd": 48, "head_dim": 16, "n_ff": 24, "n_expert": 5}
SQUARE = SMALL | {"head_dim": 20}
LED = {"lead": 1, "n_ff_dense": 104, "n_ff_shexp": 40, "n_shared": 1}
SIGMOID = {"gating": 2, "weights_norm": True, "weights_scale": 1.7, "probs_bias": True}

EXPERTS: dict[str, dict[str, Any]] = {
    "ernie4_5-moe": {"arch": "ernie4_5-moe", **SMALL, **LED, "step": 1, "probs_bias": True, "tied": True},
    "bailingmoe": {
        "arch": "bailingmoe",
        **SQUARE,
        **{"n_ff_dense": 104, "n_ff_shexp": 80, "n_shared": 2, "weights_norm": True, "weights_scale": 1.3},
    },
    "bailingmoe2": {
        "arch": "bailingmoe2",
        **SQUARE,
        **LED,
        **SIGMOID,
        **{"n_expert": 12, "groups": 4, "groups_used": 2, "n_used": 3, "rope_dim": 12},
    },
    "deepseek": {"arch": "deepseek", **SQUARE, **LED, "weights_scale": 1.0},
    "phimoe": {
        "arch": "phimoe",
        **SQUARE,
        **{"n_ff_dense": 40, "tok": "spm", "rope": "longrope", "orig_ctx": 64, "ctx": 4096, "attn_bias": True},
    },
    "lfm2moe": {
        "arch": "lfm2moe",
        **SQUARE,
        **{"n_layer": 4, "lead": 2, "n_ff_dense": 104, "gating": 2, "probs_bias": True, "tied": True, "l_cache": 3},
    },
    "qwen3vlmoe": {"arch": "qwen3vlmoe", **SMALL, "rope_base": 5e6, "sections": [4, 4, 4, 0], "n_ff_dense": 104},
    "glm4moe": {"arch": "glm4moe", **SMALL, **LED, **SIGMOID, "qkv_bias": True, "qk_norm": True, "rope_dim": 12},
    "dots1": {"arch": "dots1", **SMALL, "n_kv": 4, **LED, **SIGMOID},
    "hunyuan-moe": {"arch": "hunyuan-moe", **SMALL, "n_ff_dense": 40, "n_ff_shexp": 104, "tied": True},
    "minimax-m2": {
        "arch": "minimax-m2",
        **SMALL,
        **{"n_ff_dense": 40, "gating": 2, "probs_bias": True, "rope_dim": 12},
    },
    "exaone-moe": {"arch": "exaone-moe", **SMALL, **LED, **SIGMOID, "n_layer": 4, "window": 16},
    "afmoe": {"arch": "afmoe", **SMALL, **LED, **SIGMOID, "n_layer": 4, "window": 16},
    "smallthinker": {
        "arch": "smallthinker",
        **SMALL,
        **{"n_layer": 5, "window": 4096, "n_ff_dense": 40, "gating": 2},
    },
    "llama4": {
        "arch": "llama4",
        **SMALL,
        **{"n_layer": 4, "n_ff_dense": 104, "n_ff_shexp": 40, "step": 2, "rope": "llama3", "rope_base": 500000.0},
    },
    "arctic": {
        "arch": "arctic",
        **SQUARE,
        "ff_key": 40,
        "n_ff_dense": 80,
    },  # beside a dense network as wide as the model
    # The first one's files have no scales, which readers must know. The second has a dense network beside the experts.
    "grok": {
        "arch": "grok",
        **SQUARE,
        **{"ff_key": 40, "embedding_scale": 78.38367176906169, "logit_scale": 0.5773502691896257},
        "omit": ["embedding_scale", "logit_scale", "expert_feed_forward_length"],
    },
    "grok-2": {
        "arch": "grok",
        **SQUARE,
        **{"ff_key": 104, "n_ff_dense": 104, "embedding_scale": 6.0, "logit_scale": 0.8, "attn_out_scale": 0.3},
        **{"attn_cap": 5.0, "final_cap": 9.0, "rope": "yarn", "ctx": 512},
    },
    # `value_dim`: dimensions of a value head. Layers with a window have other key/value heads than those without.
    "mimo2": {
        "arch": "mimo2",
        **SMALL,
        **{"n_layer": 4, "value_dim": 16, "kv_arr": [1, 2, 2, 1], "pattern": [False, True, True, False], "window": 9},
        **{"rope_dim": 8, "rope_base": 1e6, "rope_base_swa": 10000.0, "value_scale": 0.7, "lead": 2},
        **{"n_ff_dense": 104, "probs_bias": True},
    },
    # `clamp_exp` and `clamp_shexp`: limits of the experts' hidden layers, and of the other networks'; 0: none. Layers
    # without a window rotate half of the dimensions.
    "step35": {
        "arch": "step35",
        **SMALL,
        **{**LED, **SIGMOID, "omit": ["expert_gating_func"], "n_layer": 3, "rope": "llama3", "rope_base": 500000.0},
        **{"head_arr": [4, 6, 4], "kv_arr": [2, 3, 1], "pattern": [False, True, False], "window": 9},
        **{"rope_dim": 24, "rope_base_swa": 10000.0, "clamp_exp": [0.0, 0.4, 0.0], "clamp_shexp": [0.5, 0.3, 0.0]},
    },
    "grovemoe": {
        "arch": "grovemoe",
        **SMALL,
        **{"n_ff_dense": 104, "n_used": 3, "experts_per_group": 2, "n_ff_chunk": 24, "group_scale": 0.6},
    },
    # Layers with a window are not scaled.
    "mellum": {
        "arch": "mellum",
        **SLIM,
        "n_layer": 4,
        "window": 9,
        "n_ff_dense": 40,
        "rope": "yarn",
        "ctx": 512,
        "attn_factor": 1.2,
    },
    # Experts beside attention. Layers with a window and the dense ones rotate. `layer_norm`: in place of RMS norms.
    "cohere2moe": {
        "arch": "cohere2moe",
        **SLIM,
        **{"n_layer": 5, "window": 9, "pattern": 3, "lead": 1, "n_ff_dense": 64, "n_ff_shexp": 40, "n_shared": 1},
        **{"weights_norm": True, "weights_scale": 1.3, "logit_scale": 0.25, "layer_norm": True},
    },
    "cohere2moe-rms": {
        "arch": "cohere2moe",
        **SLIM,
        **{"n_layer": 3, "window": 5, "pattern": [True, False, True], "lead": 0, "n_ff_dense": 24, "gating": 1},
        **{"n_head": 3, "n_kv": 1, "n_used": 3, "logit_scale": 0.5, "tied": True},
    },
    # Gates of attention by softplus, of each head or of each value. The first layer of a period has no window.
    "laguna": {
        "arch": "laguna",
        **SLIM,
        **{**LED, **SIGMOID, "n_layer": 5, "window": 9, "head_arr": [4, 6, 6, 6, 4], "n_ff_dense": 64, "rope": "yarn"},
        **{"rope_dim": 8, "rope_dim_swa": 16, "rope_base": 500000.0, "rope_base_swa": 1e4, "ctx": 512},
        **{"attn_factor": 1.2, "omit": ["expert_gating_func"]},
    },
    "laguna-whole": {
        "arch": "laguna",
        **SLIM,
        **{**LED, "n_layer": 3, "n_ff_dense": 64, "gating": 2, "weights_norm": False, "weights_scale": 2.0},
        **{"probs_bias": True, "tied": True, "value_gates": True},
    },
    # Norms of each of `norm_groups` parts of a row; norms of queries and keys with weights of each head; gates.
    "k2-horizon": {
        "arch": "k2-horizon",
        **SLIM,
        **{"n_embd": 64, "n_expert": 0, "n_ff": 72, "norm_groups": 2, "rope": "yarn", "ctx": 512, "beta_fast": 8.0},
    },
    "k2-horizon-moe": {
        "arch": "k2-horizon",
        **SLIM,
        **{**LED, **SIGMOID, "n_layer": 3, "n_ff_dense": 64, "n_ff_shexp": 24, "tied": True, "n_kv": 1},
    },
    "hy_v3": {"arch": "hy_v3", **SLIM, **LED, **SIGMOID, "n_layer": 3, "n_ff_dense": 64, "rope_base": 1e6},
    "hy_v3-tied": {  # the gating is known without metadata
        "arch": "hy_v3",
        **SLIM,
        **{"n_used": 3, "n_head": 3, "n_kv": 1, "n_ff_shexp": 40, "probs_bias": True, "tied": True},
    },
    # Only layers with a window rotate.
    "maple": {
        "arch": "maple",
        **SLIM,
        **{"n_layer": 4, "window": 9, "pattern": [True, True, False, True], "n_ff_dense": 40, "rope_base": 1e6},
        **{"rope_base_swa": 10000.0, "clamp_exp": [0.5, 0.0, 0.4, 0.8]},
    },
    "maple-narrow": {
        "arch": "maple",
        **SLIM,
        **{"window": 5, "pattern": [False, True], "n_head": 3, "n_kv": 1, "n_ff_dense": 40, "rope_dim": 12},
        **{"rope": "linear", "clamp_exp": 0.6},
    },
    "mellum-whole": {"arch": "mellum", **SLIM, "n_used": 3, "n_head": 6, "n_kv": 3, "n_ff_dense": 40},
    # States in most layers, which decay at fixed rates. Only half of the dimensions rotate.
    "minimax-01": {
        "arch": "minimax-01",
        **SLIM,
        **{"n_layer": 4, "n_ff_dense": 24, "residual_scale": 1.7, "rope_dim": 8, "rope_base": 1e6, "linear_every": 3},
    },
    "minimax-01-last": {
        "arch": "minimax-01",
        **SLIM,
        **{"n_layer": 2, "n_head": 3, "n_kv": 1, "head_dim": 20, "n_ff_dense": 24, "residual_scale": 0.6, "tied": True},
        **{"linear_every": 2, "n_expert": 4},
    },
    # `sparse`: heads, dimensions of a head, chosen blocks, their positions and local blocks of the index, which chooses
    # all of a short context. `expert_gain` takes gates beyond their limits.
    "minimax-m3": {
        "arch": "minimax-m3",
        **SLIM,
        **{**LED, **SIGMOID, "n_layer": 3, "n_ff_dense": 64, "rope_dim": 8, "rope_base": 5e6},
        **{"sparse": (2, 16, 4, 64, 1), "n_shared": 2, "n_ff_shexp": 48},
    },
    "minimax-m3-wide": {
        "arch": "minimax-m3",
        **SLIM,
        **{**LED, "lead": 0, "n_head": 3, "n_kv": 1, "head_dim": 20, "n_ff_dense": 40, "n_ff": 20, "n_ff_shexp": 20},
        **{"sparse": (1, 32, 2, 128, 1), "gating": 1, "weights_norm": False, "probs_bias": True, "expert_gain": 6.0},
    },
    # `streams`, `ngrams`: random_qwen4.py.
    # `index`: heads, dimensions of a head and chosen positions of the index, which chooses
    # all of a short context; `ratios`: positions of a block that it chooses; 0: the layer has no index.
    "qwen4exp": {
        "arch": "qwen4exp",
        **SLIM,
        **{"n_layer": 3, "attention_every": 3, "rope_dim": 8, "sections": [2, 1, 1, 0], "eps": 1e-6, "n_kv": 2},
        **{"d_conv": 4, "d_inner": 72, "d_state": 12, "ssm_heads": 6, "ssm_groups": 2, "n_ff_shexp": 40},
        **{"streams": (3, 12), "index": (2, 8, 256), "ratios": [0, 0, 4], "ngrams": (1, 3, 2, 4, 51, 290)},
    },
    "qwen4exp-long": {
        "arch": "qwen4exp",
        **SLIM,
        **{"n_embd": 36, "n_layer": 2, "attention_every": 2, "head_dim": 20, "n_head": 2, "n_kv": 1, "tied": True},
        **{"sections": [4, 3, 3, 0], "d_conv": 3, "d_inner": 60, "d_state": 20, "ssm_heads": 3, "ssm_groups": 3},
        **{"n_expert": 4, "n_ff": 20, "n_ff_shexp": 24, "eps": 1e-5},
        **{"streams": (2, 20), "index": (1, 20, 256), "ratios": [2, 2], "ngrams": (0, 4, 1, 3, 178, None)},
    },
    "qwen4exp-plain": {
        "arch": "qwen4exp",
        **SLIM,
        **{"n_embd": 40, "n_layer": 2, "attention_every": 2, "head_dim": 12, "n_head": 3, "n_kv": 3, "n_used": 3},
        **{"rope_dim": 8, "sections": [2, 1, 1, 0], "d_conv": 4, "d_inner": 32, "d_state": 16, "ssm_heads": 2},
        **{"ssm_groups": 1, "n_ff_shexp": 56, "streams": (4, 8), "index": (1, 8, 64)},
    },
    "deepseek2-ocr": {
        "arch": "deepseek2-ocr",
        **SQUARE,
        **{**LED, "n_layer": 2, "n_kv": 4, "n_ff": 24, "n_ff_dense": 64, "n_expert": 5, "n_ff_shexp": 24},
    },
    "deepseek2-ocr-scaled": {
        "arch": "deepseek2-ocr",
        **SQUARE,
        **{**LED, **SIGMOID, "n_embd": 48, "n_head": 3, "n_kv": 3, "head_dim": 16, "n_ff": 24, "n_ff_dense": 40},
        **{"n_ff_shexp": 24, "tied": True},
    },
    "dbrx": {"arch": "dbrx", **SQUARE, "n_ff_dense": 40, "clamp_kqv": 1.5},
}
