"""Shapes and traits of the random models: one preset for each architecture, several where files of one differ.

Settings: n_ff is per expert in mixtures; `tok` is a toy vocabulary; `logit_std` is the spread of the logits.
A setting that an architecture does not read is not written.
"""

from typing import Any

from tests.golden.make.presets_compressed import COMPRESSED
from tests.golden.make.presets_dense import DENSE
from tests.golden.make.presets_dense import ENCODERS as MORE_ENCODERS
from tests.golden.make.presets_diffusion import DIFFUSION
from tests.golden.make.presets_experts import EXPERTS
from tests.golden.make.presets_latent import LATENT
from tests.golden.make.presets_rwkv import RWKV

Settings = dict[str, Any]

BASE: Settings = {
    "n_embd": 128,
    "n_layer": 2,
    "n_head": 4,
    "n_kv": 2,
    "head_dim": 32,
    "n_ff": 256,
    "vocab": 384,
    "ctx": 256,
    "eps": 1e-5,
    "rope_base": 10000.0,
    "tied": False,
    "tok": "bpe",
    "logit_std": 3.0,
}

GRANITE = {"tied": True, "logit_scale": 2.0, "residual_scale": 0.25, "embedding_scale": 6.0, "attn_scale": 0.12}

PRESETS: dict[str, Settings] = {
    "llama": {"arch": "llama"},
    "llama-tied": {"arch": "llama", "tied": True, "tok": "spm"},
    "llama-bias": {"arch": "llama", "attn_bias": True, "head_dim": 48},  # head_dim * n_head != n_embd
    "llama3-rope": {"arch": "llama", "rope_base": 500000.0, "rope": "llama3", "tied": True},
    "llama-linear": {"arch": "llama", "rope": "linear"},
    "llama-yarn": {"arch": "llama", "rope": "yarn", "ctx": 512},
    "mixtral": {"arch": "llama", "n_expert": 4, "n_used": 2, "n_ff": 128},
    "arcee": {"arch": "arcee"},
    "qwen2": {"arch": "qwen2", "rope_base": 1e6, "tied": True, "eps": 1e-6},
    "qwen2-yarn": {"arch": "qwen2", "rope_base": 1e6, "rope": "yarn", "ctx": 512, "eps": 1e-6},
    "qwen2moe": {"arch": "qwen2moe", "n_expert": 4, "n_used": 2, "n_ff": 128, "n_ff_shexp": 192, "eps": 1e-6},
    "qwen3": {"arch": "qwen3", "head_dim": 64, "rope_base": 1e6, "eps": 1e-6, "tied": True},
    "qwen3moe": {
        "arch": "qwen3moe",
        **{"head_dim": 64, "rope_base": 1e6, "eps": 1e-6, "n_expert": 6, "n_used": 3, "n_ff": 96},
    },
    "gemma": {"arch": "gemma", "head_dim": 64, "n_kv": 1, "eps": 1e-6, "tok": "spm", "tied": True},
    "gemma2": {
        "arch": "gemma2",
        **{"head_dim": 64, "eps": 1e-6, "tok": "spm", "n_layer": 3, "tied": True},
        **{"window": 32, "attn_cap": 8.0, "final_cap": 10.0},
    },
    "gemma3": {
        "arch": "gemma3",
        **{"head_dim": 64, "n_kv": 1, "eps": 1e-6, "tok": "spm", "n_layer": 6, "tied": True},
        **{"window": 32, "rope_base": 1e6, "n_ff": 192},
    },
    # `pl`: width of the per-layer embeddings; `shared`: last layers that attend to an earlier layer's cache.
    "gemma4": {
        "arch": "gemma4",
        **{"n_kv": 1, "tok": "spm", "n_layer": 7, "tied": True, "rope_base": 1e6, "logit_std": 2.0},
        **{"window": 9, "final_cap": 30.0, "pl": 32, "shared": 3},
    },
    "gemma4-dense": {
        "arch": "gemma4",
        **{"tok": "spm", "n_layer": 3, "tied": True, "rope_base": 1e6},
        **{"window": 9, "final_cap": 30.0, "pl": 0, "shared": 0},
    },
    "gemma4-moe": {
        "arch": "gemma4",
        **{"n_embd": 96, "n_ff": 80, "tok": "spm", "n_layer": 5, "tied": True, "rope_base": 1e6, "vocab": 304},
        **{"window": 9, "final_cap": 30.0, "pl": 0, "shared": 0, "n_expert": 6, "n_used": 2, "n_ff_expert": 40},
    },
    # `n_out`: values of an embedding. Tokens have no per-layer embeddings.
    "gemma-embedding2": {
        "arch": "gemma-embedding2",
        **{"n_embd": 48, "n_ff": 64, "head_dim": 16, "vocab": 304, "tok": "spm", "n_layer": 4, "tied": True},
        **{"rope_base": 1e6, "window": 9, "pl": 12, "shared": 0, "pooling": 1, "n_out": 40, "logit_std": 1.0},
    },
    "gemma-embedding2-wide": {
        "arch": "gemma-embedding2",
        **{
            "n_embd": 32,
            "n_ff": 40,
            "head_dim": 12,
            "vocab": 304,
            "tok": "spm",
            "n_layer": 3,
            "tied": True,
            "n_head": 3,
        },
        **{"n_kv": 3, "rope_base": 1e4, "window": 5, "pl": 16, "shared": 0, "pooling": 3, "n_out": 72},
    },
    "gemma3n": {
        "arch": "gemma3n",
        **{"n_embd": 16, "n_layer": 22, "n_head": 3, "n_kv": 1, "head_dim": 8, "n_ff": 36, "vocab": 104},
        **{"tok": "wpm", "tied": True, "rope_base": 1e6, "window": 9, "eps": 1e-3, "logit_std": 1.5},
    },
    "phi3": {"arch": "phi3", "tok": "spm", "n_kv": 4, "eps": 1e-5},
    "phi3-longrope-short": {"arch": "phi3", "tok": "spm", "rope": "longrope", "orig_ctx": 1024, "ctx": 4096},
    "phi3-longrope-long": {
        "arch": "phi3",
        **{"tok": "spm", "rope": "longrope", "orig_ctx": 64, "ctx": 4096, "rope_dim": 24},
    },
    "olmo2": {"arch": "olmo2", "eps": 1e-6, "rope_base": 500000.0},
    "olmo3": {
        "arch": "olmo2",
        **{"eps": 1e-6, "rope_base": 500000.0, "n_layer": 4, "window": 32, "rope": "yarn", "ctx": 512},
    },
    "olmoe": {"arch": "olmoe", "n_kv": 4, "n_expert": 8, "n_used": 3, "n_ff": 64},
    "granite": {"arch": "granite", **GRANITE},
    "granitemoe": {"arch": "granitemoe", **GRANITE, "n_expert": 4, "n_used": 2, "n_ff": 128},
    # `rope_pattern`: the layers that rotate.
    "granite_swa": {
        "arch": "granite_swa",
        **GRANITE,
        **{"n_embd": 48, "head_dim": 16, "n_ff": 64, "vocab": 304, "n_layer": 4, "window": 9, "attn_bias": True},
        **{"pattern": [True, True, False, True], "rope_pattern": [True, False, True, True]},
    },
    "granite_swa-moe": {
        "arch": "granite_swa",
        **{"n_embd": 48, "head_dim": 16, "n_ff": 24, "vocab": 304, "window": 5, "pattern": [False, True]},
        **{"n_expert": 4, "n_used": 2, "n_ff_shexp": 40, "logit_scale": 0.5, "n_head": 6, "n_kv": 3},
    },
    # `control`: the tokens that switch on adapters of `lora_rank`, `substitutes`: those embedded in their place.
    "graniteswitch": {
        "arch": "graniteswitch",
        **GRANITE,
        **{"n_embd": 48, "head_dim": 16, "n_ff": 64, "vocab": 304, "lora_rank": 8},
        **{"control": [129, 300, 28], "substitutes": [20, 21, 22]},
    },
    "graniteswitch-wide": {
        "arch": "graniteswitch",
        **GRANITE,
        **{"n_embd": 40, "head_dim": 12, "n_head": 3, "n_kv": 1, "n_ff": 52, "vocab": 304, "lora_rank": 20},
        **{"control": [174], "substitutes": [7], "gain": 3.0, "n_layer": 3, "tied": False},
    },
    "starcoder2": {"arch": "starcoder2", "rope_base": 100000.0, "tied": True},
    "gpt2": {"arch": "gpt2", "n_kv": 4, "tied": True},
    "stablelm": {"arch": "stablelm", "rope_dim": 8, "qkv_bias": True},
    "stablelm-12b": {"arch": "stablelm", "rope_dim": 8, "parallel": True},
    "phi2": {"arch": "phi2", "n_kv": 4, "rope_dim": 16},
    "gptneox": {"arch": "gptneox", "n_kv": 4, "rope_dim": 8, "parallel": True},
    "smollm3": {"arch": "smollm3", "n_layer": 4, "rope_base": 2e6, "tied": True, "eps": 1e-6},
    "cohere2": {"arch": "cohere2", "n_layer": 4, "window": 32, "tied": True, "logit_scale": 0.25},
    "command-r": {"arch": "command-r", "tied": True, "logit_scale": 0.25},
    "falcon": {"arch": "falcon", "n_kv": 1, "tied": True},
    "plamo": {"arch": "plamo"},
    "falcon-40b": {"arch": "falcon"},  # a second norm, which only the attention reads
    "exaone": {"arch": "exaone", "n_kv": 1, "rope_base": 500000.0, "rope": "llama3"},
    "glm4": {"arch": "glm4", "qkv_bias": True, "rope_dim": 16},
    "gpt-oss": {
        "arch": "gpt-oss",
        **{"n_layer": 2, "head_dim": 64, "n_expert": 4, "n_used": 2, "n_ff": 128, "window": 32},
        **{"rope": "yarn", "ctx": 512, "rope_base": 150000.0},
    },
    "lfm2": {"arch": "lfm2", "n_layer": 4, "rope_base": 1e6, "tied": True, "l_cache": 3},
    "lfm2-embedding": {
        "arch": "lfm2",
        **{"n_layer": 4, "rope_base": 1e6, "tied": True, "l_cache": 3, "causal": False, "pooling": 2},
    },
    # llama.cpp refuses Mamba-1, Jamba and Granite 4 unless `d_inner` is twice `n_embd`.
    # `d_inner` values of `ssm_heads` heads, which share `ssm_groups` heads of keys with `d_state` values each.
    "granitehybrid": {
        "arch": "granitehybrid",
        **GRANITE,
        **{"n_embd": 64, "n_layer": 4, "n_ff": 128},
        **{"d_conv": 4, "d_inner": 128, "d_state": 16, "ssm_heads": 8, "ssm_groups": 2},
    },
    "granitehybrid-moe": {
        "arch": "granitehybrid",
        **GRANITE,
        **{"n_embd": 64, "n_layer": 3, "n_expert": 4, "n_used": 2, "n_ff": 64, "n_ff_shexp": 96, "no_rope": True},
        **{"d_conv": 3, "d_inner": 128, "d_state": 20, "ssm_heads": 4, "ssm_groups": 1},
    },
    "qwen35": {
        "arch": "qwen35",
        **{"n_layer": 4, "head_dim": 32, "rope_dim": 16, "rope_base": 1e6, "eps": 1e-6, "n_ff": 128},
        **{"d_conv": 4, "d_inner": 64, "d_state": 16, "ssm_heads": 4, "ssm_groups": 2, "sections": [3, 3, 2, 0]},
    },
    "qwen35moe": {
        "arch": "qwen35moe",
        **{"n_layer": 3, "head_dim": 16, "rope_dim": 8, "eps": 1e-6, "n_expert": 4, "n_used": 2, "n_ff": 64},
        **{"d_conv": 4, "d_inner": 96, "d_state": 24, "ssm_heads": 4, "ssm_groups": 4, "sections": [2, 1, 1, 0]},
        **{"n_ff_shexp": 96, "attention_every": 3},
    },
    "qwen3next": {
        "arch": "qwen3next",
        **{"n_layer": 3, "head_dim": 16, "rope_dim": 8, "eps": 1e-6, "n_expert": 4, "n_used": 2, "n_ff": 64},
        **{"d_conv": 4, "d_inner": 96, "d_state": 24, "ssm_heads": 4, "ssm_groups": 2, "n_ff_shexp": 96},
        **{"attention_every": 2},
    },
    "mamba2": {
        "arch": "mamba2",
        **{"d_conv": 4, "d_inner": 128, "d_state": 16, "ssm_heads": 4, "ssm_groups": 1, "tied": True, "n_layer": 3},
    },
    "mamba": {
        "arch": "mamba",
        **{"d_conv": 4, "d_inner": 128, "d_state": 16, "ssm_heads": 8, "ssm_groups": 0, "tied": True, "n_layer": 3},
        "n_embd": 64,
    },
    "jamba": {
        "arch": "jamba",
        **{"n_embd": 64, "head_dim": 16},
        **{"d_conv": 4, "d_inner": 128, "d_state": 12, "ssm_heads": 10, "ssm_groups": 0, "n_layer": 3, "n_ff": 128},
    },
    # Layers without attention have 0 heads in the metadata. llama.cpp b11549 does not return if the first one has none.
    "plamo2": {
        "arch": "plamo2",
        **{"d_conv": 4, "d_inner": 96, "d_state": 12, "ssm_heads": 4, "ssm_groups": 0, "n_layer": 3, "n_ff": 96},
        **{"attention_layers": [0, 2], "tied": True},
    },
    "nemotron_h": {
        "arch": "nemotron_h",
        **{"d_conv": 4, "d_inner": 128, "d_state": 16, "ssm_heads": 8, "ssm_groups": 2, "n_ff": 96},
        **{"layers": "M-M*-M", "n_layer": 6},
    },
    "nemotron_h_moe": {
        "arch": "nemotron_h_moe",
        **{"d_conv": 4, "d_inner": 128, "d_state": 16, "ssm_heads": 4, "ssm_groups": 1, "n_ff": 64},
        **{"layers": "M-*-M", "n_layer": 5, "n_expert": 4, "n_used": 2, "n_ff_shexp": 96},
    },
    "falcon-h1": {
        "arch": "falcon-h1",
        **{"d_conv": 4, "d_inner": 128, "d_state": 24, "ssm_heads": 4, "ssm_groups": 1, "n_ff": 128, "rope_base": 1e6},
        **{"ssm_norm": False},
    },
    "qwen3-embedding": {
        "arch": "qwen3",
        **{"head_dim": 64, "rope_base": 1e6, "eps": 1e-6, "tied": True, "pooling": 3},
    },
    "gemma-embedding": {
        "arch": "gemma-embedding",
        **{"head_dim": 64, "n_kv": 1, "eps": 1e-6, "tok": "spm", "n_layer": 3, "tied": True},
        **{"window": 16, "pattern": 3, "rope_base": 1e6, "pooling": 1, "dense": 192},
    },
    "bert": {"arch": "bert", "n_kv": 4, "tok": "wpm", "eps": 1e-12, "pooling": 2},
    "bert-rank": {"arch": "bert", "n_kv": 4, "tok": "wpm", "eps": 1e-12, "pooling": 4},
    "nomic-bert": {"arch": "nomic-bert", "n_kv": 4, "tok": "wpm", "eps": 1e-12, "pooling": 1, "rope_base": 1000.0},
    "nomic-bert-moe": {"arch": "nomic-bert-moe", "n_kv": 4, "tok": "wpm", "pooling": 1, "n_expert": 4, "n_used": 2},
    "jina-bert-v2": {"arch": "jina-bert-v2", "n_kv": 4, "tok": "wpm", "eps": 1e-12, "pooling": 1},
    "modern-bert": {
        "arch": "modern-bert",
        **{"n_kv": 4, "tok": "wpm", "n_layer": 4, "tied": True, "rope_base": 160000.0, "pooling": 1, "window": 12},
    },
    "modern-bert-rank": {
        "arch": "modern-bert",
        **{"n_kv": 4, "tok": "wpm", "n_layer": 3, "tied": True, "rope_base": 160000.0, "pooling": 4, "window": 12},
    },
}


