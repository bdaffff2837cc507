"""Presets of latent attention (MLA): heads project their keys and values from a latent; one rotated key serves all.

`q_rank` and `kv_rank` are the ranks of the projections, `nope` the dimensions of a head that are not rotated,
`rope_dim` the rotated ones, `v_dim` those of a value. `split`: keys and values have matrices of their own, as in
newer files.
"""

from typing import Any

LATENT_ATTENTION: dict[str, Any] = {
    **{"arch": "deepseek2", "n_embd": 80, "n_head": 5, "n_kv": 1, "vocab": 304, "eps": 1e-6},
    **{"kv_rank": 36, "nope": 20, "rope_dim": 12, "v_dim": 16, "split": True},
    **{"lead": 1, "n_ff_dense": 104, "n_ff": 40, "n_ff_shexp": 40, "n_shared": 1, "n_expert": 6, "n_used": 2},
}
DENSE_LATENT: dict[str, Any] = {
    **{"n_embd": 80, "n_head": 5, "n_kv": 5, "vocab": 304, "n_ff": 104, "ctx": 4096},
    **{"kv_rank": 36, "nope": 20, "rope_dim": 12, "v_dim": 16, "split": False},
}
# llama.cpp takes a file of 26 layers for one without a low rank of queries; most are dense to keep it small.
LITE = LATENT_ATTENTION | {
    **{"n_layer": 26, "lead": 24, "n_embd": 40, "n_head": 3, "kv_rank": 20, "nope": 12, "rope_dim": 8, "v_dim": 8},
    **{"n_ff_dense": 24, "n_ff": 16, "n_ff_shexp": 16, "n_expert": 4},
}

