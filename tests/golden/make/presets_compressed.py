"""Presets of attention to compressed keys (DeepSeek V4).

`ratios`: the positions that each layer's keys compress; 0: none. `hash_layers`: the first layers, which choose experts
by the token. `index`: heads, dimensions of a head and chosen keys of the index, which chooses all of a short context.
`mixed`: residual streams, rounds of the normalisation of their weights, and an epsilon. `out`: groups of heads that
have a matrix of their own, and the rank of its result. `small_terms`: what is added to scores has the file's type, as
where llama-quantize has made the file.
"""

from typing import Any

COMPRESSED: dict[str, dict[str, Any]] = {
    "deepseek4": {
        **{"arch": "deepseek4", "n_embd": 48, "n_layer": 4, "n_head": 4, "n_kv": 1, "head_dim": 40, "rope_dim": 12},
        **{
            "vocab": 304,
            "eps": 1e-5,
            "q_rank": 28,
            "ratios": [0, 4, 128, 4],
            "compress_base": 160000.0,
            "out": (2, 20),
        },
        **{"window": 9, "index": (2, 64, 256), "mixed": (4, 3, 1e-3), "hash_layers": 1, "n_expert": 6, "n_used": 2},
        **{"n_ff": 24, "n_ff_shexp": 24, "n_shared": 1, "gating": 4, "weights_norm": True, "weights_scale": 1.5},
        **{"clamp_exp": [0.0, 0.6, 0.5, 0.4], "clamp_shexp": [0.3, 0.0, 0.5, 0.4]},
    },
    "deepseek4-yarn": {
        **{"arch": "deepseek4", "n_embd": 40, "n_layer": 3, "n_head": 3, "n_kv": 1, "head_dim": 64, "rope_dim": 16},
        **{"vocab": 304, "eps": 1e-6, "q_rank": 20, "ratios": [128, 4, 0], "compress_base": 40000.0, "out": (3, 12)},
        **{"window": 6, "index": (2, 128, 256), "mixed": (4, 1, 1e-6), "hash_layers": 0, "n_expert": 4, "n_used": 3},
        **{"n_ff": 24, "n_ff_shexp": 48, "n_shared": 2, "gating": 4, "weights_norm": False, "weights_scale": 1.0},
        **{"clamp_exp": [0.5, 0.5, 0.5], "rope": "yarn", "ctx": 1024},
    },
}
