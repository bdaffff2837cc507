"""Presets of RWKV: heads of `head_size` columns; `ranks` of the low-rank products of decay, rate, values and gate.

`mix_rank`: of RWKV-6's mixtures with the token before. The gate is left out where its rank is 0. llama.cpp b11549
computes RWKV-7 wrongly with heads of fewer than 32 columns, on processors with AVX-512.
"""

from typing import Any

SMALL: dict[str, Any] = {"n_embd": 64, "vocab": 304, "n_layer": 2, "head_size": 32, "n_ff": 136, "shifts": 2}
QWEN: dict[str, Any] = {"shifts": 1, "n_ff": 96}

RWKV: dict[str, dict[str, Any]] = {
    "rwkv7": {**SMALL, "arch": "rwkv7", "ranks": {"decay": 12, "iclr": 20, "value": 8, "gate": 24}},
    "arwkv7": {
        **{**SMALL, **QWEN, "arch": "arwkv7"},
        "ranks": {"decay": 12, "iclr": 8, "value": 8, "gate": 0},
    },
    "rwkv6": {**SMALL, "arch": "rwkv6", "mix_rank": 12, "decay_rank": 20, "rescale": 1, "head_size": 16},
    "rwkv6qwen2": {**SMALL, **QWEN, "arch": "rwkv6qwen2", "head_size": 16, "mix_rank": 8, "decay_rank": 20},
}