LATENT: dict[str, dict[str, Any]] = {
    "deepseek2": {
        **LATENT_ATTENTION,
        **{"q_rank": 44, "rope": "yarn", "ctx": 512, "yarn_log_multiplier": 0.1},
        **{"n_expert": 12, "n_used": 3, "groups": 4, "groups_used": 2},
        **{"gating": 2, "weights_norm": True, "weights_scale": 2.5, "probs_bias": True},
    },
    "mistral4": {
        **LATENT_ATTENTION,
        **{"arch": "mistral4", "q_rank": 44, "weights_norm": True, "weights_scale": 1.0},
        **{"rope": "yarn", "ctx": 512, "yarn_log_multiplier": 0.1},
    },
    "plm": {**DENSE_LATENT, "arch": "plm", "tied": True},
    "minicpm3": {**DENSE_LATENT, "arch": "minicpm3", "q_rank": 44, "tied": True, "rope": "longrope", "orig_ctx": 64},
    # Kimi's gated delta nets, with heads of `kda_dim`, are in layers without key/value heads. Attention is not rotated.
    "kimi-linear": {
        **LATENT_ATTENTION,
        **{
            "arch": "kimi-linear",
            "n_layer": 3,
            "lead": 2,
            "kv_arr": [0, 1, 0],
            "kda_dim": 24,
            "d_conv": 4,
            "n_head": 4,
        },
        **{"gating": 2, "weights_scale": 2.4, "probs_bias": True, "n_ff_dense": 64},
    },
    # The decays have a lower bound, `kda_bound`. Each head of attention has a gate.
    "bailingmoe3": {
        **LATENT_ATTENTION,
        **{"arch": "bailingmoe3", "n_embd": 64, "n_layer": 3, "kv_arr": [0, 1, 0], "kda_dim": 20, "d_conv": 4},
        **{"kda_bound": -5.0, "n_head": 3, "kv_rank": 28, "n_ff": 24, "n_ff_dense": 64, "n_ff_shexp": 24},
        **{"gating": 2, "weights_norm": True, "weights_scale": 2.4, "probs_bias": True},
        **{"clamp_exp": [0.0, 0.4, 0.0], "clamp_shexp": [0.5, 0.0, 0.3]},
    },
    "bailingmoe3-ranked": {
        **LATENT_ATTENTION,
        **{"arch": "bailingmoe3", "n_embd": 48, "kv_arr": [1, 0], "kda_dim": 32, "d_conv": 3, "q_rank": 28},
        **{"kda_bound": -0.7, "n_head": 2, "kv_rank": 20, "nope": 12, "rope_dim": 8, "v_dim": 24, "n_expert": 4},
        **{"n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 24, "gating": 1, "probs_bias": True, "tied": True},
        **{"rope": "yarn", "ctx": 512},
    },
    # Layers with a window have other dimensions (`swa`). The rotated key has a norm; each head has a gate.
    "dots3note": {
        **LATENT_ATTENTION,
        **{"arch": "dots3note", "n_embd": 48, "n_layer": 3, "head_arr": [2, 3, 2], "n_head": 3, "q_rank": 28},
        **{"kv_rank": 28, "nope": 12, "rope_dim": 8, "v_dim": 16, "swa": {"kv_rank": 20, "nope": 20, "v_dim": 12}},
        **{"index": (2, 64, 256), "window": 9, "pattern": [False, True, True], "rope_base": 1e6, "rope_base_swa": 1e4},
        **{"gating": 2, "weights_norm": True, "weights_scale": 2.0, "probs_bias": True, "n_expert": 4},
        **{"n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 24},
    },
    "dots3note-yarn": {
        **LATENT_ATTENTION,
        **{"arch": "dots3note", "n_embd": 40, "n_head": 2, "q_rank": 20, "lead": 2, "n_ff_dense": 40, "n_expert": 4},
        **{"kv_rank": 24, "nope": 8, "rope_dim": 12, "v_dim": 8, "swa": {"kv_rank": 36, "nope": 12, "v_dim": 20}},
        **{"index": (3, 64, 256), "window": 5, "pattern": [True, False], "rope_base_swa": 500.0, "gating": 1},
        **{"rope": "yarn", "ctx": 512, "tied": True, "n_ff": 24, "n_ff_shexp": 24, "n_layer": 2, "probs_bias": True},
    },
    # `index`: heads, dimensions of a head and chosen positions of the index, which chooses all of a short context.
    "glm-dsa": {
        **LATENT_ATTENTION,
        **{"arch": "glm-dsa", "q_rank": 44, "index": (3, 64, 256), "rope_base": 1e6},
        **{"weights_norm": True, "weights_scale": 2.5, "probs_bias": True},
    },
    "glm-dsa-dense": {
        **LATENT_ATTENTION,
        **{
            "arch": "glm-dsa",
            "q_rank": 28,
            "index": (2, 128, 256),
            "n_layer": 3,
            "lead": 2,
            "n_head": 3,
            "n_expert": 5,
        },
        **{"kv_rank": 28, "nope": 12, "rope_dim": 8, "v_dim": 20, "gating": 1},
    },
    "deepseek32": {
        **LATENT_ATTENTION,
        **{"arch": "deepseek32", "q_rank": 36, "index": (3, 64, 256), "n_embd": 64, "n_head": 3, "n_expert": 5},
        **{"rope": "yarn", "ctx": 512, "yarn_log_multiplier": 0.07, "n_ff_dense": 64, "n_ff": 24, "n_ff_shexp": 24},
        **{"gating": 2, "weights_norm": True, "weights_scale": 2.5, "probs_bias": True},
    },
    "deepseek32-dense": {
        **LATENT_ATTENTION,
        **{"arch": "deepseek32", "q_rank": 28, "index": (2, 128, 256), "n_layer": 3, "lead": 2, "n_embd": 48},
        **{"n_head": 2, "n_expert": 4, "kv_rank": 28, "nope": 12, "rope_dim": 8, "v_dim": 20, "gating": 1},
        **{"n_ff_dense": 40, "n_ff": 24, "n_ff_shexp": 24},
    },
    # `streams`: how many, the epsilon of their weights, and the factor of what is added to them.
    "hy_v4": {
        **LATENT_ATTENTION,
        **{"arch": "hy_v4", "n_embd": 48, "n_layer": 3, "n_head": 3, "q_rank": 28, "streams": (4, 0.05, 1.6)},
        **{"kv_rank": 28, "nope": 12, "rope_dim": 8, "v_dim": 16, "n_expert": 5, "clamp_exp": [0.0, 0.4, 0.5]},
        **{"gating": 2, "weights_norm": True, "weights_scale": 2.0, "probs_bias": True, "rope_base": 1e6},
        **{"n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 24},
    },
    "hy_v4-index": {
        **LATENT_ATTENTION,
        **{"arch": "hy_v4", "n_embd": 40, "n_head": 2, "q_rank": 20, "streams": (3, 0.2, 0.8), "index": (2, 64, 256)},
        **{"kv_rank": 20, "nope": 8, "rope_dim": 12, "v_dim": 24, "lead": 0, "n_expert": 4, "gating": 1},
        **{"rope": "yarn", "ctx": 512, "n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 48, "n_shared": 2},
    },
    # `res_block`: layers between stored residual streams. `situ`: the two bounds of its activation; 0: none.
    # `routed`: columns of the experts.
    "kimi-k3": {
        **LATENT_ATTENTION,
        **{"arch": "kimi-k3", "n_embd": 48, "n_layer": 3, "kv_arr": [0, 1, 0], "kda_dim": 20, "kda_bound": -5.0},
        **{"d_conv": 4, "n_head": 3, "q_rank": 28, "kv_rank": 28, "nope": 12, "rope_dim": 8, "v_dim": 16},
        **{"res_block": 2, "situ": (1.5, 2.5), "routed": 36, "n_expert": 5, "n_ff": 24, "n_ff_dense": 40},
        **{"n_ff_shexp": 24, "gating": 2, "weights_norm": True, "weights_scale": 2.0, "probs_bias": True},
    },
    "kimi-k3-plain": {
        **LATENT_ATTENTION,
        **{"arch": "kimi-k3", "n_embd": 40, "n_layer": 3, "kv_arr": [1, 0, 1], "kda_dim": 16, "d_conv": 3},
        **{"n_head": 2, "kv_rank": 20, "nope": 8, "rope_dim": 12, "v_dim": 24, "res_block": 3},
        **{"situ": (0.8, 0.0), "n_expert": 4, "n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 48, "n_shared": 2},
        **{"gating": 1, "probs_bias": True},
    },
    # `mixed`: residual streams that layers mix, rounds of the normalisation of their weights, and an epsilon. `pooled`:
    # keys that the index joins. `sharing`: layers that use the index of the layer before (0).
    "glm5-next": {
        **LATENT_ATTENTION,
        **{"arch": "glm5-next", "n_embd": 48, "n_layer": 4, "kv_arr": [0, 1, 0, 1], "kda_dim": 20, "kda_bound": -5.0},
        **{"d_conv": 4, "n_head": 3, "q_rank": 28, "kv_rank": 28, "nope": 16, "rope_dim": 0, "v_dim": 12, "eps": 1e-5},
        **{"mixed": (4, 3, 1e-3), "index": (2, 64, 256), "pooled": 4, "n_expert": 5, "n_ff": 24, "n_ff_dense": 40},
        **{"n_ff_shexp": 24, "gating": 2, "weights_norm": True, "weights_scale": 2.0, "probs_bias": True},
        **{"clamp_exp": [0.0, 0.6, 0.0, 0.4], "clamp_shexp": [0.3, 0.0, 0.5, 0.4]},
    },
    "glm5-next-shared": {
        **LATENT_ATTENTION,
        **{"arch": "glm5-next", "n_embd": 40, "n_layer": 3, "kv_arr": [1, 0, 1], "kda_dim": 16, "d_conv": 3},
        **{"n_head": 2, "q_rank": 20, "kv_rank": 20, "nope": 24, "rope_dim": 0, "v_dim": 20, "lead": 0},
        **{"mixed": (4, 1, 1e-6), "index": (3, 64, 256), "pooled": 2, "sharing": [1, 1, 0], "n_expert": 4},
        **{"n_ff": 24, "n_ff_dense": 40, "n_ff_shexp": 48, "n_shared": 2, "clamp_exp": [0.5, 0.5, 0.5]},
        **{"probs_bias": True},
    },
    "deepseek2-lite": {**LITE, "weights_scale": 1.0},
    "deepseek2-joined": {
        **LITE,
        **{"n_kv": 3, "split": False, "weights_scale": 1.0},
        **{"rope": "yarn", "ctx": 512, "yarn_log_multiplier": 0.0707},
    },
}
