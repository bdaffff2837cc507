"""Presets of dense architectures near llama and GPT-2: the settings that distinguish them, small and uneven.

`q_dim` different from `n_embd`, fewer key/value heads and biases expose mistakes that a regular shape would hide.
"""

from typing import Any

SMALL = {"n_embd": 80, "head_dim": 24, "n_ff": 104, "vocab": 304}  # 4 heads of 24 are not 80
SLIM = {"n_embd": 48, "head_dim": 16, "n_ff": 64, "vocab": 304}
SQUARE = {"n_embd": 80, "head_dim": 20, "n_ff": 104, "vocab": 304}  # for architectures whose heads fill n_embd
TINY = {"n_embd": 32, "n_head": 2, "n_kv": 2, "head_dim": 16, "n_ff": 32, "vocab": 304}
PICTURES = {
    **{"n_embd": 32, "n_head": 2, "n_kv": 1, "head_dim": 16, "n_ff": 48, "vocab": 8224, "tied": True},
    "kinds": {"token_embd.weight": "Q4_0"},
}

DENSE: dict[str, dict[str, Any]] = {
    # Attention and network; a matrix in place of attention; a network alone; nothing; other heads.
    "deci": {
        "arch": "deci",
        **SMALL,
        **{"n_layer": 5, "head_arr": [4, 4, 0, 0, 2], "kv_arr": [2, 0, 0, 0, 1], "ff_arr": [104, 64, 40, 0, 80]},
    },
    # llama.cpp tells Baichuan's models by the number of their layers: 7B rotates, 13B has ALiBi. So many narrow layers
    # amplify float16's rounding: the logits spread less.
    "baichuan": {"arch": "baichuan", **TINY, "n_layer": 32, "logit_std": 1.5},
    "baichuan-13b": {"arch": "baichuan", **TINY, "n_layer": 40, "logit_std": 1.5},
    "ernie4_5": {"arch": "ernie4_5", **SMALL, "tied": True, "qkv_bias": True, "rope_base": 500000.0},
    "internlm2": {"arch": "internlm2", **SQUARE, "rope_base": 1e6},
    "xverse": {"arch": "xverse", **SQUARE, "eps": 1e-6},
    "mistral3": {"arch": "mistral3", **SMALL, "rope": "yarn", "ctx": 512, "rope_base": 1e6},
    "minicpm": {"arch": "minicpm", **SQUARE, "n_layer": 3, "tied": True},  # the scales are the readers' defaults
    "chatglm": {"arch": "chatglm", **SQUARE, "qkv_bias": True, "rope_dim": 12},
    "qwen": {"arch": "qwen", **SQUARE, "n_kv": 4, "qkv_bias": True, "ff_key": 208, "eps": 1e-6},
    "seed_oss": {"arch": "seed_oss", **SMALL, "qkv_bias": True, "rope_base": 1e7, "eps": 1e-6},
    "exaone4": {"arch": "exaone4", **SQUARE, "tied": True, "rope_base": 1e6, "rope": "llama3"},
    "paddleocr": {"arch": "paddleocr", **SQUARE, "rope_base": 5e5, "sections": [4, 3, 3, 0], "eps": 1e-6},
    "qwen2vl": {"arch": "qwen2vl", **SQUARE, "rope_base": 1e6, "sections": [4, 3, 3, 0], "eps": 1e-6},
    "qwen3vl": {"arch": "qwen3vl", **SMALL, "rope_base": 5e6, "sections": [4, 4, 4, 0], "eps": 1e-6, "tied": True},
    "orion": {"arch": "orion", **SQUARE},
    "nemotron": {"arch": "nemotron", **SQUARE, "rope_dim": 12, "attn_bias": True},
    "starcoder": {"arch": "starcoder", **SQUARE, "n_kv": 1},
    "codeshell": {"arch": "codeshell", **SQUARE},
    "hunyuan_vl": {
        "arch": "hunyuan_vl",
        **SMALL,
        "rope_base": 100.0,
        "alpha": 3.0,
        "sections": [3, 3, 3, 3],
        "tied": True,
    },
    "hunyuan-dense": {"arch": "hunyuan-dense", **SMALL, "rope_base": 1e6, "tied": True},
    "maincoder": {"arch": "maincoder", **SMALL, "rope_base": 1e6},
    "apertus": {"arch": "apertus", **SMALL, "rope_base": 12e6, "rope": "llama3"},
    "cogvlm": {"arch": "cogvlm", **SQUARE, "n_embd": 64, "head_dim": 16, "n_ff": 72, "n_kv": 4},
    "olmo": {"arch": "olmo", **SQUARE, "clamp_kqv": 1.5, "tied": True},
    "refact": {"arch": "refact", **SQUARE, "n_kv": 1, "tied": True},
    "bloom": {"arch": "bloom", **SQUARE, "n_head": 5, "head_dim": 16, "n_kv": 5, "tied": True},
    "mpt": {"arch": "mpt", **SQUARE, "n_kv": 4, "alibi": 6.0, "clamp_kqv": 1.5, "tied": True},
    "jais": {"arch": "jais", **SQUARE, "n_kv": 4, "alibi": 8.0},
    "jais2": {"arch": "jais2", **SQUARE},
    "bitnet": {"arch": "bitnet", **SQUARE, "tied": True},
    "openelm": {
        "arch": "openelm",
        **{"n_embd": 80, "head_dim": 24, "vocab": 304, "n_layer": 3, "tied": True, "n_head": 6, "n_kv": 2, "n_ff": 112},
        **{"head_arr": [4, 6, 6], "kv_arr": [1, 2, 3], "ff_arr": [64, 112, 96]},
    },
    "plamo3": {
        "arch": "plamo3",
        **SMALL,
        **{"n_layer": 4, "window": 16, "pattern": 2, "rope_base": 1e6, "rope_base_swa": 1e4, "tied": True},
    },
    # Layers with a window have other heads, and rotate other dimensions with another base.
    "spark2_5": {
        "arch": "spark2_5",
        **SLIM,
        **{"n_layer": 4, "window": 9, "pattern": [True, False, True, True], "head_arr": [6, 4, 6, 6]},
        **{"kv_arr": [3, 2, 3, 3], "rope_dim": 8, "rope_dim_swa": 12, "rope_base": 1e6, "rope_base_swa": 1e4},
    },
    "spark2_5-tied": {
        "arch": "spark2_5",
        **SLIM,
        **{"window": 5, "pattern": [False, True], "tied": True, "rope": "yarn", "ctx": 512},
    },
    # `loops`: how often the layers run. Between two loops, the output's norm applies, unless it is skipped.
    "nanbeige": {"arch": "nanbeige", **SLIM, "loops": 3, "rope_base": 1e6, "rope": "llama3", "eps": 1e-3},
    "nanbeige-skip": {"arch": "nanbeige", **SLIM, "loops": 2, "skip_norm": True, "n_layer": 3, "n_kv": 4, "tied": True},
    # Only layers with a window rotate. The norms after blocks have an epsilon of their own.
    "muse-glimmer": {
        "arch": "muse-glimmer",
        **SLIM,
        **{"n_layer": 4, "window": 9, "rope_base": 1e6, "rope_base_swa": 1e4, "logit_scale": 0.5, "final_cap": 6.0},
        **{"eps": 0.01},
    },
    "muse-glimmer-every": {
        "arch": "muse-glimmer",
        **SLIM,
        **{"window": 5, "pattern": [True, False], "rope_dim": 12, "logit_scale": 2.0, "rope": "linear"},
    },
    # Norms without weights. The queries' has a weight for each head; each layer adds the embeddings.
    "talkie": {"arch": "talkie", **SLIM, "rope_base": 1e6, "logit_scale": 0.5, "n_kv": 4, "eps": 0.01},
    "talkie-yarn": {
        "arch": "talkie",
        **SLIM,
        **{"n_layer": 3, "n_head": 6, "head_dim": 8, "logit_scale": 2.0, "rope": "yarn", "ctx": 512, "eps": 0.1},
    },
    # `cycles`: how often the high stack runs, and the low one before each; each stack has `stack` layers.
    "hrm_text": {
        "arch": "hrm_text",
        **SLIM,
        **{"cycles": (2, 2), "stack": 1, "n_layer": 6, "embedding_scale": 3.0, "rope_base": 1e6, "eps": 0.01},
    },
    "hrm_text-tied": {
        "arch": "hrm_text",
        **SLIM,
        **{"cycles": (2, 1), "stack": 2, "n_layer": 8, "n_kv": 4, "n_head": 4, "head_dim": 12, "tied": True},
    },
    # The vocabulary has 8,192 tokens of pictures: `kinds` keeps their embeddings small. `head_bias`: of the norms of
    # queries and keys. `swin`: norms after the blocks.
    "chameleon": {"arch": "chameleon", **PICTURES, "rope_base": 500.0, "eps": 0.2, "head_bias": True},
    "chameleon-after": {"arch": "chameleon", **PICTURES, "n_head": 4, "n_kv": 4, "head_dim": 8, "swin": True},
    "pangu-embedded": {"arch": "pangu-embedded", **SMALL, "attn_bias": True, "tied": True},
}