PRESETS |= MORE_ENCODERS | DENSE | EXPERTS | LATENT | COMPRESSED | RWKV | DIFFUSION

# Traits of architectures.
LAYERNORM_BIAS = {"starcoder2", "gpt2", "stablelm", "phi2", "gptneox", "falcon", "bert", "nomic-bert"}
LAYERNORM_BIAS |= {"nomic-bert-moe", "jina-bert-v2"}
LAYERNORM = LAYERNORM_BIAS | {"cohere2", "command-r", "modern-bert"}  # the others: RMSNorm
ENCODERS = {"bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2"}  # norms after each part, none at the end
NO_ROPE = {"gpt2", "bert", "mamba", "jamba", "mamba2", "nemotron_h", "nemotron_h_moe"}
FUSED_QKV = {"phi3", "gpt2", "phi2", "gptneox", "nomic-bert", "falcon", "modern-bert"}
FUSED_GATE_UP = {"phi3", "glm4", "jina-bert-v2", "modern-bert"}  # gate in the first half of ffn_up's rows
UNGATED = {"starcoder2", "gpt2", "phi2", "gptneox", "bert", "falcon", "arcee", "nomic-bert-moe"}
UNGATED |= {"nemotron_h", "nemotron_h_moe"}
QKV_BIAS = {"qwen2", "qwen2moe", "starcoder2", "gpt2", "phi2", "gptneox", "gpt-oss", "bert", "jina-bert-v2"}
OUTPUT_BIAS = {"starcoder2", "gpt2", "phi2", "gptneox", "gpt-oss", "bert", "jina-bert-v2", "nomic-bert-moe"}
UP_BIAS = {"starcoder2", "gpt2", "phi2", "gptneox", "bert"}
DOWN_BIAS = UP_BIAS | {"jina-bert-v2", "nomic-bert-moe"}
QK_NORM = {"qwen35", "qwen35moe", "qwen3next", "qwen3", "qwen3moe", "gemma3", "gemma-embedding", "lfm2"}  # of each head
GATED_ATTENTION = {"qwen35", "qwen35moe", "qwen3next", "qwen4exp"}  # each head's queries, then its gates
WIDE_QK_NORM = {"olmo2", "olmoe"}  # of the whole projection
POST_NORMS = {"gemma2", "gemma3", "gemma-embedding", "olmo2", "glm4"}
ONE_NORM = {"phi2", "cohere2", "command-r", "falcon", "plamo"}  # attention and feed forward read the same norm
LAYERNORM_BIAS |= {"orion", "nemotron", "starcoder", "codeshell"}
LAYERNORM |= LAYERNORM_BIAS
LAYERNORM_BIAS |= {"bloom", "jais", "jais2"}
LAYERNORM |= LAYERNORM_BIAS | {"mpt", "olmo"}
NO_ROPE |= {"starcoder", "bloom", "mpt", "jais", "refact"}
FUSED_QKV |= {"chatglm", "qwen", "starcoder", "codeshell", "bloom", "mpt", "jais", "cogvlm"}
FUSED_GATE_UP |= {"chatglm", "neo-bert", "plamo2", "plamo3"}
UNGATED |= {"plm"}
UNGATED |= {"nemotron", "starcoder", "codeshell", "apertus", "bloom", "mpt", "jais2"}
QKV_BIAS |= {"starcoder", "codeshell", "qwen2vl", "bloom", "jais", "jais2"}
OUTPUT_BIAS |= {"starcoder", "codeshell", "bloom", "jais", "jais2"}
UP_BIAS |= {"starcoder", "codeshell", "nemotron", "bloom", "jais", "jais2"}
GATE_BIAS = {"jais"}
DOWN_BIAS |= UP_BIAS
QK_NORM |= {"exaone4", "qwen3vl", "hunyuan-dense", "hunyuan_vl", "maincoder", "apertus"}
SUB_NORMS = {"bitnet"}  # norms before the last matrix of attention and feed forward
NO_NORM_WEIGHTS = {"olmo", "talkie", "hrm_text"}
POST_NORMS |= {"exaone4", "plamo2", "plamo3"}
BARE_POST_NORMS = {"plamo2", "plamo3"}  # whose names have no ending
ENCODERS |= {"jina-bert-v3"}
LAYERNORM_BIAS |= {"jina-bert-v3"}
LAYERNORM |= LAYERNORM_BIAS
FUSED_QKV |= {"jina-bert-v3", "openelm", "neo-bert", "plamo2", "plamo3"}
QKV_BIAS |= {"jina-bert-v3"}
OUTPUT_BIAS |= {"jina-bert-v3"}
UNGATED |= {"jina-bert-v3"}
UP_BIAS |= {"jina-bert-v3"}
DOWN_BIAS |= UP_BIAS
QK_NORM |= {"openelm", "plamo3", "mellum", "maple", "muse-glimmer", "hy_v3", "laguna", "minimax-m3"}
NORM_AS_POST = {"gpt-oss", "seed_oss"}  # post_attention_norm is the norm before the feed forward
NO_NORM_BEFORE = {"olmo2", "exaone4", "qwen4exp"}  # norms after attention and the feed forward only, or others
NO_NORM_AFTER = {"qwen4exp"}  # of the last layer, but another one
POSITIONS = {"gpt2", "bert", "starcoder"}  # a table of position embeddings
ONE_NORM |= {"cohere2moe"}
LAYERNORM |= {"dbrx"}
NORM_BIAS = LAYERNORM_BIAS | {"phimoe"}  # whose norms have biases
SHORT_CONVOLUTIONS = {"lfm2", "lfm2moe"}
FUSED_QKV |= {"bailingmoe2", "dbrx", "graniteswitch"}
QK_NORM |= {"step35", "bailingmoe2", "lfm2moe", "qwen3vlmoe", "dots1", "hunyuan-moe", "exaone-moe", "afmoe", "grovemoe"}
WIDE_QK_NORM |= {"minimax-m2", "k2-horizon"}
POST_NORMS |= {"afmoe", "muse-glimmer"}
NORM_AS_POST |= {"glm4moe"}
ATTENTION_GATES = {"afmoe", "step35", "spark2_5", "muse-glimmer", "laguna", "k2-horizon"}  # of each value, or head
ATTENTION_GATES |= {"hrm_text"}
EXPERT_WIDTH_KEY = {"qwen2moe", "qwen3moe", "gpt-oss", "qwen35moe", "qwen3next", "nemotron_h_moe"}
QKV_BIAS |= {"dream"}
QK_NORM |= {"llada-moe", "rnd1", "qwen4exp"}
EXPERT_WIDTH_KEY |= {"llada-moe", "rnd1"}
EXPERT_WIDTH_KEY |= {preset["arch"] for preset in (*EXPERTS.values(), *LATENT.values())} - {"dbrx", "phimoe"}
EXPERT_WIDTH_KEY |= {"deepseek4"}


def settings(preset: str, **overrides: Any) -> Settings:
    """A preset's settings with some of them replaced."""
    return {**BASE, **PRESETS[preset], **overrides, "preset": preset}
