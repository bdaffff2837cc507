"""Presets of mixtures of experts: leading dense layers, shared experts, routing by sigmoids, biases and groups.

`n_ff` is an expert's width, `n_ff_dense` a dense layer's, `lead` the number of leading dense layers, `gating` 1 softmax
or 2 sigmoid.
"""

from typing import Any

SMALL: dict[str, Any] = {"n_embd": 80, "head_dim": 24, "n_ff": 40, "vocab": 304, "n_expert": 6, "n_used": 2}
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
    "grovemoe": {
        "arch": "grovemoe",
        **SMALL,
        **{"n_ff_dense": 104, "n_used": 3, "experts_per_group": 2, "n_ff_chunk": 24, "group_scale": 0.6},
    },
    "dbrx": {"arch": "dbrx", **SQUARE, "n_ff_dense": 40, "clamp_kqv": 1.5},
}