ENCODERS: dict[str, dict[str, Any]] = {
    "jina-bert-v3": {"arch": "jina-bert-v3", **SQUARE, "n_kv": 4, "tok": "wpm", "eps": 1e-12, "pooling": 1},
    "eurobert": {"arch": "eurobert", **SQUARE, "rope_base": 250000.0, "pooling": 1, "tied": True},
    "neo-bert": {"arch": "neo-bert", **SQUARE, "n_kv": 4, "tok": "wpm", "pooling": 2, "tied": True},
    # `buckets`: of relative positions. Flan's networks are gated.
    "t5encoder": {"arch": "t5encoder", **SMALL, "n_kv": 4, "head_dim": 24, "tok": "spm", "pooling": 1, "buckets": 8},
    "flan-t5encoder": {
        **{"arch": "t5encoder", **SMALL, "n_kv": 4, "head_dim": 24, "tok": "spm", "pooling": 1, "buckets": 32},
        "gated": True,
    },
    # An encoder beside a decoder. `start`: the token that an answer begins with, else BOS. `loud`: the gain of the
    # encoder's last network; trained models' hidden states exceed float16's range, too.
    "t5": {
        **{"arch": "t5", **SMALL, "n_kv": 4, "head_dim": 24, "tok": "spm", "buckets": 8},
        **{"n_layer": 3, "decoder_layers": 2, "start": 7, "tied": True},
    },
    "flan-t5": {
        **{"arch": "t5", **SMALL, "n_head": 3, "n_kv": 3, "head_dim": 20, "tok": "spm", "buckets": 32},
        **{"gated": True, "own_biases": True, "loud": 6e4},
    },
    "llama-embed": {"arch": "llama-embed", **SMALL, "rope_base": 500000.0, "pooling": 1, "tied": True},
}
