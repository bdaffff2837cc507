"""Presets of diffusion models, which fill in mask tokens: two shapes of each architecture.

`shift`: the logits of a position are of the token after it; llama.cpp's default is true.
"""

from typing import Any

SMALL: dict[str, Any] = {"n_embd": 80, "n_head": 4, "head_dim": 20, "n_ff": 104, "vocab": 304, "masked": True}
EXPERTS: dict[str, Any] = {"n_ff": 40, "n_ff_dense": 104, "n_expert": 6, "n_used": 2}

DIFFUSION: dict[str, dict[str, Any]] = {
    "dream": {"arch": "dream", **SMALL, "rope_base": 1e6, "eps": 1e-6},
    "dream-tied": {
        "arch": "dream",
        **SMALL,
        **{"n_embd": 96, "n_head": 6, "n_kv": 3, "head_dim": 16, "n_layer": 3, "tied": True, "shift": True},
    },
    "llada": {"arch": "llada", **SMALL, "n_kv": 4, "rope_base": 500000.0, "shift": False},
    "llada-tied": {
        "arch": "llada",
        **SMALL,
        **{"n_embd": 96, "n_head": 3, "n_kv": 1, "head_dim": 32, "n_layer": 3, "tied": True, "shift": False},
    },
    "llada-moe": {"arch": "llada-moe", **SMALL, **EXPERTS, "n_kv": 4, "rope_base": 50000.0, "shift": False},
    "llada-moe-grouped": {
        "arch": "llada-moe",
        **SMALL,
        **EXPERTS,
        **{"n_embd": 96, "n_head": 6, "head_dim": 16, "n_layer": 3, "n_expert": 8, "n_used": 3, "shift": False},
    },
    "rnd1": {"arch": "rnd1", **SMALL, **EXPERTS, "head_dim": 24, "rope_base": 1e6, "eps": 1e-6},
    "rnd1-unshifted": {
        "arch": "rnd1",
        **SMALL,
        **EXPERTS,
        **{"n_embd": 64, "n_head": 4, "n_kv": 4, "head_dim": 16, "n_expert": 5, "n_used": 3, "shift": False},
    },
}
